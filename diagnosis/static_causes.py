"""Names the causes that stop a mesh by its rules: which cause, at whom, and the exact fix.

Works on classes of equal members, never on pairs, so a thousand nodes cost no more than
their rules.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

from cluster.flows import Obstacle, Place, Reason
from cluster.ports import PortRange, PortSet
from cluster.rules import SecurityGroupRule, contains
from diagnosis.causes import ORDER, finding
from diagnosis.report import Finding
from diagnosis.static_fixes import acl_commands, allow_command, best_group, group_named, route_commands
from diagnosis.static_members import PAIRS_SHOWN, Blame, ClassPair, Members, pair_lines
from diagnosis.static_missing import lacking_classes, missing_findings

GROUP_REASONS = (Reason.NO_EGRESS_RULE, Reason.NO_INGRESS_RULE)
ROUTE_REASONS = (Reason.NO_ROUTE, Reason.NO_RETURN_ROUTE)


def name_causes(members: Members) -> Tuple[Finding, ...]:
    """The causes of every certainly blocked pair, what stops most pairs and ports first."""
    lacking = lacking_classes(members)
    blames: Dict[Tuple[str, ...], Blame] = {}
    missing: Dict[int, Blame] = {}
    keys = _Keys(members)
    for pair, flow in members.reach.flows.items():
        for obstacle in flow.obstacles:
            odd = [number for number in pair if number in lacking] if lacking else ()
            if odd and obstacle.reason in GROUP_REASONS:
                missing.setdefault(odd[0], Blame("sg-missing-on-node")).add(pair, obstacle, members)
                continue
            key = keys.of(obstacle, pair)
            blames.setdefault(key, Blame(key[0])).add(pair, obstacle, members)
    found: List[Tuple[Tuple[int, ...], Finding]] = []
    for key, blame in blames.items():
        for subject in _subjects(blame, members):
            found.append((_weight(blame), _finding(blame, key[1:], members, subject)))
    for number, blame in missing.items():
        for each in missing_findings(number, lacking[number], blame, members):
            found.append((_weight(blame), each))
    return tuple(item for _, item in sorted(found, key=lambda entry: entry[0]))


def _weight(blame: Blame) -> Tuple[int, ...]:
    """Sorts what stops more pairs, then more ports, to the front."""
    return (-blame.weight, -sum(map(len, blame.ports)), ORDER[blame.cause_id])


class _Keys:
    """What makes obstacles one cause: its id, and what has to change to be rid of them.

    Remembers its answers: thousands of pairs of classes share a few groups and obstacles.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._causes: Dict[int, str] = {}
        self._groups: Dict[Tuple[Optional[FrozenSet[str]], Optional[FrozenSet[str]]], Tuple[str, str]] = {}

    def of(self, obstacle: Obstacle, pair: ClassPair) -> Tuple[str, ...]:
        """The cause's id, then one ACL or route table, or direction, group and group to let pass."""
        cause_id = self._causes.get(id(obstacle))
        if cause_id is None:
            cause_id = self._causes[id(obstacle)] = _cause_of(obstacle, self._members)
        if obstacle.reason not in GROUP_REASONS:
            return (cause_id, *obstacle.resources)
        egress = obstacle.reason is Reason.NO_EGRESS_RULE
        own, far = (self._members.place(number) for number in (pair if egress else pair[::-1]))
        key = (own.groups, far.groups)
        if key not in self._groups:
            self._groups[key] = self._to_change(own, far)
        return (cause_id, "out" if egress else "in", *self._groups[key])

    def _to_change(self, own: Place, far: Place) -> Tuple[str, str]:
        """The group that needs a rule, and the group which that rule should name."""
        lookup = self._members.lookup
        shared = (own.groups or frozenset()) & (far.groups or frozenset())
        if shared:
            group = best_group(lookup, shared)
            return group, group
        return best_group(lookup, own.groups or ()), best_group(lookup, far.groups or ())


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


def _subjects(blame: Blame, members: Members) -> List[str]:
    """`pair:S>D` for one pair (each direction that is stopped), `node:R` for one node, else `cluster`."""
    common = _in_every_pair(blame.pairs, members)
    one_pair = len(common) == 2 and len(members.ranks) > 2
    if blame.weight == 1 or one_pair:
        return sorted(f"pair:{members.rank(source)}>{members.rank(target)}" for source, target in blame.pairs)
    if len(common) == 1:
        return [f"node:{members.rank(common.pop())}"]
    return ["cluster"]


def _in_every_pair(pairs: Iterable[ClassPair], members: Members) -> Set[int]:
    """The members (classes of one) that have part in every pair."""
    common: Optional[Set[int]] = None
    for pair in pairs:
        common = set(pair) if common is None else common & set(pair)
    return {number for number in common or () if len(members.reach.classes[number]) == 1}


def _extent(blame: Blame, members: Members) -> str:
    return f"{blame.weight} of {members.pair_count} pairs, silent drop"


def _finding(blame: Blame, decider: Tuple[str, ...], members: Members, subject: str) -> Finding:
    pairs = list(blame.pairs)
    said = list(dict.fromkeys(obstacle.detail for obstacle in blame.obstacles))
    evidence = [*said[:PAIRS_SHOWN], *pair_lines(blame, members)]
    extent = _extent(blame, members)
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
    blame: Blame, decider: Tuple[str, ...], members: Members, subject: str, evidence: List[str]
) -> Finding:
    way, group, peer = decider
    egress = way == "out"
    extent = _extent(blame, members)
    own = f"security group {group_named(members.lookup, group)}"
    where = "itself" if group == peer else group_named(members.lookup, peer)
    wish = f"all TCP {'to' if egress else 'from'} {where}"
    missing = f'{own} lacks "{wish}"'
    passing = members.reach.need.difference(blame.ports)
    all_pairs = blame.weight == members.pair_count
    who, whom = ("members", "each other") if all_pairs else ("some members", "some others")
    summaries = {
        "sg-only-master-port": f"members reach each other on {members.master_port} but not on ports "
        f"{blame.ports} ({extent}); {missing}",
        "sg-ports-too-narrow": f"members reach each other on {passing or 'some ports only, each on others'} "
        f"but not on {blame.ports} ({extent}); {missing}",
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
    blame: Blame, rules: Sequence[SecurityGroupRule], members: Members, egress: bool
) -> List[str]:
    """Which far member's address the CIDR rules do not hold, one a class."""
    networks = [network for rule in rules for network in rule.networks or ()]
    far = {pair[1] if egress else pair[0] for pair in blame.pairs}
    lines = []
    for number in sorted(far) if networks else ():
        address = members.place(number).address
        if not any(contains(network, address) for network in networks):
            lines.append(f"no such range holds {address} of {members.reach.classes[number][0]}")
    return lines[:PAIRS_SHOWN]


def _acl_peers(blame: Blame, members: Members) -> List[Tuple[Obstacle, Place]]:
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
