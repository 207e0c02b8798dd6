"""Limits of a host: open files, ephemeral ports, the accept queue, connection tracking.

A limit is a cause where it is certain to be too low (by what a job needs at least), or where the
kernel counted what it cost while this cluster was probed. One that is merely low is not said.
"""

from __future__ import annotations

import errno
from typing import Dict, List, Optional, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import started, variable, where
from diagnosis.counters import Counters
from diagnosis.matrix import listeners
from diagnosis.membership import Member
from diagnosis.opinion import Opinion
from diagnosis.report import ConnectOutcome, Finding, HostFacts, PortKind

# Descriptors beside the mesh's sockets, measured with torch 2.13 and 2 to 8 ranks, where one less
# made every job fail: Python, torch, a client of the store, Gloo's listener and loop. Rank 0 serves
# the store besides.
_FILES_OF_A_RANK = 10
_FILES_OF_THE_STORE = 10
_NO_PORT = (errno.EADDRNOTAVAIL, errno.EADDRINUSE)
# A SYN that found the queue full is repeated by its sender's kernel after a second.
_REPEATED_SYN_S = 0.9


def judge_limits(case: Case) -> Opinion:
    """fd-limit, port-exhaustion, listen-backlog, conntrack-exhausted."""
    causes = [*_open_files(case), *_ports(case), *_accept_queue(case), *_tracking(case)]
    return Opinion(causes=tuple(causes))


def _hosts(case: Case) -> Dict[int, HostFacts]:
    found = {place: member.report.host for place, member in enumerate(case.members) if member.report}
    return {place: host for place, host in found.items() if host is not None}


def _counters(case: Case) -> Dict[int, Counters]:
    found = {place: member.report.counters for place, member in enumerate(case.members) if member.report}
    return {place: counters for place, counters in found.items() if counters is not None}


# --- open files ----------------------------------------------------------------------------------


def _open_files(case: Case) -> List[Finding]:
    low: Dict[int, Tuple[int, str]] = {}
    for place, host in _hosts(case).items():
        needed, why = _files_needed(case, case.members[place])
        if host.nofile_limit is not None and host.nofile_limit < needed:
            low[place] = (host.nofile_limit, f"a job needs at least {needed} there: {why}")
    return [
        finding(
            "fd-limit",
            subject,
            summary=f"{'every process' if subject == 'cluster' else case.name(own[0])} may open "
            f"{low[own[0]][0]} files, and {low[own[0]][1]}",
            evidence=[f"{case.subject(p)} ulimit -n: {low[p][0]}; {low[p][1]}" for p in own[:NAMED_AT_MOST]],
            fields=case.fields(own[0]),
            at_s=started(case, own),
        )
        for subject, own in (where(case, sorted(low)) if low else ())
    ]


def _files_needed(case: Case, member: Member) -> Tuple[int, str]:
    peers = case.expectation.nodes - 1
    names = [name for name in (variable(member, "GLOO_SOCKET_IFNAME") or "").split(",") if name]
    contexts = max(1, len(names))
    meshes = 2 if (variable(member, "TORCH_DISTRIBUTED_DEBUG") or "").upper() == "DETAIL" else 1
    own = _FILES_OF_A_RANK + (_FILES_OF_THE_STORE if member.rank == 0 else 0)
    return (
        own + peers * contexts * meshes,
        f"{peers} peers x {contexts} contexts x {meshes} meshes, and {own}",
    )


# --- ephemeral ports -----------------------------------------------------------------------------


def _ports(case: Case) -> List[Finding]:
    """Nodes that found no port of their own for a listener or for a connection."""
    lines: Dict[int, List[str]] = {}
    for place, member in enumerate(case.members):
        for listener in listeners(member) if _range_is_full(case, place) else ():
            taken = listener.errno == errno.EADDRINUSE and not listener.opened
            if listener.kind is PortKind.EPHEMERAL and taken:
                words = f"{member.subject} bind near {listener.port}: EADDRINUSE on every port that was tried"
                lines.setdefault(place, []).append(words)
    for flow, probe in sorted(case.matrix.probes.items()):
        if probe.outcome is ConnectOutcome.LOCAL_ERROR and probe.errno in _NO_PORT:
            name = errno.errorcode[probe.errno or 0]
            to = f"{probe.address}:{flow.port}"
            lines.setdefault(flow.source, []).append(f"{case.subject(flow.source)} connect to {to}: {name}")
    return [_no_ports(case, place, found) for place, found in sorted(lines.items())]


def _range_is_full(case: Case, place: int) -> bool:
    """A listener that found its port and many beside it taken proves it only where all others are, too."""
    host = _hosts(case).get(place)
    if host is None or host.local_port_range is None or host.local_ports_held is None:
        return False
    return host.local_ports_held >= len(host.local_port_range)


def _no_ports(case: Case, place: int, lines: List[str]) -> Finding:
    host = _hosts(case).get(place)
    ports = host.local_port_range if host else None
    held = host.local_ports_held if host else None
    size = f"{len(ports)} ports, {ports}" if ports else "a range that was not read"
    fields = case.fields(place)
    if held is not None:
        lines = [*lines[:NAMED_AT_MOST], f"{case.subject(place)} ports of {ports} that a socket has: {held}"]
    return finding(
        "port-exhaustion",
        case.subject(place),
        summary=f"{case.name(place)} has no free port left for its own sockets "
        f"(net.ipv4.ip_local_port_range: {size})",
        evidence=lines[: NAMED_AT_MOST + 1],
        fields=fields,
        at_s=started(case, [place]),
    )


# --- accept queue --------------------------------------------------------------------------------


def _accept_queue(case: Case) -> List[Finding]:
    """Overflows that were counted, where the queue cannot hold all peers, or a connection to it waited."""
    hosts, peers = _hosts(case), case.expectation.nodes - 1
    found = []
    for place, counters in sorted(_counters(case).items()):
        overflows = counters.listen_overflows or 0
        somaxconn = hosts[place].somaxconn if place in hosts else None
        slow = _slow_to(case, place)
        small = somaxconn is not None and somaxconn < peers
        if overflows <= 0 or not (small or slow):
            continue
        lines = [
            f"{case.subject(place)} TcpExtListenOverflows grew by {overflows} while the cluster was probed",
            f"{case.subject(place)} net.core.somaxconn: {somaxconn if somaxconn is not None else 'not read'}",
            *slow,
        ]
        found.append(
            finding(
                "listen-backlog",
                case.subject(place),
                summary=f"{overflows} connections to {case.name(place)} found its accept queue full"
                + (f"; it holds {somaxconn}, and there are {peers} peers" if small else ""),
                evidence=lines,
                fields=case.fields(place),
                at_s=started(case, [place]),
            )
        )
    return found


def _slow_to(case: Case, place: int) -> List[str]:
    """Connections to a member that were made only after a repeated SYN."""
    waited = [
        (probe.connect_s, flow)
        for flow, probe in case.matrix.probes.items()
        if flow.destination == place and (probe.connect_s or 0.0) >= _REPEATED_SYN_S
    ]
    return [
        f"{case.pair_subject(flow.pair)} port {flow.port}: connected after {seconds:.2f} s"
        for seconds, flow in sorted(waited, key=lambda item: item[1])[:NAMED_AT_MOST]
    ]


# --- connection tracking -------------------------------------------------------------------------

# Entries come and go; drops were counted before the level was read.
_NEARLY_FULL = 0.9


def _table_is_full(counters: Counters) -> bool:
    """The kernel also counts as dropped what a protocol's helper refuses, whatever the table holds."""
    if counters.tracked is None or not counters.tracked_most:
        return False
    return counters.tracked >= _NEARLY_FULL * counters.tracked_most


def _tracking(case: Case) -> List[Finding]:
    found = []
    for place, counters in sorted(_counters(case).items()):
        lines = []
        exceeded = counters.allowances.get("conntrack_allowance_exceeded", 0)
        summary: Optional[str] = None
        if exceeded > 0:
            summary = (
                f"EC2 dropped {exceeded} packets of {case.name(place)}, which tracks too many connections"
            )
            lines.append(
                f"{case.subject(place)} conntrack_allowance_exceeded grew by {exceeded} while it was probed"
            )
        if (counters.tracking_drops or 0) > 0 and _table_is_full(counters):
            summary = summary or (
                f"the kernel of {case.name(place)} dropped {counters.tracking_drops} packets: its table of "
                "tracked connections is full"
            )
            lines.append(
                f"{case.subject(place)} tracked connections: {counters.tracked} of {counters.tracked_most}; "
                f"dropped meanwhile: {counters.tracking_drops}"
            )
        if summary is not None:
            found.append(
                finding(
                    "conntrack-exhausted",
                    case.subject(place),
                    summary=summary,
                    evidence=lines,
                    fields=case.fields(place),
                    at_s=started(case, [place]),
                )
            )
    return found
