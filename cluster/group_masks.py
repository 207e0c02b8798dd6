"""What security groups let through, as masks of ports.

A group's answer for a peer is the union of what it lets through for each group the peer carries
and for the peer's address; both are worked out once, so that a pair of members costs a few
operations on integers.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, List, Optional, Tuple

from cluster.lookup import Lookup
from cluster.masks import PortMasks
from cluster.ports import PortSet
from cluster.rules import SecurityGroupRule, SourceKind
from cluster.stages import Place


class DirectionRules:
    """One direction of one group: masks by what a rule names.

    references: by group, for certain, and perhaps besides. ranges: (version, first, last, mask, certain).
    unread: of prefix lists that nobody read.
    """

    def __init__(self, rules: Iterable[SecurityGroupRule], masks: PortMasks, protocol: str) -> None:
        self.references: Dict[str, Tuple[int, int]] = {}
        self.ranges: List[Tuple[int, int, int, int, bool]] = []
        self.unread = 0
        for rule in rules:
            mask = masks.of(rule.ports(protocol))
            if not mask:
                continue
            if rule.kind is SourceKind.GROUP:
                if not rule.stale:
                    sure, maybe = self.references.get(rule.source, (0, 0))
                    new = (sure, maybe | mask) if rule.disputed else (sure | mask, maybe)
                    self.references[rule.source] = new
            elif rule.networks is None:
                self.unread |= mask
            else:
                for network in rule.networks:
                    first, last = int(network.network_address), int(network.broadcast_address)
                    self.ranges.append((network.version, first, last, mask, not rule.disputed))
        self._by_signature: Dict[int, Tuple[int, int]] = {}
        self._by_groups: Dict[Optional[FrozenSet[str]], Tuple[int, int]] = {}

    @property
    def any(self) -> bool:
        """Whether they let anything through."""
        return bool(self.references or self.ranges or self.unread)

    def by_groups(self, carried: Optional[FrozenSet[str]]) -> Tuple[int, int]:
        """What the groups that it carries let through; None = nobody knows which."""
        found = self._by_groups.get(carried)
        if found is None:
            sure = maybe = 0
            for group in self.references if carried is None else carried:
                certain, perhaps = self.references.get(group, (0, 0))
                sure |= 0 if carried is None else certain
                maybe |= certain | perhaps if carried is None else perhaps
            found = self._by_groups[carried] = (sure, maybe)
        return found

    def by_address(self, far: Place) -> Tuple[int, int]:
        """What its address lets through: for certain, and perhaps besides."""
        found = self._by_signature.get(far.signature)
        if found is None:
            value, version = int(far.address), far.address.version
            sure, maybe = 0, self.unread
            for family, first, last, mask, certain in self.ranges:
                if first <= value <= last and family == version:
                    if certain:
                        sure |= mask
                    else:
                        maybe |= mask
            found = self._by_signature[far.signature] = (sure, maybe)
        return found


class GroupMasks:
    """What groups let through, by group, direction and peer. groups: every one that may be asked for."""

    def __init__(self, lookup: Lookup, groups: FrozenSet[str], need: PortSet, protocol: str) -> None:
        rules = lookup.group_rules(groups)
        all_rules = (*rules.ingress, *rules.egress)
        self.masks = PortMasks(need, (run for rule in all_rules for run in rule.ports(protocol)))
        self._lookup = lookup
        self._protocol = protocol
        self._rules: Dict[Tuple[str, bool], DirectionRules] = {}
        self._that_allow: Dict[Tuple[Optional[FrozenSet[str]], bool], Tuple[DirectionRules, ...]] = {}

    def rules(self, group: str, egress: bool) -> DirectionRules:
        key = (group, egress)
        found = self._rules.get(key)
        if found is None:
            own = self._lookup.group_rules(frozenset([group])).direction(egress)
            found = self._rules[key] = DirectionRules(own, self.masks, self._protocol)
        return found

    def allowed(self, groups: Optional[FrozenSet[str]], egress: bool, far: Place) -> Tuple[int, int]:
        """What these groups together let through to or from a peer: for certain, and perhaps besides.

        A group whose rules are unknown adds nothing here.
        """
        sure = maybe = 0
        for rules in self.that_allow(groups, egress):
            certain, perhaps = rules.by_address(far)
            sure |= certain
            maybe |= perhaps
            certain, perhaps = rules.by_groups(far.groups)
            sure |= certain
            maybe |= perhaps
        return sure, maybe & ~sure

    def that_allow(self, groups: Optional[FrozenSet[str]], egress: bool) -> Tuple[DirectionRules, ...]:
        """The rules of those groups that let anything through in this direction."""
        key = (groups, egress)
        found = self._that_allow.get(key)
        if found is None:
            each = (self.rules(group, egress) for group in sorted(groups or ()))
            found = self._that_allow[key] = tuple(rules for rules in each if rules.any)
        return found
