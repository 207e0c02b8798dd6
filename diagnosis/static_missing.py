"""Finds members whose interface does not carry the group through which the others mesh."""

from __future__ import annotations

import dataclasses
from typing import Dict, FrozenSet, List, Sequence, Set, Tuple

from cluster.flows import Place, Reachability, groups_of
from cluster.group_masks import GroupMasks
from cluster.lookup import Lookup
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
    named, masks = _Named(members), _Through(members)
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
        meshing = [number for number in carriers if masks.among(members.place(number))]
        for number in others:
            if number not in found and _would_help(members, masks, named, (number, group), meshing):
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


class _Named:
    """The groups that rules of a group name for a port that the mesh needs."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._by_group: Dict[str, FrozenSet[str]] = {}

    def by(self, groups: FrozenSet[str]) -> Set[str]:
        found: Set[str] = set()
        for group in groups:
            if group not in self._by_group:
                self._by_group[group] = self._read(group)
            found |= self._by_group[group]
        return found

    def _read(self, group: str) -> FrozenSet[str]:
        rules = self._members.lookup.group_rules(frozenset([group]))
        return frozenset(
            rule.source
            for rule in (*rules.ingress, *rules.egress)
            if rule.kind is SourceKind.GROUP and rule.ports("tcp").intersection(self._members.reach.need)
        )


class _Through:
    """What groups alone surely let through from one place to another, as a mask of needed ports."""

    def __init__(self, members: Members) -> None:
        reach = members.reach
        self._groups = GroupMasks(members.lookup, groups_of(reach.places), reach.need, "tcp")

    def between(self, source: Place, target: Place) -> int:
        out, _ = self._groups.allowed(source.groups, True, target)
        into, _ = self._groups.allowed(target.groups, False, source)
        return out & into

    def among(self, place: Place) -> int:
        return self.between(place, place)


def _would_help(
    members: Members,
    through: _Through,
    named: _Named,
    given: Tuple[int, str],
    carriers: Sequence[int],
) -> bool:
    """Whether a class, given the group, would do as well with its carriers as they do among themselves.

    carriers: those that reach each other at all, for which it could be worse off without.
    """
    number, group = given
    place = members.place(number)
    own = place.groups or frozenset()
    then = dataclasses.replace(place, groups=own | {group})
    worse = False
    for carrier in carriers:
        peer = members.place(carrier)
        theirs = peer.groups or frozenset()
        among = through.among(peer)
        if among & ~(through.between(then, peer) & through.between(peer, then)):
            return False
        if named.by(own - theirs) & (theirs - own) or named.by(theirs) & (own - theirs):
            return False
        worse = worse or bool(among & ~(through.between(place, peer) & through.between(peer, place)))
    return worse


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
