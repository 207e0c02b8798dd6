"""Names the causes that stop a mesh by its rules: which cause, at whom, and the exact fix.

Works on classes of equal members, never on pairs, so a thousand nodes cost no more than
their rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from cluster.flows import Gap, Obstacle, Place, Reachability, Reason
from cluster.lookup import Lookup
from cluster.path import PathRules
from cluster.ports import PortRange, PortSet
from cluster.rules import SecurityGroupRule, SourceKind, contains
from diagnosis.causes import ORDER, finding
from diagnosis.report import Finding
from diagnosis.static_fixes import acl_commands, allow_command, best_group, group_named, route_commands

PAIRS_SHOWN = 6
"""Pairs listed in the evidence; the report holds them all."""

GROUP_REASONS = (Reason.NO_EGRESS_RULE, Reason.NO_INGRESS_RULE)
ROUTE_REASONS = (Reason.NO_ROUTE, Reason.NO_RETURN_ROUTE)

ClassPair = Tuple[int, int]


@dataclass(frozen=True)
class Members:
    """The members under judgement, with what was worked out about them."""

    lookup: Lookup
    reach: Reachability
    ranks: Mapping[str, int]
    master_port: int
    source: PortSet

    @property
    def pair_count(self) -> int:
        return len(self.ranks) * (len(self.ranks) - 1)

    def pairs_of(self, pair: ClassPair) -> int:
        """Ordered pairs of members in a pair of classes."""
        a, b = (len(self.reach.classes[i]) for i in pair)
        return a * (a - 1) if pair[0] == pair[1] else a * b

    def place(self, number: int) -> Place:
        """How rules see a class that takes part in a blocked flow."""
        place = self.reach.places[number]
        if isinstance(place, Gap):
            raise TypeError(f"class {number} has no place: {place}")
        return place


@dataclass
class _Blame:
    """One cause in the making: the class pairs it stops, and what decides."""

    cause_id: str
    pairs: Dict[ClassPair, PortSet] = field(default_factory=dict)
    obstacles: Dict[Obstacle, None] = field(default_factory=dict)

    def add(self, pair: ClassPair, obstacle: Obstacle) -> None:
        self.pairs[pair] = self.pairs.get(pair, PortSet()).union(obstacle.ports)
        self.obstacles[obstacle] = None

    @property
    def ports(self) -> PortSet:
        return PortSet.of(run for ports in self.pairs.values() for run in ports)


def name_causes(members: Members) -> Tuple[Finding, ...]:
    """The causes of every certainly blocked pair, the one that stops most pairs first."""
    lacking = _lacking_classes(members)
    blames: Dict[Tuple[str, ...], _Blame] = {}
    missing: Dict[int, _Blame] = {}
    for pair, flow in members.reach.flows.items():
        for obstacle in flow.obstacles:
            odd = [number for number in pair if number in lacking]
            if obstacle.reason in GROUP_REASONS and odd and pair[0] != pair[1]:
                missing.setdefault(odd[0], _Blame("sg-missing-on-node")).add(pair, obstacle)
                continue
            key = (_cause_of(obstacle, members), *_decider(obstacle, pair, members))
            blames.setdefault(key, _Blame(key[0])).add(pair, obstacle)
    found: List[Tuple[int, int, Finding]] = []
    for key, blame in blames.items():
        weight = sum(map(members.pairs_of, blame.pairs))
        found.append((-weight, ORDER[blame.cause_id], _finding(blame, key[1:], members)))
    for number, blame in missing.items():
        weight = sum(map(members.pairs_of, blame.pairs))
        for each in _missing_findings(number, lacking[number], blame, members):
            found.append((-weight, ORDER[blame.cause_id], each))
    return tuple(item for _, _, item in sorted(found, key=lambda entry: entry[:2]))


def _cause_of(obstacle: Obstacle, members: Members) -> str:
    if obstacle.reason in ROUTE_REASONS:
        return "route-missing"
    if obstacle.reason not in GROUP_REASONS:
        return "nacl-deny"
    passing = members.reach.need.difference(obstacle.ports)
    if passing == PortSet((PortRange(members.master_port, members.master_port),)):
        return "sg-only-master-port"
    if passing:
        return "sg-ports-too-narrow"
    return "sg-no-self-ingress" if obstacle.reason is Reason.NO_INGRESS_RULE else "sg-no-self-egress"


def _decider(obstacle: Obstacle, pair: ClassPair, members: Members) -> Tuple[str, ...]:
    """What has to change: one ACL or route table, or a group with the group to let in or out."""
    if obstacle.reason not in GROUP_REASONS:
        return obstacle.resources
    source, target = members.place(pair[0]), members.place(pair[1])
    egress = obstacle.reason is Reason.NO_EGRESS_RULE
    own, far = (source, target) if egress else (target, source)
    shared = (own.groups or frozenset()) & (far.groups or frozenset())
    group = best_group(members.lookup, shared or own.groups or ())
    peer = group if shared else best_group(members.lookup, far.groups or ())
    return ("out" if egress else "in", group, peer)


def _subject(pairs: Iterable[ClassPair], members: Members) -> str:
    """`pair:S>D` for one pair, `node:R` when one node has part in all, else `cluster`."""
    sources: Set[str] = set()
    targets: Set[str] = set()
    count = 0
    for pair in pairs:
        sources.update(members.reach.classes[pair[0]])
        targets.update(members.reach.classes[pair[1]])
        count += members.pairs_of(pair)
    if count == 1:
        return f"pair:{members.ranks[min(sources)]}>{members.ranks[min(targets)]}"
    if len(members.ranks) > 2:
        if len(sources) == 1 or len(targets) == 1:
            return f"node:{members.ranks[min(sources if len(sources) == 1 else targets)]}"
        common = _common_member(pairs, members)
        if common is not None:
            return f"node:{members.ranks[common]}"
    return "cluster"


def _common_member(pairs: Iterable[ClassPair], members: Members) -> Optional[str]:
    """The member that has part in every pair, when there is just one such."""
    common: Optional[Set[int]] = None
    for pair in pairs:
        common = set(pair) if common is None else common & set(pair)
    alone = [number for number in common or () if len(members.reach.classes[number]) == 1]
    return members.reach.classes[alone[0]][0] if len(alone) == 1 else None


def _extent(pairs: Sequence[ClassPair], members: Members) -> str:
    count = sum(map(members.pairs_of, pairs))
    return f"{count} of {members.pair_count} pairs, silent drop"


def _pair_lines(blame: _Blame, members: Members) -> List[str]:
    """The first blocked pairs by rank and address, with their ports."""
    lines: List[str] = []
    for pair, ports in sorted(blame.pairs.items()):
        for source in members.reach.classes[pair[0]]:
            for target in members.reach.classes[pair[1]]:
                if source == target:
                    continue
                if len(lines) == PAIRS_SHOWN:
                    return [*lines, "and more pairs like these"]
                ends = f"{members.ranks[source]}>{members.ranks[target]}"
                lines.append(f"pair {ends} ({source} to {target}): {ports} blocked")
    return lines


def _finding(blame: _Blame, decider: Tuple[str, ...], members: Members) -> Finding:
    pairs = list(blame.pairs)
    subject = _subject(pairs, members)
    said = [obstacle.detail for obstacle in blame.obstacles]
    evidence = [*dict.fromkeys(said), *_pair_lines(blame, members)]
    extent = _extent(pairs, members)
    if blame.cause_id == "nacl-deny":
        return finding(
            blame.cause_id,
            subject,
            summary=f"network ACL {decider[0]} drops tcp {blame.ports} between subnets ({extent})",
            evidence=evidence,
            commands=acl_commands(members.lookup, decider[0], _acl_peers(blame, members), members.reach.need),
        )
    if blame.cause_id == "route-missing":
        places = [(members.place(a), members.place(b)) for a, b in pairs]
        return finding(
            blame.cause_id,
            subject,
            summary=f"route table {decider[0]} does not lead to other members ({extent}): {said[0]}",
            evidence=evidence,
            commands=route_commands(members.lookup, decider[0], places),
        )
    return _group_finding(blame, decider, members, subject, evidence)


def _group_finding(
    blame: _Blame, decider: Tuple[str, ...], members: Members, subject: str, evidence: List[str]
) -> Finding:
    way, group, peer = decider
    egress = way == "out"
    extent = _extent(list(blame.pairs), members)
    own = f"security group {group_named(members.lookup, group)}"
    where = "itself" if group == peer else group_named(members.lookup, peer)
    wish = f"all TCP {'to' if egress else 'from'} {where}"
    missing = f'{own} lacks "{wish}"'
    all_pairs = sum(map(members.pairs_of, blame.pairs)) == members.pair_count
    who, whom = ("members", "each other") if all_pairs else ("some members", "some others")
    summaries = {
        "sg-only-master-port": f"members reach each other on {members.master_port} but not on ports "
        f"{blame.ports} ({extent}); {missing}",
        "sg-ports-too-narrow": f"members reach each other on "
        f"{members.reach.need.difference(blame.ports) or 'some ports'} but not on {blame.ports} ({extent}); "
        f"{missing}",
        "sg-no-self-ingress": f"no rule lets {who} in from {whom} ({extent}); {missing}",
        "sg-no-self-egress": f"no rule lets {who} out to {whom} ({extent}); {missing}",
    }
    rules = members.lookup.group_rules(frozenset([group])).direction(egress)
    shown = [_rule_line(rule) for rule in rules] or [
        f"{group} has no {'outbound' if egress else 'inbound'} rule"
    ]
    return finding(
        blame.cause_id,
        subject,
        summary=summaries[blame.cause_id],
        evidence=[*shown, *_missed_addresses(blame, rules, members, egress), *evidence],
        remediation=f'Add the {"outbound " if egress else ""}rule "{wish}" to security group {group}.',
        commands=(allow_command(group, peer, egress),),
    )


def _rule_line(rule: SecurityGroupRule) -> str:
    return f"{rule.rule_id}: {rule}" if rule.rule_id else str(rule)


def _missed_addresses(
    blame: _Blame, rules: Sequence[SecurityGroupRule], members: Members, egress: bool
) -> List[str]:
    """Which far member's address the CIDR rules do not hold, one a class."""
    networks = [rule.network for rule in rules if rule.kind is SourceKind.CIDR and rule.network is not None]
    far = {pair[1] if egress else pair[0] for pair in blame.pairs}
    lines = []
    for number in sorted(far) if networks else ():
        address = members.place(number).address
        if not any(contains(network, address) for network in networks):
            lines.append(f"no such range holds {address} of {members.reach.classes[number][0]}")
    return lines[:PAIRS_SHOWN]


def _acl_peers(blame: _Blame, members: Members) -> List[Tuple[Obstacle, Place]]:
    """Each obstacle of the ACL with the far end that it shuts out."""
    found: Dict[Tuple[Obstacle, str], Place] = {}
    for pair in blame.pairs:
        for obstacle in members.reach.flows[pair].obstacles:
            if obstacle not in blame.obstacles:
                continue
            far_is_target = obstacle.reason in (Reason.ACL_EGRESS, Reason.ACL_REPLY_INGRESS)
            place = members.place(pair[1] if far_is_target else pair[0])
            found.setdefault((obstacle, place.subnet_id), place)
    return [(obstacle, place) for (obstacle, _), place in found.items()]


def _lacking_classes(members: Members) -> Dict[int, str]:
    """Classes that lack the group which the others mesh through, with that group.

    A group is the cluster's when most members carry it, or when the others carry the VPC's
    default group only. A class lacks it when giving it the group would make its flows with
    the carriers as good as those among the carriers, and when no rule of either side names
    a group of the other: then the groups are roles, and a rule is missing instead.
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


def _named_groups(lookup: Lookup, groups: FrozenSet[str]) -> Set[str]:
    rules = lookup.group_rules(groups)
    return {rule.source for rule in (*rules.ingress, *rules.egress) if rule.kind is SourceKind.GROUP}


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
        names_them = _named_groups(members.lookup, own - theirs) & (theirs - own)
        named_by_them = _named_groups(members.lookup, theirs) & (own - theirs)
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


def _missing_findings(number: int, group: str, blame: _Blame, members: Members) -> List[Finding]:
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
                evidence=[f"{interface.id} of {member} carries {carried}", *_pair_lines(blame, members)],
                remediation=f"Add security group {group} to interface {interface.id}.",
                commands=(
                    f"aws ec2 modify-network-interface-attribute --network-interface-id {interface.id} "
                    f"--groups {groups}",
                ),
            )
        )
    return found
