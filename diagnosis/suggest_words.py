"""What is said of rules in a suggestion: what they serve, whom they let in, whom their group reaches."""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence, Tuple

from cluster.admission import INTERNET
from cluster.document_groups import rule_key
from cluster.flows import Place
from cluster.ports import PortSet
from cluster.rules import SecurityGroupRule, SourceKind
from diagnosis.static import StaticFindings
from diagnosis.suggest_rules import Groups, Profile

SERVES: Mapping[Tuple[str, int], str] = {
    ("tcp", 22): "ssh",
    ("tcp", 53): "DNS",
    ("udp", 53): "DNS",
    ("tcp", 80): "HTTP",
    ("udp", 123): "time",
    ("tcp", 443): "HTTPS: AWS's services, packages",
    ("tcp", 988): "Lustre (FSx)",
    ("tcp", 2049): "NFS (EFS, FSx)",
    ("tcp", 3389): "remote desktop",
}
"""What a rule of one well-known port is usually for."""


def serves(rule: SecurityGroupRule) -> str:
    """What a rule that the mesh does not need may be there for."""
    if rule.protocol in ("icmp", "icmpv6"):
        if rule.first in (-1, None, 3 if rule.protocol == "icmp" else 2):
            return "path MTU discovery: without it a smaller MTU on the way swallows full packets"
        return "ICMP"
    known = SERVES.get((rule.protocol, rule.first or 0)) if rule.first == rule.last else None
    if known:
        return known
    if rule.egress and rule.kind is not SourceKind.GROUP:
        return "whatever nodes fetch: AWS's services, packages, time"
    return "something else than the mesh"


class Words:
    """now: the judgement of what stands. source_ports: the nodes' ephemeral ports."""

    def __init__(self, now: StaticFindings, groups: Groups, profile: Profile, source_ports: PortSet) -> None:
        self._now = now
        self._groups = groups
        self._profile = profile
        self._source_ports = source_ports

    def for_efa(self, rule: SecurityGroupRule) -> bool:
        """Whether EFA interfaces need the rule, and the profile does not see to that."""
        efa = self._profile is not Profile.EFA and len(self._groups.efa) > 1
        return efa and rule.protocol == "-1" and rule.kind is SourceKind.GROUP

    def also(self, rule: SecurityGroupRule) -> str:
        """Whom a rule between members serves besides."""
        said = [self._outsiders(rule), self._shared(rule)]
        if rule.protocol == "-1":
            said.append("ping and UDP between members end with it")
        if rule.kind is not SourceKind.GROUP:
            said.append(f"whatever else uses it at {rule.source} ends with it")
        return "; ".join(filter(None, said))

    def served(self, rule: SecurityGroupRule) -> str:
        """What a rule that the mesh does not need is there for."""
        if self.for_efa(rule):
            return "EFA needs it: take the profile efa"
        return "; ".join(filter(None, [serves(rule), self._outsiders(rule), self._shared(rule)]))

    def _outsiders(self, rule: SecurityGroupRule) -> str:
        key = rule_key(rule)
        via = [
            "the internet" if each == INTERNET else each
            for item in self._now.exposed
            if any(rule_key(one) == key for one in item.rules)
            for each in item.via
        ]
        return f"lets {_few(via)} in from outside" if via else ""

    def _shared(self, rule: SecurityGroupRule) -> str:
        others = [item.id for item in self._groups.strangers(rule.group_id)]
        return f"{rule.group_id} is also carried by {_few(others)}, no member" if others else ""

    def notes(self, chosen: Sequence[str]) -> Iterable[str]:
        """What is to be known besides the rules."""
        for group in chosen:
            others = [item.id for item in self._groups.strangers(group)]
            if others:
                yield (
                    f"{group} is also carried by {_few(others)}, no member: what opens it to itself opens "
                    "members to that, too; a group of the members' own would not"
                )
        if len(chosen) > 1:
            yield (
                f"no group is on every member, so {' and '.join(chosen)} name each other; "
                "one group on all of them would need fewer rules"
            )
        if self._profile is Profile.PINNED:
            yield (
                f"holds for nodes whose net.ipv4.ip_local_port_range is within {self._source_ports}; nodes "
                "that are held to fewer ports need fewer"
            )
        if self._profile is not Profile.EFA and len(self._groups.efa) > 1:
            yield "members have EFA interfaces: they need the profile efa"
        vpcs = {item.vpc_id for item in self._now.reachability.places if isinstance(item, Place)}
        if len(vpcs) > 1:
            yield "members are in several VPCs: a rule that names a group there needs a peering connection"


def _few(ids: Sequence[str]) -> str:
    some = list(dict.fromkeys(ids))
    return ", ".join(some[:3]) + (f" and {len(some) - 3} more" if len(some) > 3 else "")
