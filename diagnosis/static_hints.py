"""What the rules show and what matters, but does not decide whether Gloo's mesh can form."""

from __future__ import annotations

from typing import Dict, Iterator, List, Set, Tuple

from cluster.lookup import parse_address
from cluster.rules import SourceKind, contains
from cluster.snapshot import Interface
from diagnosis.causes import finding
from diagnosis.report import Finding
from diagnosis.static_fixes import best_group, group_named
from diagnosis.static_members import Members

EFA_KINDS = frozenset({"efa", "efa-only"})


def advisories(members: Members) -> Tuple[Finding, ...]:
    """EFA's rules, second interfaces in one subnet, rules that name members' public addresses."""
    return (*_efa(members), *_second_interfaces(members), *_public_addresses(members))


def _efa(members: Members) -> Iterator[Finding]:
    """EFA needs one group on all its interfaces with all protocols in and out with itself."""
    lookup = members.lookup
    interfaces = [i for m in members.reach.members for i in lookup.interfaces(m) if i.kind in EFA_KINDS]
    known = [frozenset(item.group_ids) for item in interfaces if item.group_ids is not None]
    if len(interfaces) < 2 or len(known) != len(interfaces):
        return
    shared = frozenset.intersection(*known)
    if any(_all_with_itself(members, group) for group in shared):
        return
    group = best_group(lookup, shared or known[0])
    rules = lookup.group_rules(frozenset([group]))
    if rules.gaps:
        return
    permission = f"'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={group}}}]'"
    missing = [
        way
        for way, own in (("ingress", rules.ingress), ("egress", rules.egress))
        if not any(rule.protocol == "-1" and rule.source == group for rule in own)
    ]
    yield finding(
        "efa-self-egress",
        "cluster",
        summary="EFA interfaces need all protocols in and out with their group; "
        f"{group_named(lookup, group)} lacks {' and '.join(missing) or 'a group that all of them share'}",
        evidence=[str(rule) for rule in (*rules.ingress, *rules.egress)],
        commands=tuple(
            f"aws ec2 authorize-security-group-{way} --group-id {group} --ip-permissions {permission}"
            for way in missing
        ),
    )


def _all_with_itself(members: Members, group: str) -> bool:
    rules = members.lookup.group_rules(frozenset([group]))
    return all(
        any(rule.protocol == "-1" and rule.source == group for rule in own)
        for own in (rules.ingress, rules.egress)
    )


def _second_interfaces(members: Members) -> Iterator[Finding]:
    for member in members.reach.members:
        by_subnet: Dict[str, List[Interface]] = {}
        for item in members.lookup.interfaces(member):
            if item.address:
                by_subnet.setdefault(item.subnet_id, []).append(item)
        for subnet_id, same in by_subnet.items():
            if len(same) < 2:
                continue
            shown = ", ".join(f"{item.id} ({item.address})" for item in same)
            yield finding(
                "asymmetric-interfaces",
                f"node:{members.ranks[member]}",
                summary=f"{member} has {len(same)} interfaces in {subnet_id}; without routes by source "
                "address, replies leave by the other one and are dropped",
                evidence=[shown],
                fields={"address": same[0].address},
            )


def _public_addresses(members: Members) -> Iterator[Finding]:
    """Rules that name members' public addresses match nothing between members."""
    lookup = members.lookup
    public: Set[str] = set()
    groups: Set[str] = set()
    for member in members.reach.members:
        for item in lookup.interfaces(member):
            public.update(item.public_addresses)
            groups.update(item.group_ids or ())
    if not public or members.reach.holds is not False:
        return
    rules = lookup.group_rules(frozenset(groups))
    evidence = []
    for rule in rules.ingress:
        if rule.kind is not SourceKind.CIDR or rule.network is None or rule.network.prefixlen == 0:
            continue
        held = [text for text in sorted(public) if contains(rule.network, parse_address(text))]
        if held:
            evidence.append(f"{rule} holds the public address {held[0]} of a member")
    if evidence:
        yield finding(
            "public-address",
            "cluster",
            summary="rules name members' public addresses, but members use their private ones",
            evidence=evidence,
            remediation="Name the security group itself as the source, and use private addresses.",
            commands=(),
        )
