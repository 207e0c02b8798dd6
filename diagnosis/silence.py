"""Connections that are accepted and then not served: silent, garbled or closed.

Silence alone decides little. A peer whose process is starved or stopped is silent, too: its
kernel completes the handshake and takes the data. So a cause is named only where the kernel
saw the path eat the large message, where something else than the echo came back, where a
ruleset redirects the port, or where whatever accepts on every port closes on everybody.
"""

from __future__ import annotations

import functools
from typing import Dict, List, Set, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.drops import count, flow_order
from diagnosis.matrix import Flow
from diagnosis.opinion import NOTHING, Opinion, undetermined
from diagnosis.peers import ask_each_target, ask_gone, by_place, listener_may_be_gone
from diagnosis.report import ConnectOutcome, Finding


def judge_silence(case: Case) -> Opinion:
    """Causes of every connection that was accepted and brought no echo."""
    return _Silence(case).judge()


class _Silence:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._probes = case.matrix.probes
        self._flows = case.matrix.with_outcome(ConnectOutcome.SILENT, ConnectOutcome.RESET)

    def judge(self) -> Opinion:
        if not self._flows:
            return NOTHING
        eaten = self._eaten()
        gone = {flow for flow in self._flows - eaten if listener_may_be_gone(self._case, flow)}
        proxied = self._proxied(self._flows - eaten - gone)
        causes = (*by_place(self._case, eaten, self._black_hole), *by_place(self._case, proxied, self._proxy))
        opened = ask_each_target(self._case, self._flows - eaten - gone - proxied, self._ask)
        return Opinion(causes=causes) + self._gone(gone) + opened

    def _gone(self, flows: Set[Flow]) -> Opinion:
        does = "accepts connections, stays silent"
        command = functools.partial(_processes, self._case)
        return ask_gone(self._case, flows, ("peer-frozen", "proxy-sidecar"), does, command)

    def _eaten(self) -> Set[Flow]:
        """Flows whose small messages came back and whose large one the path ate, or its echo.

        Where only the echo is lost the source sees mere silence; the peer's own probe the other
        way then sees its large message eaten. Where the same message was lost in small segments,
        too, size is not what the path minds.
        """
        small = {
            flow
            for flow in self._flows
            if self._probes[flow].round_trip_s is not None
            and not self._probes[flow].garbled
            and self._probes[flow].small_segments in (None, ConnectOutcome.CONNECTED)
        }
        seen = {flow for flow in small if self._probes[flow].unacknowledged}
        back = {(flow.destination, flow.source) for flow in seen}
        return seen | {flow for flow in small if flow.pair in back}

    def _proxied(self, flows: Set[Flow]) -> Set[Flow]:
        """Flows that something else than the listener accepted, for certain."""
        found = {flow for flow in flows if self._probes[flow].garbled or self._case.firewalls.redirects(flow)}
        to: Dict[int, Set[Flow]] = {}
        for flow in self._probes:
            to.setdefault(flow.destination, set()).add(flow)
        for place in {flow.destination for flow in flows}:
            peers = {flow.source for flow in to[place]}
            closed = all(
                flow in found or (flow in flows and self._probes[flow].outcome is ConnectOutcome.RESET)
                for flow in to[place]
            )
            if closed and len(peers) == len(self._case.members) - 1:
                found |= to[place]
        return found

    def _black_hole(self, subject: str, found: Set[Flow]) -> Finding:
        case, first = self._case, min(found, key=flow_order)
        return finding(
            "mtu-black-hole",
            subject,
            summary=f"small messages pass and full-size ones vanish ({count(case, found)})",
            evidence=[
                *case.evidence(found),
                "the kernel repeated the large message and nobody acknowledged it",
                *self._in_small_segments(found),
                *self._mtus(found),
            ],
            fields=case.fields(first.destination, first.source),
            at_s=case.at_s(found),
        )

    def _in_small_segments(self, flows: Set[Flow]) -> List[str]:
        passed = [f for f in flows if self._probes[f].small_segments is ConnectOutcome.CONNECTED]
        believed = sorted({mtu for f in flows if (mtu := self._probes[f].path_mtu_bytes) is not None})
        lines = [f"in small segments the same message passed ({count(self._case, passed)})"] if passed else []
        if believed:
            lines.append(f"path MTU that the kernels believe: {', '.join(map(str, believed))} bytes")
        return lines

    def _mtus(self, flows: Set[Flow]) -> List[str]:
        lines = []
        for place in sorted({place for flow in flows for place in flow.pair}):
            report = self._case.members[place].report
            if report is not None and report.host is not None and report.host.mtu is not None:
                lines.append(f"{self._case.subject(place)} MTU: {report.host.mtu} bytes")
        return lines[:4]

    def _proxy(self, subject: str, found: Set[Flow]) -> Finding:
        case, first = self._case, min(found, key=flow_order)
        redirects = [case.firewalls.redirects(flow) for flow in sorted(found, key=flow_order)]
        rules = dict.fromkeys(f"{case.subject(item[0])} ruleset: {item[1]}" for item in redirects if item)
        evidence = [*case.evidence(found), *list(rules)[:NAMED_AT_MOST]]
        if any(self._probes[flow].garbled for flow in found):
            evidence.append("what came back is not what was sent")
        evidence.append("the target's own listeners were proven to echo")
        return finding(
            "proxy-sidecar",
            subject,
            summary=f"something accepts connections to {case.ports(found)} in the listener's place "
            f"and does not echo ({count(case, found)})",
            evidence=evidence,
            fields=case.fields(first.destination, first.source),
            at_s=case.at_s(found),
        )

    # --- what stays open ---------------------------------------------------------------------

    def _ask(self, flows: Set[Flow], subject: str, place: int) -> Opinion:
        case = self._case
        ids, evidence = self._fitting(flows)
        unread = bool(case.firewalls.unread([place])) and ids[0] == "proxy-sidecar"
        return undetermined(
            [(cause_id, subject) for cause_id in ids],
            why=f"connections to {case.ports(flows)} of "
            f"{'many members' if subject == 'cluster' else case.name(place)} are accepted and not echoed "
            f"({count(case, flows)})",
            evidence=[*case.evidence(flows), *evidence],
            next_command=f"sudo nft list ruleset  # on {case.name(place)}"
            if unread
            else _processes(case, place),
            fields=case.fields(place, min(flows, key=flow_order).source),
            at_s=case.at_s(flows),
        )

    def _fitting(self, flows: Set[Flow]) -> Tuple[List[str], List[str]]:
        """(cause ids in order, lines of evidence) that fit what these flows saw."""
        seen = [self._probes[flow] for flow in flows]
        if all(probe.outcome is ConnectOutcome.RESET for probe in seen):
            return ["proxy-sidecar", "peer-died"], []
        if any(probe.unacknowledged for probe in seen):
            words = "the kernel repeated what it sent, and nobody acknowledged it"
            return ["proxy-sidecar", "os-firewall-drop", "packet-loss"], [words]
        alive = {flow.destination for flow in self._case.matrix.with_outcome(ConnectOutcome.CONNECTED)}
        ids = ["peer-frozen", "proxy-sidecar"]
        if any(probe.round_trip_s is not None for probe in seen):
            ids.append("mtu-black-hole")
        elif {flow.destination for flow in flows} <= alive:
            return ["proxy-sidecar", "peer-frozen"], ["other ports of the same process do echo"]
        if any(probe.unacknowledged is False for probe in seen):
            return ids, ["the peer's kernel took the data; its process did not answer"]
        return ids, []


def _processes(case: Case, place: int) -> str:
    return f"ps -o pid,stat,wchan:32,cmd -C python3  # on {case.name(place)}"
