"""Connections that are answered wrongly: refused, unreachable, reset or accepted in silence."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Sequence, Set

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.drops import count, flow_order, over_loopback
from diagnosis.host_firewall import Does
from diagnosis.matrix import Flow, Pair
from diagnosis.opinion import NOTHING, Opinion, total, undetermined
from diagnosis.patterns import FEW_PAIRS, find
from diagnosis.report import ConnectOutcome, Finding


def judge_answers(case: Case) -> Opinion:
    """Causes of every answer that is not an echo, against proven listeners."""
    return total((_refused(case), _unroutable(case), _silent(case)))


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
        elif _listener_may_be_gone(case, flow):
            gone.add(flow)
        elif not suspects or _process_may_be_gone(case, flow):
            unclear.add(flow)
        else:
            at.setdefault(flow.destination if flow.destination in suspects else flow.source, []).append(flow)
    causes = tuple(_rejects(case, at[place], place) for place in sorted(at))
    return Opinion(causes=causes) + _refused_by_nobody(case, unclear) + _gone(case, gone)


def _listener_may_be_gone(case: Case, flow: Flow) -> bool:
    """Whether the target had no reason to listen any more: it sent no row, or its time was over."""
    report = case.members[flow.destination].report
    started_at = case.matrix.probes[flow].started_at
    if report is None:
        return True
    until = report.listens_until or report.finished_at
    return until is not None and started_at is not None and started_at > until


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
            opinions.append(_probed_late(case, place))
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


def _probed_late(case: Case, place: int) -> Opinion:
    return Opinion(unanswered=(f"{case.subject(place)}: {case.name(place)} was probed after its end",))


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

    return Opinion(causes=tuple(_by_place(case, flows, named)))


# --- accepted, then silence ------------------------------------------------------------------


def _silent(case: Case) -> Opinion:
    flows = case.matrix.with_outcome(ConnectOutcome.SILENT, ConnectOutcome.RESET)
    small_passed = {
        flow
        for flow in flows
        if case.matrix.probes[flow].round_trip_s is not None
        and case.matrix.outcome(flow) is ConnectOutcome.SILENT
    }
    gone = {flow for flow in flows - small_passed if _listener_may_be_gone(case, flow)}
    sidecar = flows - small_passed - gone

    def black_hole(subject: str, found: Set[Flow]) -> Finding:
        first = min(found, key=flow_order)
        return finding(
            "mtu-black-hole",
            subject,
            summary=f"small messages pass and full-size ones vanish ({count(case, found)})",
            evidence=[*case.evidence(found), *_mtus(case, found)],
            fields=case.fields(first.destination, first.source),
            at_s=case.at_s(found),
        )

    def proxy(subject: str, found: Set[Flow]) -> Finding:
        first = min(found, key=flow_order)
        return finding(
            "proxy-sidecar",
            subject,
            summary=f"something accepts connections to {case.ports(found)} in the listener's place "
            f"and does not echo ({count(case, found)})",
            evidence=[*case.evidence(found), "the target's own listeners were proven to echo"],
            fields=case.fields(first.destination, first.source),
            at_s=case.at_s(found),
        )

    causes = (*_by_place(case, small_passed, black_hole), *_by_place(case, sidecar, proxy))
    return Opinion(causes=causes) + _silent_without_row(case, gone)


def _mtus(case: Case, flows: Set[Flow]) -> List[str]:
    lines = []
    for place in sorted({place for flow in flows for place in flow.pair}):
        report = case.members[place].report
        if report is not None and report.host is not None and report.host.mtu is not None:
            lines.append(f"{case.subject(place)} MTU: {report.host.mtu} bytes")
    return lines[:4]


def _silent_without_row(case: Case, flows: Set[Flow]) -> Opinion:
    opinions = []
    for place in sorted({flow.destination for flow in flows}):
        own = {flow for flow in flows if flow.destination == place}
        if case.members[place].report is not None:
            opinions.append(_probed_late(case, place))
            continue
        opinions.append(
            undetermined(
                [("peer-frozen", case.subject(place)), ("proxy-sidecar", case.subject(place))],
                why=f"{case.name(place)} accepts connections, stays silent and sent no row",
                evidence=case.evidence(own),
                next_command=f"ps -o pid,stat,wchan:32,cmd -C python3  # on {case.name(place)}",
                fields=case.fields(place),
                at_s=case.at_s(own),
            )
        )
    return total(opinions)


def _by_place(case: Case, flows: Set[Flow], named: Callable[[str, Set[Flow]], Finding]) -> List[Finding]:
    """One finding a place: the cluster, a node whose side fails with everybody, else the pair.

    Pairs all over the place are one finding of the cluster: nobody reads thousands.
    """
    if not flows:
        return []
    by_pair: Dict[Pair, Set[Flow]] = {}
    for flow in flows:
        by_pair.setdefault(flow.pair, set()).add(flow)
    dead = set(by_pair)
    working = {flow.pair for flow in case.matrix.with_outcome(ConnectOutcome.CONNECTED)}
    pattern = find(dead, dead | working)
    if pattern.whole and len(case.members) > 2:
        return [named("cluster", flows)]

    def of(pairs: Iterable[Pair]) -> Set[Flow]:
        return {flow for pair in pairs for flow in by_pair[pair]}

    found = [named(case.subject(item.node), of(item.pairs)) for item in pattern.isolated]
    rest = dead.difference(*(item.pairs for item in pattern.isolated))
    if len(rest) > max(2 * len(case.members), FEW_PAIRS):
        return [*found, named("cluster", of(rest))]
    if len(case.members) == 2:
        return [*found, *(named(case.subject(pair[1]), of([pair])) for pair in sorted(rest, key=_by_end))]
    return [*found, *(named(case.pair_subject(pair), of([pair])) for pair in sorted(rest))]


def _by_end(pair: Pair) -> Pair:
    return (pair[1], pair[0])
