"""Connections that are answered wrongly: refused or unreachable; diagnosis.silence has the accepted ones."""

from __future__ import annotations

from typing import Dict, List, Sequence, Set

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.drops import count, flow_order, over_loopback
from diagnosis.host_firewall import Does
from diagnosis.matrix import Flow
from diagnosis.opinion import NOTHING, Opinion, total, undetermined
from diagnosis.peers import by_place, listener_may_be_gone, probed_late
from diagnosis.report import ConnectOutcome, Finding
from diagnosis.silence import judge_silence


def judge_answers(case: Case) -> Opinion:
    """Causes of every answer that is not an echo, against proven listeners."""
    return total((_refused(case), _unroutable(case), judge_silence(case)))


# --- refused and unreachable -----------------------------------------------------------------


def _refused(case: Case) -> Opinion:
    """Refused or unreachable while the target listens: a host's firewall, never a security group."""
    flows = case.matrix.with_outcome(ConnectOutcome.REFUSED, ConnectOutcome.UNREACHABLE)
    flows = flows - case.matrix.without_route()
    at: Dict[int, List[Flow]] = {}
    unclear: Set[Flow] = set()
    gone: Set[Flow] = set()
    for flow in sorted(flows, key=flow_order):
        stopped = case.firewalls.stops(flow, Does.REJECT, Does.DROP)
        suspects = case.firewalls.suspects(flow, Does.REJECT)
        if stopped is not None:
            at.setdefault(stopped[0], []).append(flow)
        elif listener_may_be_gone(case, flow):
            gone.add(flow)
        elif not suspects or _process_may_be_gone(case, flow):
            unclear.add(flow)
        else:
            at.setdefault(flow.destination if flow.destination in suspects else flow.source, []).append(flow)
    causes = tuple(_rejects(case, at[place], place) for place in sorted(at))
    return Opinion(causes=causes) + _refused_by_nobody(case, unclear) + _gone(case, gone)


def _process_may_be_gone(case: Case, flow: Flow) -> bool:
    """Whether the target may have died after its row: nothing of it answers this source any more."""
    report = case.members[flow.destination].report
    started_at = case.matrix.probes[flow].started_at
    if report is None or report.finished_at is None or started_at is None or started_at <= report.finished_at:
        return False
    same_pair = (case.matrix.outcome(other) for other in case.matrix.by_pair[flow.pair])
    return all(outcome is not ConnectOutcome.CONNECTED for outcome in same_pair)


def _rejects(case: Case, flows: Sequence[Flow], place: int) -> Finding:
    lines = tuple(dict.fromkeys(line for flow in flows for line in case.firewalls.lines(flow, place)))[:4]
    outcomes = sorted({case.matrix.probes[flow].outcome.value.lower() for flow in flows})
    peer = next(f.source if f.source != place else f.destination for f in flows)
    evidence = [*case.evidence(flows)]
    if case.firewalls.stops_itself(place, flows):
        evidence.append(over_loopback(case, place))
    else:
        evidence.append("the target's listeners were proven over its own address")
    evidence += [f"{case.subject(place)} ruleset: {line}" for line in lines]
    if not lines:
        evidence.append(f"{case.subject(place)} ruleset: could not be read")
    return finding(
        "os-firewall-reject",
        case.subject(place),
        summary=f"{case.name(place)} rejects new connections on {case.ports(flows)} "
        f"({count(case, flows)}, {' or '.join(outcomes)} while the target listens)"
        + (f": {lines[0]}" if lines else ""),
        evidence=evidence,
        fields=case.fields(place, peer),
        at_s=case.at_s(flows),
    )


def _refused_by_nobody(case: Case, flows: Set[Flow]) -> Opinion:
    if not flows:
        return NOTHING
    first = min(flows, key=flow_order)
    subject = case.pair_subject(first.pair)
    return undetermined(
        [("os-firewall-reject", subject), ("peer-died", case.subject(first.destination))],
        why=f"connections on {case.ports(flows)} are refused though the target listened, and no host's "
        f"own firewall certainly rejects them ({count(case, flows)})",
        evidence=case.evidence(flows),
        next_command=f"sudo ss -ltnp  # on {case.name(first.destination)}",
        fields=case.fields(first.destination, first.source),
        at_s=case.at_s(flows),
    )


def _gone(case: Case, flows: Set[Flow]) -> Opinion:
    """Refused by a member that sent no row or had finished: its process may have ended."""
    opinions = []
    for place in sorted({flow.destination for flow in flows}):
        own = {flow for flow in flows if flow.destination == place}
        if case.members[place].report is not None:
            opinions.append(probed_late(case, place))
            continue
        opinions.append(
            undetermined(
                [("peer-died", case.subject(place)), ("os-firewall-reject", case.subject(place))],
                why=f"{case.name(place)} registered, refuses connections and sent no row",
                evidence=case.evidence(own),
                next_command=f"sudo ss -ltnp  # on {case.name(place)}",
                fields=case.fields(place),
                at_s=case.at_s(own),
            )
        )
    return total(opinions)


# --- no route --------------------------------------------------------------------------------


def _unroutable(case: Case) -> Opinion:
    flows = case.matrix.without_route()
    silent = case.matrix.with_outcome(ConnectOutcome.TIMED_OUT)

    def named(subject: str, found: Set[Flow]) -> Finding:
        first = min(found, key=flow_order)
        back = {(flow.destination, flow.source) for flow in found}
        unanswered = {flow for flow in silent if flow.pair in back}
        return finding(
            "route-missing",
            subject,
            summary=f"{case.name(first.source)} has no route to {case.members[first.destination].address} "
            f"({count(case, found)}, network unreachable)",
            evidence=[*case.evidence(found), *case.evidence(unanswered)],
            fields=case.fields(first.source, first.destination),
            at_s=case.at_s(found),
        )

    return Opinion(causes=tuple(by_place(case, flows, named)))
