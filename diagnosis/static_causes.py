"""Names the causes that stop a mesh by its rules: which cause, at whom, and the exact fix.

Works on classes of equal members, never on pairs, so a thousand nodes cost no more than
their rules.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from cluster.flows import Obstacle, Place, Reason
from cluster.rules import SecurityGroupRule, contains
from diagnosis.causes import ORDER, finding
from diagnosis.report import Finding
from diagnosis.static_blames import GROUP_REASONS, RULES_LISTED, GroupBlames, cause_of
from diagnosis.static_fixes import acl_commands, allow_command, group_named, route_commands
from diagnosis.static_members import PAIRS_SHOWN, Blame, ClassPair, Members, pair_lines
from diagnosis.static_missing import lacking_classes, missing_findings


def name_causes(members: Members) -> Tuple[Finding, ...]:
    """The causes of every certainly blocked pair, what stops most pairs and ports first."""
    lacking = lacking_classes(members)
    blames: Dict[Tuple[str, ...], Blame] = {}
    by_groups = GroupBlames(members)
    missing: Dict[int, Blame] = {}
    for flow, pairs in members.reach.flows.by_flow():
        odd, others = _apart(pairs, lacking)
        for obstacle in flow.obstacles:
            if obstacle.reason not in GROUP_REASONS:
                key = (cause_of(obstacle, members), *obstacle.resources)
                blames.setdefault(key, Blame(key[0])).add(pairs, obstacle)
                continue
            by_groups.add(others, obstacle)
            for number, pair in odd:
                missing.setdefault(number, Blame("sg-missing-on-node")).add([pair], obstacle)
    blames.update(by_groups.blames)
    for blame in (*blames.values(), *missing.values()):
        blame.weigh(members)
    found: List[Tuple[Tuple[int, ...], Finding]] = []
    for key, blame in blames.items():
        for subject in _subjects(blame, members):
            found.append((_weight(blame), _finding(blame, key[1:], members, subject)))
    for number, blame in missing.items():
        for each in missing_findings(number, lacking[number], blame, members):
            found.append((_weight(blame), each))
    return tuple(item for _, item in sorted(found, key=lambda entry: entry[0]))


def _apart(
    pairs: Sequence[ClassPair], lacking: Mapping[int, str]
) -> Tuple[List[Tuple[int, ClassPair]], Sequence[ClassPair]]:
    """The pairs with a class that lacks the cluster's group, with that class, and the other pairs."""
    if not lacking:
        return [], pairs
    odd = [
        (pair[0] if pair[0] in lacking else pair[1], pair)
        for pair in pairs
        if not lacking.keys().isdisjoint(pair)
    ]
    return odd, [pair for pair in pairs if lacking.keys().isdisjoint(pair)]


def _weight(blame: Blame) -> Tuple[int, ...]:
    """Sorts what stops more pairs, then more ports, to the front."""
    return (-blame.weight, -sum(map(len, blame.ports)), ORDER[blame.cause_id])


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
        common = set(pair) if common is None else common.intersection(pair)
        if not common:
            break
    return {number for number in common or () if len(members.reach.classes[number]) == 1}


def _extent(blame: Blame, members: Members) -> str:
    return f"{blame.weight} of {members.pair_count} pairs, silent drop"


def _finding(blame: Blame, decider: Tuple[str, ...], members: Members, subject: str) -> Finding:
    pairs = list(blame.pairs)
    said = _said(blame, members)
    evidence = [*said, *pair_lines(blame, members)]
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
        nets = {(members.place(a).net, members.place(b).net): (a, b) for a, b in reversed(pairs)}
        places = [(members.place(a), members.place(b)) for a, b in nets.values()]
        return finding(
            blame.cause_id,
            subject,
            summary=f"route table {decider[0]} does not lead to other members ({extent}): {said[0]}",
            evidence=evidence,
            commands=route_commands(members.lookup, decider[0], places),
        )
    return _group_finding(blame, decider, members, subject, evidence)


def _said(blame: Blame, members: Members) -> List[str]:
    """The first explanations, each once."""
    found: Dict[str, None] = {}
    for obstacle, pairs in blame.stopped.items():
        found[members.reach.explain(obstacle, *pairs[0])] = None
        if len(found) == PAIRS_SHOWN:
            break
    return list(found)


def _group_finding(
    blame: Blame, decider: Tuple[str, ...], members: Members, subject: str, evidence: List[str]
) -> Finding:
    if len(decider) == 1:
        return _many_groups_finding(blame, decider[0], members, subject, evidence)
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


def _many_groups_finding(
    blame: Blame, way: str, members: Members, subject: str, evidence: List[str]
) -> Finding:
    """Too many groups lack rules for each other to name each rule: one group for all mends it."""
    egress = way == "out"
    own = {members.place(pair[0 if egress else 1]).groups for pair in blame.pairs}
    count = len({group for groups in own for group in groups or ()})
    return finding(
        blame.cause_id,
        subject,
        summary=f"{count} security groups of members lack more than {RULES_LISTED} "
        f"{'outbound' if egress else 'inbound'} rules for each other: {blame.ports} blocked "
        f"({_extent(blame, members)})",
        evidence=evidence,
        remediation="Give every member one security group that allows all TCP from itself and to itself.",
        commands=(),
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
    for obstacle, pairs in blame.stopped.items():
        end = 1 if obstacle.reason in (Reason.ACL_EGRESS, Reason.ACL_REPLY_INGRESS) else 0
        for number in dict.fromkeys([pair[end] for pair in pairs]):
            place = members.place(number)
            found.setdefault((obstacle, place.subnet_id), place)
    return [(obstacle, place) for (obstacle, _), place in found.items()]
