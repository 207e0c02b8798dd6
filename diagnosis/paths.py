"""The way between two members: packets that take a detour, and hosts that no longer answer on the link."""

from __future__ import annotations

import errno
from typing import Dict, List, Sequence, Set, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.detours import Detour, Found
from diagnosis.drops import count, flow_order
from diagnosis.firewall.ruleset import Does
from diagnosis.matrix import Flow
from diagnosis.opinion import Opinion
from diagnosis.peers import by_place
from diagnosis.report import ConnectOutcome, Finding

_DEAD = (ConnectOutcome.TIMED_OUT, ConnectOutcome.UNREACHABLE)
# A container that has the peer's address may well answer, only not as the peer would.
_DIVERTED = (*_DEAD, ConnectOutcome.REFUSED, ConnectOutcome.RESET, ConnectOutcome.SILENT)


def judge_paths(case: Case) -> Opinion:
    """address-overlap, asymmetric-interfaces, route-missing (one that leads elsewhere), host-unreachable."""
    return Opinion(causes=(*_detours(case), *_unreachable(case)))


def told_by_paths(case: Case) -> Set[Flow]:
    """Flows that `judge_paths` explains: nobody else need be asked for them."""
    return _into_detours(case) | _off_the_link(case)


# --- detours -------------------------------------------------------------------------------------


def _into_detours(case: Case) -> Set[Flow]:
    """Dead flows that a detour explains.

    What goes into a local network is lost for certain. Another detour may be meant, and counts only
    where the account's rules and the hosts' firewalls do not explain the flow already.
    """
    lost = set()
    for flow in case.matrix.with_outcome(*_DIVERTED):
        found = case.detours.of(flow)
        if found is None:
            continue
        dead = case.matrix.outcome(flow) in _DEAD
        if found.kind is Detour.OVERLAP:
            told = dead or not found.answering
        else:
            told = dead and not _stopped_otherwise(case, flow)
        if told:
            lost.add(flow)
    return lost


def _stopped_otherwise(case: Case, flow: Flow) -> bool:
    return bool(case.rules_block(flow) or case.firewalls.stops(flow, Does.DROP, Does.REJECT))


def _detours(case: Case) -> List[Finding]:
    by_detour: Dict[Tuple[int, Detour, str], List[Tuple[Flow, Found]]] = {}
    for flow in sorted(_into_detours(case), key=flow_order):
        found = case.detours.of(flow)
        if found is not None:
            by_detour.setdefault((found.place, found.kind, found.interface), []).append((flow, found))
    return [_detour(case, *key, by_detour[key]) for key in sorted(by_detour)]


_WORDS = {
    Detour.OVERLAP: "a local network of {name} covers members' addresses, and their packets go into it",
    Detour.SECOND_INTERFACE: "{name} is in the subnet of {own}, too, and packets to members leave by it",
    Detour.ELSEWHERE: "routes to members lead to {name}, not to {own}, which holds the member address",
}


def _detour(case: Case, place: int, kind: Detour, taken: str, flows: Sequence[Tuple[Flow, Found]]) -> Finding:
    report = case.members[place].report
    host = report.host if report else None
    own = host.interface if host and host.interface else ""
    dead = [flow for flow, _ in flows]
    peers = {flow.source if flow.destination == place else flow.destination for flow in dead}
    networks = (host.networks or {}) if host else {}
    lines = [f"{case.subject(place)} {name}: {', '.join(networks.get(name, ()))}" for name in (own, taken)]
    lines += [
        f"{case.subject(place)} route to {case.members[peer].address}: by {taken}"
        for peer in sorted(peers)[:NAMED_AT_MOST]
    ]
    fields = case.fields(place, min(peers))
    return finding(
        kind.value,
        case.subject(place),
        summary=f"{case.name(place)}: {_WORDS[kind].format(name=taken, own=own)} ({count(case, dead)})",
        evidence=[*lines, *case.evidence(dead)],
        fields=fields,
        at_s=case.at_s(dead),
    )


# --- no answer on the link -----------------------------------------------------------------------


def _off_the_link(case: Case) -> Set[Flow]:
    """Flows to an address that nobody answers for on the link.

    By the neighbour table; or by errno 113 (also a router's word for it) towards a member that
    sent no row and that nobody reaches: where a row is there, a firewall may say so, too.
    """
    dead = case.matrix.with_outcome(*_DEAD)
    probes = case.matrix.probes
    silent = {flow for flow in dead if probes[flow].link_silent}
    unreachable: Dict[int, Set[Flow]] = {}
    for flow in dead - silent:
        if probes[flow].errno == errno.EHOSTUNREACH and case.members[flow.destination].report is None:
            unreachable.setdefault(flow.destination, set()).add(flow)
    for place, flows in unreachable.items():
        tried = {flow for flow in probes if flow.destination == place}
        if tried == flows:
            silent |= flows
    return silent


def _unreachable(case: Case) -> List[Finding]:
    def named(subject: str, found: Set[Flow]) -> Finding:
        first = min(found, key=flow_order)
        target = case.members[first.destination]
        row = [f"{target.subject} registered and sent no row"] if target.report is None else []
        asked = sorted({flow.source for flow in found if case.matrix.probes[flow].link_silent})
        lines = [f"{case.subject(place)} asked the link for it, and nobody answered" for place in asked]
        return finding(
            "host-unreachable",
            subject,
            summary=f"nobody answers for {target.address} ({target.name}) on the link ({count(case, found)})",
            evidence=[*case.evidence(found), *row, *lines[:NAMED_AT_MOST]],
            fields=case.fields(first.source, first.destination),
            at_s=case.at_s(found),
        )

    return by_place(case, _off_the_link(case) - _into_detours(case), named)
