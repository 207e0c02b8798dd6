"""Who outside the members can open a connection to them.

A rule that admits somebody is an exposure only when somebody is there to use it: the
internet, through a public address and a route to an internet gateway; a running interface
outside the members that the rule names by group or by address; or a network behind a
gateway that the members' subnet routes to. ACLs and routes count; what could not be read
is a gap, never "nobody".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

from cluster.admission import ICMP_ERRORS, Admission, Door, door_of
from cluster.lookup import Gap, Lookup
from cluster.ports import ALL_PORTS, PortRange
from cluster.rules import SecurityGroupRule
from cluster.snapshot import ClusterSnapshot


@dataclass(frozen=True)
class Exposed:
    """Somebody outside who gets in.

    protocol: tcp, udp, icmp, a number, or -1 for all. ports: "22", "0-65535"; of icmp the
    type, or "all". source: the rule's source. instances: members it leads to.
    via: who uses it: `internet`, an interface's or a gateway's id. rules: what admits them.
    """

    protocol: str
    ports: str
    source: str
    instances: Tuple[str, ...]
    via: Tuple[str, ...]
    rules: Tuple[SecurityGroupRule, ...]


@dataclass(frozen=True)
class Exposure:
    """Everybody who gets in, and what was not read: with a gap, more may."""

    entries: Tuple[Exposed, ...]
    gaps: Tuple[Gap, ...]


def exposure(snapshot: Union[ClusterSnapshot, Lookup], members: Sequence[str]) -> Exposure:
    """Find who outside the members (instance ids) reaches any of their interfaces."""
    lookup = snapshot if isinstance(snapshot, Lookup) else Lookup(snapshot)
    doors: Dict[Tuple[Door, Optional[str]], List[str]] = {}  # by the door and each group that guards it
    gaps: List[Gap] = []
    own: Set[str] = set()
    for member in dict.fromkeys(members):
        for item in lookup.interfaces(member):
            own.add(item.id)
            if item.addresses:
                for group in (None,) if item.group_ids is None else item.group_ids:
                    doors.setdefault((door_of(lookup, item), group), []).append(member)
        if not lookup.interfaces(member):
            reason = lookup.snapshot.interfaces.problem or "none is in the document"
            gaps.append(Gap("network-interfaces", f"the interfaces of {member} are unknown: {reason}"))
    judge = Admission(lookup, frozenset(own))
    found: Dict[Tuple[str, str, str], _Entry] = {}
    for (door, group), instances in doors.items():
        for rule in judge.rules(group):
            for protocol, (ports, via) in judge.admitted(door, rule).items():
                for run in ports:
                    key = (protocol, _ports_text(protocol, run), rule.source)
                    found.setdefault(key, _Entry()).add(instances, via, rule)
    entries = tuple(
        Exposed(
            protocol=protocol,
            ports=ports,
            source=source,
            instances=tuple(entry.instances),
            via=tuple(entry.via),
            rules=tuple(entry.rules),
        )
        for (protocol, ports, source), entry in sorted(found.items())
    )
    return Exposure(entries=entries, gaps=tuple(dict.fromkeys((*gaps, *judge.gaps))))


class _Entry:
    def __init__(self) -> None:
        self.instances: Dict[str, None] = {}
        self.via: Dict[str, None] = {}
        self.rules: Dict[SecurityGroupRule, None] = {}

    def add(self, instances: Iterable[str], via: Iterable[str], rule: SecurityGroupRule) -> None:
        self.instances.update(dict.fromkeys(instances))
        self.via.update(dict.fromkeys(via))
        self.rules[rule] = None


def _ports_text(protocol: str, run: PortRange) -> str:
    return "all" if protocol in ICMP_ERRORS and run == ALL_PORTS else str(run)
