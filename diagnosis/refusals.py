"""Connections that are refused, or answered with "no route to host", by a target that listened.

A security group never does that. A host's firewall does; so does a kernel whose process is gone,
a redirect into a proxy that is not there, and (for "no route to host") a host that is not on the
link. A firewall is named for certain where its ruleset was read and rejects, or where nothing else
is left: the target's own row shows that it listened before and after, and another of its ports
served the very source that was refused.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.drops import count, flow_order, mending, over_loopback
from diagnosis.firewall.ruleset import Does, unique
from diagnosis.matrix import Flow
from diagnosis.opinion import Opinion, undetermined
from diagnosis.paths import told_by_paths
from diagnosis.peers import ask_each_target, ask_gone, listener_may_be_gone
from diagnosis.report import ConnectOutcome, Finding


def judge_refusals(case: Case) -> Opinion:
    """Causes and candidates of every refusal by a proven listener's host."""
    return _Refusals(case).judge()


class _Refusals:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._walls = case.firewalls
        self._flows = (
            case.matrix.with_outcome(ConnectOutcome.REFUSED, ConnectOutcome.UNREACHABLE)
            - case.matrix.without_route()
            - told_by_paths(case)
        )
        self._refused_by = _ends(self._flows, 1)
        self._refused_to = _ends(self._flows, 0)
        self._tried_by = _ends(case.matrix.probes, 1) if self._flows else {}
        self._tried_to = _ends(case.matrix.probes, 0) if self._flows else {}

    def judge(self) -> Opinion:
        at: Dict[int, List[Flow]] = {}
        gone: Set[Flow] = set()
        unclear: Set[Flow] = set()
        for flow in sorted(self._flows, key=flow_order):
            stopped = self._walls.stops(flow, Does.REJECT, Does.DROP)
            place = stopped[0] if stopped is not None else None
            if place is None and listener_may_be_gone(self._case, flow):
                gone.add(flow)
                continue
            if place is None:
                place = self._left_by_elimination(flow)
            if place is None:
                unclear.add(flow)
            else:
                at.setdefault(place, []).append(flow)
        causes = tuple(self._rejects(at[place], place) for place in sorted(at))
        return Opinion(causes=causes) + ask_each_target(self._case, unclear, self._ask) + self._gone(gone)

    def _gone(self, flows: Set[Flow]) -> Opinion:
        """Refused by a member that sent no row or had finished: its process may have ended."""
        ids = ("peer-died", "os-firewall-reject")
        return ask_gone(self._case, flows, ids, "registered, refuses connections", self._listeners)

    def _listeners(self, place: int) -> str:
        return f"sudo ss -ltnp  # on {self._case.name(place)}"

    # --- what is certain -------------------------------------------------------------------------

    def _left_by_elimination(self, flow: Flow) -> Optional[int]:
        """The member whose firewall it must be, though no ruleset that was read certainly rejects."""
        suspects = self._walls.suspects(flow, Does.REJECT)
        with_rule = {place for place in suspects if self._walls.rules(flow, place)}
        if not suspects or not self._listened_on(flow):
            return None
        if len(suspects) == 1 and (with_rule or self._served_otherwise(flow)):
            return next(iter(suspects))
        return self._by_pattern(flow) if self._served_otherwise(flow) else None

    def _listened_on(self, flow: Flow) -> bool:
        """Whether the target's own row was finished after the probe, so that its process still was there."""
        report = self._case.members[flow.destination].report
        started_at = self._case.matrix.probes[flow].started_at
        if report is None or report.finished_at is None or started_at is None:
            return False
        return report.finished_at > started_at

    def _served_otherwise(self, flow: Flow) -> bool:
        """Whether another port of the target served the same source: host, link and process are there."""
        matrix = self._case.matrix
        return any(matrix.outcome(one) is ConnectOutcome.CONNECTED for one in matrix.by_pair[flow.pair])

    def _by_pattern(self, flow: Flow) -> Optional[int]:
        """Which of two hosts that may be it: the one that everybody's connections break at."""
        source, destination = flow.pair
        if self._all_into(destination) and (not self._all_out_of(source) or self._all_out_of(destination)):
            return destination
        return source if self._all_out_of(source) and not self._all_into(destination) else None

    def _all_into(self, place: int) -> bool:
        sources = self._refused_by.get(place, frozenset())
        return len(sources) > 1 and sources == self._tried_by[place]

    def _all_out_of(self, place: int) -> bool:
        targets = self._refused_to.get(place, frozenset())
        return len(targets) > 1 and targets == self._tried_to[place]

    def _rejects(self, flows: Sequence[Flow], place: int) -> Finding:
        case = self._case
        rules = unique(tuple(stop for flow in flows for stop in self._walls.rules(flow, place)))
        rules = rules[:NAMED_AT_MOST]
        outcomes = sorted({case.matrix.probes[flow].outcome.value.lower() for flow in flows})
        evidence = [*case.evidence(flows)]
        if self._walls.stops_itself(place, flows):
            evidence.append(over_loopback(case, place))
        else:
            evidence.append("the target's listeners were proven over its own address")
            if not rules:
                evidence.append(
                    "its row is later than these probes, and its other ports served the same peers"
                )
        evidence += [f"{case.subject(place)} ruleset: {stop}" for stop in rules]
        if not rules:
            evidence.append(f"{case.subject(place)} ruleset: could not be read")
        return finding(
            "os-firewall-reject",
            case.subject(place),
            summary=f"{case.name(place)} rejects new connections on {case.ports(flows)} "
            f"({count(case, flows)}, {' or '.join(outcomes)} while the target listens)"
            + (f": {rules[0]}" if rules else ""),
            evidence=evidence,
            **mending(case, place, rules),
            at_s=case.at_s(flows),
        )

    # --- what stays open -------------------------------------------------------------------------

    def _ask(self, flows: Set[Flow], subject: str, place: int) -> Opinion:
        case = self._case
        suspects = {one for flow in flows for one in self._walls.suspects(flow, Does.REJECT)}
        outcomes = sorted({case.matrix.probes[flow].outcome.value.lower() for flow in flows})
        whose = "many members" if subject == "cluster" else case.name(place)
        unread = [place] if place in suspects else sorted(suspects)
        evidence = [f"{member.subject} ruleset: could not be read" for member in self._walls.unread(unread)]
        return undetermined(
            self._options(flows, suspects, subject, place),
            why=f"connections to {case.ports(flows)} of {whose} are {' or '.join(outcomes)} "
            f"though the target listened ({count(case, flows)})",
            evidence=[*case.evidence(flows), *evidence[:NAMED_AT_MOST]],
            next_command=self._deciding(flows, unread, place),
            fields=case.fields(place, min(flows, key=flow_order).source),
            at_s=case.at_s(flows),
        )

    def _options(
        self, flows: Set[Flow], suspects: Set[int], subject: str, place: int
    ) -> List[Tuple[str, str]]:
        case = self._case
        if all(self._listened_on(flow) and self._served_otherwise(flow) for flow in flows) and suspects:
            # A host's firewall for certain; which of the two hosts' is open.
            ends = [place, *sorted(suspects - {place})] if place in suspects else sorted(suspects)
            several = [case.subject(end) for end in ends[:NAMED_AT_MOST]]
            return [("os-firewall-reject", one) for one in ([subject] if subject == "cluster" else several)]
        outcomes = {case.matrix.probes[flow].outcome for flow in flows}
        others = [("host-unreachable", subject)] if ConnectOutcome.UNREACHABLE in outcomes else []
        if ConnectOutcome.REFUSED in outcomes:
            target = subject if subject == "cluster" else case.subject(place)
            others += [("peer-died", target), ("proxy-sidecar", subject)]
        rejects = ("os-firewall-reject", subject)
        # Rulesets that were read and let it pass make the firewall the least likely, not impossible.
        return [rejects, *others] if suspects else [*others, rejects]

    def _deciding(self, flows: Set[Flow], unread: Sequence[int], place: int) -> str:
        """The listener and the ruleset side by side; whether the link has the host where it was read."""
        case = self._case
        if unread:
            return f"sudo sh -c 'ss -ltn; nft list ruleset'  # on {case.name(unread[0])}"
        if all(case.matrix.probes[flow].outcome is ConnectOutcome.UNREACHABLE for flow in flows):
            source = min(flows, key=flow_order).source
            return f"ip neigh show {case.members[place].address}  # on {case.name(source)}"
        return self._listeners(place)


def _ends(flows: Iterable[Flow], side: int) -> Dict[int, FrozenSet[int]]:
    """Member -> the other ends of its flows. side: 0 = by source, 1 = by destination."""
    found: Dict[int, Set[int]] = {}
    for flow in flows:
        found.setdefault(flow.pair[side], set()).add(flow.pair[1 - side])
    return {place: frozenset(others) for place, others in found.items()}
