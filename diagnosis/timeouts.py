"""New connections that die silently: whose wall it is.

In this order: what the account's rules forbid has the rules' cause; what a host's own
ruleset certainly drops is that host's; the rest is judged by where it lies. Where the rules
allow a flow and it dies, a host with a rule that may fit is named when it is the only one. A
ruleset that nobody could read makes a candidate, never a cause: exhausted connection tracking,
overlapping addresses and a second interface look the same from outside.
"""

from __future__ import annotations

from typing import Dict, List, Set

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.drops import ask_hosts, flow_order, host_drops
from diagnosis.firewall.ruleset import Does, Stop
from diagnosis.master import store_contact
from diagnosis.matrix import Flow, Pair
from diagnosis.opinion import NOTHING, Opinion, total
from diagnosis.paths import told_by_paths
from diagnosis.places import judge_places
from diagnosis.report import ConnectOutcome, PortKind
from diagnosis.rules_say import rules_say


def judge_timeouts(case: Case) -> Opinion:
    """Causes of every silent drop between members."""
    return _Timeouts(case).judge()


class _Timeouts:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._matrix = case.matrix
        self._walls = case.firewalls
        no_way_back = {(flow.destination, flow.source) for flow in case.matrix.without_route()}
        self._left: Set[Flow] = {
            flow
            for flow in case.matrix.with_outcome(ConnectOutcome.TIMED_OUT)
            if flow.pair not in no_way_back
        }
        self._working = case.matrix.with_outcome(ConnectOutcome.CONNECTED)

    def judge(self) -> Opinion:
        if not self._left:
            return NOTHING
        opinions = [self._forbidden_by_rules(), self._dropped_by_hosts()]
        self._left -= told_by_paths(self._case)
        opinions += [self._left_by_elimination(), self._closed_ports()]
        opinions.append(judge_places(self._case, self._left, self._working))
        return total(opinions)

    def _forbidden_by_rules(self) -> Opinion:
        forbidden = {flow for flow in self._left if self._case.rules_block(flow)}
        if not forbidden:
            return NOTHING
        opinion, named = rules_say(self._case, forbidden)
        self._left -= named
        return opinion

    def _dropped_by_hosts(self) -> Opinion:
        """Flows that a host's ruleset certainly drops (or stops one way or another)."""
        at: Dict[int, List[Flow]] = {}
        rules: Dict[int, List[Stop]] = {}
        for flow in sorted(self._left, key=flow_order):
            stopped = self._walls.stops(flow, Does.DROP, Does.REJECT)
            if stopped is not None:
                place, stops = stopped
                at.setdefault(place, []).append(flow)
                rules.setdefault(place, []).extend(stops)
        for flows in at.values():
            self._left -= set(flows)
        return Opinion(causes=tuple(host_drops(self._case, at[p], p, rules[p]) for p in sorted(at)))

    def _left_by_elimination(self) -> Opinion:
        """Flows that AWS's rules allow and of whose two hosts only one has a rule that may drop them."""
        at: Dict[int, List[Flow]] = {}
        for flow in sorted(self._left, key=flow_order):
            if self._case.rules_block(flow) is False:
                suspects = self._walls.suspects(flow, Does.DROP)
                if len(suspects) == 1 and all(self._walls.rules(flow, place) for place in suspects):
                    at.setdefault(next(iter(suspects)), []).append(flow)
        for flows in at.values():
            self._left -= set(flows)
        return Opinion(causes=tuple(host_drops(self._case, at[p], p, ()) for p in sorted(at)))

    def _closed_ports(self) -> Opinion:
        """MASTER_PORT works and Gloo's ports do not: wholly, or outside of one range."""
        case, matrix = self._case, self._matrix
        dead = {flow for flow in self._left if flow.kind is PortKind.EPHEMERAL}
        if not dead or any(case.rules_block(flow) is False for flow in dead):
            return NOTHING
        tried = {flow for flow in (*self._left, *self._working) if flow.kind is PortKind.EPHEMERAL}
        masters = {
            f.pair
            for f in matrix.probes
            if f.kind is PortKind.MASTER and matrix.outcome(f) is ConnectOutcome.CONNECTED
        }
        stores = {} if masters else self._stores()
        reached = {place for pair in (masters or stores) for place in pair}
        if reached != set(range(len(case.members))):
            return NOTHING
        if {f.pair for f in dead} == {f.pair for f in tried} and dead == tried:
            return self._only_master(dead, masters, stores)
        return self._narrow(dead, tried - dead)

    def _stores(self) -> Dict[Pair, int]:
        """Who reaches torchrun's store, which listens on MASTER_PORT in the members' place; its port."""
        places = {member.address: place for place, member in enumerate(self._case.members)}
        found = {}
        for place in range(len(self._case.members)):
            contact = store_contact(self._case, place)
            if contact is not None and contact.outcome is ConnectOutcome.CONNECTED:
                master = places.get(contact.address or "", place)
                if master != place:
                    found[place, master] = contact.port
        return found

    def _only_master(self, dead: Set[Flow], masters: Set[Pair], stores: Dict[Pair, int]) -> Opinion:
        case = self._case
        port = next(iter(stores.values()), case.expectation.master_port)
        pairs = {flow.pair for flow in dead}
        every = len(self._matrix.attempted_pairs())
        whom = "the store" if stores else "each other"
        summary = (
            f"members reach {whom} on {port} but not on ports {case.ephemeral} "
            f"({len(pairs)} of {every} pairs, silent drop); "
            + (
                'security group lacks "all TCP from itself"'
                if case.on_ec2
                else 'what filters between them (on EC2 the security group) lacks "all TCP from itself"'
            )
        )
        reached = (
            f"torchrun's store answers {len(stores)} other members"
            if stores
            else f"echoed on {len(masters)} of {every} pairs"
        )
        evidence = [f"MASTER_PORT {port}: {reached}", *case.evidence(dead)]
        self._left -= dead
        if all(self._walls.clear(flow) for flow in dead):
            evidence.append("every host's own firewall was read and lets these connections pass")
            cause = finding(
                "sg-only-master-port",
                "cluster",
                summary=summary,
                evidence=evidence,
                fields=case.fields(),
                at_s=case.at_s(dead),
            )
            return Opinion(causes=(cause,))
        return ask_hosts(
            case, [("sg-only-master-port", "cluster"), ("os-firewall-drop", "cluster")], dead, evidence
        )

    def _narrow(self, dead: Set[Flow], working: Set[Flow]) -> Opinion:
        """Ports that work lie in one range and dead ones outside of it, on every node alike."""
        case = self._case
        open_ports = {flow.port for flow in working}
        dead_ports = {flow.port for flow in dead}
        if not open_ports or len({flow.destination for flow in dead}) < 2:
            return NOTHING
        first, last = min(open_ports), max(open_ports)
        if any(first <= port <= last for port in dead_ports):
            return NOTHING
        evidence = [f"ports that work: {first}-{last}", *case.evidence(dead)]
        self._left -= dead
        if all(self._walls.clear(flow) for flow in dead):
            pairs = {flow.pair for flow in dead}
            cause = finding(
                "sg-ports-too-narrow",
                "cluster",
                summary=f"ports {first}-{last} work and {case.ports(dead)} do not "
                f"({len(pairs)} of {len(self._matrix.attempted_pairs())} pairs, silent drop); "
                f"the nodes' range is {case.ephemeral}",
                evidence=[*evidence, "every host's own firewall was read and lets these connections pass"],
                fields={**case.fields(), "allowed_first_port": first, "allowed_last_port": last},
                at_s=case.at_s(dead),
            )
            return Opinion(causes=(cause,))
        return ask_hosts(
            case, [("sg-ports-too-narrow", "cluster"), ("os-firewall-drop", "cluster")], dead, evidence
        )
