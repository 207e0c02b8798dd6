"""Silent drops that no rule explains, by where they lie."""

from __future__ import annotations

from typing import List, Optional, Set, Tuple

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.drops import ask_hosts, ask_rules, flow_order, host_drops
from diagnosis.firewall.ruleset import Does
from diagnosis.matrix import Flow, Pair
from diagnosis.opinion import NOTHING, Opinion, total
from diagnosis.patterns import FEW_PAIRS, Isolated, Pattern, Side, find
from diagnosis.report import Finding, PortKind


def judge_places(case: Case, left: Set[Flow], working: Set[Flow]) -> Opinion:
    """Name `left` by its pattern; pairs that are explained already do not count against it."""
    return _Places(case, left).judge(working)


class _Places:
    def __init__(self, case: Case, left: Set[Flow]) -> None:
        self._case = case
        self._walls = case.firewalls
        self._left = left

    def judge(self, working: Set[Flow]) -> Opinion:
        if not self._left:
            return NOTHING
        tried = {flow.pair for flow in (*self._left, *working)}
        pattern = find({flow.pair for flow in self._left}, tried)
        opinions = [self._whole()] if pattern.whole else []
        opinions += [self._isolated(item) for item in pattern.isolated]
        if pattern.across:
            opinions.append(self._halves(pattern))
        opinions += self._single_pairs(set(pattern.rest))
        return total(opinions)

    def _whole(self) -> Opinion:
        case, flows = self._case, set(self._left)
        allowed = all(case.rules_block(flow) is False for flow in flows)
        evidence = case.evidence(flows)
        if allowed:
            return ask_hosts(case, self._host_options(flows, "cluster"), flows, evidence)
        options = [("sg-no-self-ingress", "cluster"), ("sg-no-self-egress", "cluster")]
        if {flow.kind for flow in flows} == {PortKind.MASTER}:
            options = [("sg-ports-too-narrow", "cluster")]
        if not all(self._walls.clear(flow) for flow in flows):
            options.append(("os-firewall-drop", "cluster"))
        options += [("nacl-deny", "cluster"), ("route-missing", "cluster")]
        return ask_rules(case, options, flows, evidence)

    def _isolated(self, item: Isolated) -> Opinion:
        case, node = self._case, item.node
        flows = {flow for flow in self._left if flow.pair in item.pairs}
        subject = case.subject(node)
        clear = all(node not in self._walls.suspects(flow, Does.DROP) for flow in flows)
        if all(case.rules_block(flow) is False for flow in flows):
            if not clear and all(self._walls.rules(flow, node) for flow in flows):
                return Opinion(causes=(host_drops(case, sorted(flows, key=flow_order), node, ()),))
            options = self._host_options(flows, subject, drops=not clear)
            return ask_hosts(case, options, flows, case.evidence(flows), node)
        options = {
            Side.BOTH: [
                ("sg-missing-on-node", subject),
                ("os-firewall-drop", subject),
                ("nacl-deny", subject),
            ],
            Side.IN: [("os-firewall-drop", subject), ("sg-no-self-ingress", subject)],
            Side.OUT: [("sg-no-self-egress", subject), ("os-firewall-drop", subject)],
        }[item.side]
        options = [option for option in options if option[0] != "os-firewall-drop" or not clear]
        if case.members[node].report is None:
            options.insert(0, ("peer-died", subject))
        if clear or case.members[node].report is None:
            return ask_rules(case, options, flows, case.evidence(flows), node)
        return ask_hosts(case, options, flows, case.evidence(flows), node)

    def _host_options(
        self, flows: Set[Flow], subject: str, *, drops: Optional[bool] = None
    ) -> List[Tuple[str, str]]:
        """What is left where the account's rules allow it: the hosts' firewalls first, where they may."""
        if drops is None:
            drops = not all(self._walls.clear(flow) for flow in flows)
        ids = ["os-firewall-drop"] if drops else []
        ids += ["route-missing", "asymmetric-interfaces", "address-overlap", "conntrack-exhausted"]
        return [(cause_id, subject) for cause_id in ids]

    def _halves(self, pattern: Pattern) -> Opinion:
        case = self._case
        flows = {flow for flow in self._left if flow.pair in pattern.across}
        parts = " | ".join(
            ",".join(str(case.members[place].rank) for place in sorted(part)) for part in pattern.halves
        )
        evidence = [f"ranks {parts}: pairs within work, pairs across do not", *case.evidence(flows)]
        options = [("nacl-deny", "cluster"), ("route-missing", "cluster")]
        if all(case.rules_block(flow) is False for flow in flows):
            return ask_hosts(case, self._host_options(flows, "cluster"), flows, evidence)
        return ask_rules(case, options, flows, evidence)

    def _single_pairs(self, pairs: Set[Pair]) -> List[Opinion]:
        """Named as what they are: the other pairs of both nodes work."""
        if len(pairs) > max(2 * len(self._case.members), FEW_PAIRS):
            return [self._many(pairs)]
        opinions = []
        for pair in sorted(pairs):
            back = (pair[1], pair[0])
            if back in pairs and back < pair:
                continue
            both = back in pairs
            if not both and not self._case.matrix.pair_works(back):
                opinions.append(self._half_seen(pair))
                continue
            flows = {flow for flow in self._left if flow.pair == pair or (both and flow.pair == back)}
            opinions.append(self._pair(pair, flows, both=both))
        return opinions

    def _many(self, pairs: Set[Pair]) -> Opinion:
        """Broken pairs all over the place: no rule by node or subnet does that."""
        flows = {flow for flow in self._left if flow.pair in pairs}
        options = [("conntrack-exhausted", "cluster"), ("packet-loss", "cluster")]
        if not all(self._walls.clear(flow) for flow in flows):
            options.insert(0, ("os-firewall-drop", "cluster"))
        return ask_hosts(self._case, options, flows, self._case.evidence(flows))

    def _half_seen(self, pair: Pair) -> Opinion:
        """One direction dies; the other was not tried, or dies for a cause of its own."""
        case = self._case
        flows = {flow for flow in self._left if flow.pair == pair}
        subject = case.pair_subject(pair)
        options = [("pair-blocked", subject), ("one-way-block", subject)]
        options.append(("os-firewall-drop", case.subject(pair[1])))
        return ask_hosts(case, options, flows, case.evidence(flows), pair[1])

    def _pair(self, pair: Pair, flows: Set[Flow], *, both: bool) -> Opinion:
        """What it is called, unless a ruleset of the two hosts may be it and was not read."""
        case = self._case
        unread = [
            place
            for place in (pair[1], pair[0])
            if any(
                place in self._walls.suspects(flow, Does.DROP) and not self._walls.rules(flow, place)
                for flow in flows
            )
        ]
        if not unread:
            return Opinion(causes=(self._pair_cause(pair, flows, both),))
        options = [("os-firewall-drop", case.subject(place)) for place in unread]
        options.append(("pair-blocked" if both else "one-way-block", case.pair_subject(pair)))
        return ask_hosts(case, options, flows, case.evidence(flows), unread[0])

    def _pair_cause(self, pair: Pair, flows: Set[Flow], both: bool) -> Finding:
        case = self._case
        evidence = list(case.evidence(flows))
        if all(case.rules_block(flow) is False for flow in flows):
            evidence.append("the account's security groups, network ACLs and routes allow these flows")
        a, b = case.name(pair[0]), case.name(pair[1])
        if both:
            evidence.append("every other pair of both nodes works, or has a cause of its own")
            words = f"{a} and {b} cannot reach each other on {case.ports(flows)} (silent drop)"
        else:
            evidence.append(f"{case.pair_subject((pair[1], pair[0]))}: the other direction works")
            words = f"{a} cannot reach {b} on {case.ports(flows)} (silent drop); the other direction works"
        return finding(
            "pair-blocked" if both else "one-way-block",
            case.pair_subject(pair),
            summary=words,
            evidence=evidence,
            fields=case.fields(pair[0], pair[1]),
            at_s=case.at_s(flows),
        )
