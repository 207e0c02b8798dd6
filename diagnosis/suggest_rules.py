"""Which rules a profile asks for, on which groups, and what a rule that the mesh does not need may serve."""

from __future__ import annotations

import itertools
from enum import Enum
from typing import Dict, FrozenSet, Iterable, List, Optional, Sequence, Tuple

from cluster.document_groups import rule_key
from cluster.lookup import Lookup
from cluster.ports import PortRange, PortSet
from cluster.rules import SecurityGroupRule, SourceKind
from cluster.snapshot import Interface
from diagnosis.static_hints import EFA_KINDS


class Profile(str, Enum):
    """The port profiles of the stack (docs/configuration.md): what members open to each other.

    ALL: every TCP port. PINNED: MASTER_PORT and the nodes' ip_local_port_range. EFA: all protocols.
    """

    ALL = "all"
    PINNED = "pinned"
    EFA = "efa"


class Groups:
    """The groups of some members, as far as they matter to rules between them.

    of: member -> groups of its primary interface (and, in `common_of_efa`, of its EFA interfaces).
    """

    def __init__(self, lookup: Lookup, members: Sequence[str]) -> None:
        self.lookup = lookup
        self.members = members
        self.of: Dict[str, FrozenSet[str]] = {}
        for member in members:
            primary = lookup.primary(member)
            self.of[member] = frozenset((primary.group_ids if primary else None) or ())
        self.interfaces = [item for member in members for item in lookup.interfaces(member)]
        self.efa = [item for item in self.interfaces if item.kind in EFA_KINDS]

    @property
    def every(self) -> Tuple[str, ...]:
        """All groups on any interface of a member."""
        return tuple(dict.fromkeys(g for item in self.interfaces for g in item.group_ids or ()))

    def strangers(self, group_id: str) -> List[Interface]:
        """Interfaces that carry the group and are no member's."""
        own = {item.id for item in self.interfaces}
        return [item for item in self.lookup.carriers(group_id) if item.id not in own]

    def chosen(self, profile: Profile, own: Iterable[SecurityGroupRule]) -> Tuple[str, ...]:
        """The groups whose rules join the members: one that all carry, else the fewest that cover them.

        Of several the one that no stranger carries, then the one that has such rules already.
        For EFA only one that all carry will do: none is an empty answer.
        """
        named = [rule.group_id for rule in own if rule.source == rule.group_id]
        sets = list(self.of.values())
        if profile is Profile.EFA:
            sets += [frozenset(item.group_ids or ()) for item in self.efa]
        common = frozenset.intersection(*sets)

        def order(group_id: str) -> Tuple[bool, bool, int, str]:
            group = self.lookup.snapshot.security_groups.get(group_id)
            default = group is not None and group.name == "default"
            return (bool(self.strangers(group_id)), default, -named.count(group_id), group_id)

        if common:
            return (min(common, key=order),)
        if profile is Profile.EFA:
            return ()
        left, found = list(self.members), []
        while left:
            counts = {g: sum(g in self.of[m] for m in left) for m in left for g in self.of[m]}
            if not counts:
                return ()
            found.append(min(counts, key=lambda g: (-counts[g], *order(g))))
            left = [member for member in left if found[-1] not in self.of[member]]
        return tuple(found)


def rules_of(
    profile: Profile, groups: Groups, chosen: Sequence[str], need: PortSet
) -> List[SecurityGroupRule]:
    """What the profile asks for: in and out between the chosen groups, as far as members carry them."""
    traffic: List[Tuple[str, Optional[PortRange]]] = [("tcp", PortRange(0, 65535))]
    if profile is Profile.PINNED:
        traffic = [("tcp", run) for run in need]
    elif profile is Profile.EFA:
        traffic = [("-1", None)]
    carriers: Dict[str, int] = {}
    for member in groups.members:
        group = next(each for each in chosen if each in groups.of[member])
        carriers[group] = carriers.get(group, 0) + 1
    found: Dict[object, SecurityGroupRule] = {}
    for (source, many), target in itertools.product(carriers.items(), carriers):
        if source == target and many == 1:
            continue
        for (protocol, ports), egress in itertools.product(traffic, (False, True)):
            rule = SecurityGroupRule(
                group_id=source if egress else target,
                egress=egress,
                protocol=protocol,
                first=ports.first if ports else None,
                last=ports.last if ports else None,
                kind=SourceKind.GROUP,
                source=target if egress else source,
            )
            found[rule_key(rule)] = rule
    return list(found.values())
