"""Finds members whose interface does not carry the group through which the others mesh."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Sequence, Set, Tuple

from cluster.flows import Place, Reachability
from cluster.lookup import Lookup
from cluster.path import PathRules
from cluster.ports import PortSet
from cluster.rules import SourceKind
from diagnosis.causes import finding
from diagnosis.report import Finding
from diagnosis.static_fixes import group_named
from diagnosis.static_members import Blame, Members, pair_lines


def lacking_classes(members: Members) -> Dict[int, str]:
    """Classes that lack the group which the others mesh through, with that group.

    A group is the cluster's when most members carry it, or when the others carry the VPC's
    default group only. A class lacks it when giving it the group would make its flows with
    the carriers as good as those among the carriers, and when no rule of either side names
    a group of the other for the mesh's ports: then the groups are roles, and a rule is missing instead.
    """
    lookup, reach = members.lookup, members.reach
    sizes: Dict[str, int] = {}
    for number, place in enumerate(reach.places):
        for group in (place.groups or ()) if isinstance(place, Place) else ():
            sizes[group] = sizes.get(group, 0) + len(reach.classes[number])
    found: Dict[int, str] = {}
    for group in sorted(sizes, key=lambda name: (-sizes[name], name)):
        carriers, others = _split(reach, group)
        if not others or not carriers:
            continue
        outside = sum(len(reach.classes[number]) for number in others)
        default_only = all(_default_only(lookup, members.place(number)) for number in others)
        is_default = _is_default(lookup, group)
        if not (sizes[group] > outside or (default_only and not is_default)):
            continue
        rules = PathRules(lookup, reach.need, members.source)
        for number in others:
            if number not in found and _would_help(members, rules, number, group, carriers):
                found[number] = group
    return found


def _split(reach: Reachability, group: str) -> Tuple[List[int], List[int]]:
    carriers: List[int] = []
    others: List[int] = []
    for number, place in enumerate(reach.places):
        if isinstance(place, Place) and place.groups is not None:
            (carriers if group in place.groups else others).append(number)
    return carriers, others


def _is_default(lookup: Lookup, group_id: str) -> bool:
    group = lookup.snapshot.security_groups.get(group_id)
    return group is not None and group.name == "default"


def _default_only(lookup: Lookup, place: Place) -> bool:
    return all(_is_default(lookup, group) for group in place.groups or ())


def _named_groups(members: Members, groups: FrozenSet[str]) -> Set[str]:
    """The groups that rules of these groups name for a port that the mesh needs."""
    rules = members.lookup.group_rules(groups)
    return {
        rule.source
        for rule in (*rules.ingress, *rules.egress)
        if rule.kind is SourceKind.GROUP and rule.ports("tcp").intersection(members.reach.need)
    }


def _would_help(members: Members, rules: PathRules, number: int, group: str, carriers: Sequence[int]) -> bool:
    place = members.place(number)
    own = place.groups or frozenset()
    given = Place(
        groups=own | {group},
        subnet_id=place.subnet_id,
        vpc_id=place.vpc_id,
        address=place.address,
        signature=place.signature,
    )
    worse = False
    for carrier in carriers:
        peer = members.place(carrier)
        theirs = peer.groups or frozenset()
        names_them = _named_groups(members, own - theirs) & (theirs - own)
        named_by_them = _named_groups(members, theirs) & (own - theirs)
        if names_them or named_by_them:
            return False
        among = _group_blocked(rules, peer, peer)
        for now, then in (
            ((place, peer), (given, peer)),
            ((peer, place), (peer, given)),
        ):
            if _group_blocked(rules, *then).difference(among):
                return False
            worse = worse or bool(_group_blocked(rules, *now).difference(among))
    return worse


def _group_blocked(rules: PathRules, source: Place, target: Place) -> PortSet:
    """Ports that the security groups alone do not surely let through."""
    stages = rules.group_stages(source, target)
    return PortSet.of(run for stage in stages for run in (*stage.blocked, *stage.unknown))


def missing_findings(number: int, group: str, blame: Blame, members: Members) -> List[Finding]:
    """One finding for each node of a class that lacks the group."""
    found = []
    for member in members.reach.classes[number]:
        interface = members.lookup.primary(member)
        if interface is None:
            continue
        groups = " ".join(dict.fromkeys((*(interface.group_ids or ()), group)))
        carried = ", ".join(interface.group_ids or ()) or "none"
        name = group_named(members.lookup, group)
        found.append(
            finding(
                "sg-missing-on-node",
                f"node:{members.ranks[member]}",
                summary=f"{member}'s interface {interface.id} does not carry security group {name}, through "
                f"which the other members reach each other: {blame.ports} blocked, silent drop",
                evidence=[f"{interface.id} of {member} carries {carried}", *pair_lines(blame, members)],
                remediation=f"Add security group {group} to interface {interface.id}.",
                commands=(
                    f"aws ec2 modify-network-interface-attribute --network-interface-id {interface.id} "
                    f"--groups {groups}",
                ),
            )
        )
    return found
