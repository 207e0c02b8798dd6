"""Rows of a healthy cluster, and the changes that a fault makes to them.

Members are those of `tests.cluster.world`: i-0, i-1, ... at 10.20.1.10, .11, ...
"""

from __future__ import annotations

import dataclasses
import errno
from typing import Any, Callable, List, Optional, Sequence, Tuple

from cluster.ports import PortRange
from diagnosis.judge import judge
from diagnosis.membership import Expectation
from diagnosis.report import (
    CollectiveResult,
    ConnectOutcome,
    Diagnosis,
    HostFacts,
    Listener,
    NodeReport,
    PairProbe,
    PortKind,
    Verdict,
)
from tests.cluster.world import World, from_group

MASTER_PORT = 29500
EPHEMERAL = PortRange(32768, 60999)
PORTS = (32768, 46884, 60999)
STARTED_AT = 1_700_000_000.0
EVERYTHING = from_group("sg-mesh")
MASTER_ONLY = from_group("sg-mesh", MASTER_PORT, MASTER_PORT)

_ERRNOS = {
    ConnectOutcome.TIMED_OUT: errno.ETIMEDOUT,
    ConnectOutcome.REFUSED: errno.ECONNREFUSED,
    ConnectOutcome.UNREACHABLE: errno.EHOSTUNREACH,
}

Reports = Tuple[NodeReport, ...]
Named = List[Tuple[str, str]]
"""(id, subject) of findings, in order."""


def address(node: int) -> str:
    return f"10.20.1.{10 + node}"


def facts(node: int) -> HostFacts:
    """Preflight of a healthy node whose firewall was read and is empty."""
    return HostFacts(
        hostname=f"ip-10-20-1-{10 + node}",
        hostname_addresses=(address(node),),
        interface="ens5",
        interfaces={"lo": ("127.0.0.1", "::1"), "ens5": (address(node),)},
        mtu=9001,
        local_port_range=EPHEMERAL,
        nofile_limit=65535,
        somaxconn=4096,
        firewall_rules="",
        versions={"python": "3.9.16"},
    )


def probe(destination: int, port: int, outcome: ConnectOutcome, at_s: float = STARTED_AT + 1) -> PairProbe:
    works = outcome is ConnectOutcome.CONNECTED
    return PairProbe(
        destination=f"i-{destination}",
        address=address(destination),
        port=port,
        kind=PortKind.MASTER if port == MASTER_PORT else PortKind.EPHEMERAL,
        outcome=outcome,
        errno=_ERRNOS.get(outcome),
        connect_s=0.0002 if works else None,
        round_trip_s=0.0001 if works else None,
        started_at=at_s,
    )


def row(node: int, nodes: int) -> NodeReport:
    """One node's row when all is well."""
    ports = (MASTER_PORT, *PORTS)
    return NodeReport(
        run="r",
        member_id=f"i-{node}",
        address=address(node),
        name=f"n{node}",
        started_at=STARTED_AT,
        finished_at=STARTED_AT + 3,
        nodes_expected=nodes,
        members={f"i-{other}": address(other) for other in range(nodes)},
        host=facts(node),
        listeners=tuple(
            Listener(
                port=port, kind=PortKind.MASTER if port == MASTER_PORT else PortKind.EPHEMERAL, opened=True
            )
            for port in ports
        ),
        probes=tuple(
            probe(peer, port, ConnectOutcome.CONNECTED)
            for peer in range(nodes)
            if peer != node
            for port in ports
        ),
        timings_s={"mesh": 0.5},
    )


def healthy(nodes: int = 4, collective: bool = False) -> Reports:
    rows = [row(node, nodes) for node in range(nodes)]
    if collective:
        rows = [dataclasses.replace(item, collective=all_reduce(nodes)) for item in rows]
    return tuple(rows)


def all_reduce(nodes: int, **changes: Any) -> CollectiveResult:
    good = CollectiveResult(
        outcome=Verdict.PASS,
        world_size=nodes,
        bytes=1 << 26,
        init_s=0.4,
        time_s=0.1,
        algbw_gbit_per_s=5.0,
        busbw_gbit_per_s=7.5,
        torch_version="2.13.0+cpu",
    )
    return dataclasses.replace(good, **changes)


def change(rows: Reports, node: int, **changes: Any) -> Reports:
    """The row of one node with other values."""
    return tuple(
        dataclasses.replace(item, **changes) if place == node else item for place, item in enumerate(rows)
    )


def on_host(rows: Reports, nodes: Sequence[int], **changes: Any) -> Reports:
    """Preflight facts of some nodes with other values."""
    for node in nodes:
        host = rows[node].host
        assert host is not None
        rows = change(rows, node, host=dataclasses.replace(host, **changes))
    return rows


def env(rows: Reports, nodes: Sequence[int], **values: str) -> Reports:
    """The distributed variables of some nodes."""
    for node in nodes:
        host = rows[node].host
        assert host is not None
        rows = on_host(rows, [node], environment={**host.environment, **values})
    return rows


def launched(nodes: int = 4) -> Reports:
    """A job whose environment is complete on every node."""
    rows = healthy(nodes)
    for node in range(nodes):
        rows = env(
            rows,
            [node],
            RANK=str(node),
            WORLD_SIZE=str(nodes),
            MASTER_ADDR=address(0),
            MASTER_PORT=str(MASTER_PORT),
        )
        rows = change(rows, node, rank=node, world_size=nodes)
    return rows


def without(rows: Reports, node: int, *names: str) -> Reports:
    """One node's environment without these variables."""
    host = rows[node].host
    assert host is not None
    kept = {key: value for key, value in host.environment.items() if key not in names}
    return on_host(rows, [node], environment=kept)


def moved(rows: Reports, addresses: Sequence[str]) -> Reports:
    """The same rows with other addresses of the members, everywhere."""
    found = []
    for node, item in enumerate(rows):
        probes = tuple(
            dataclasses.replace(one, address=addresses[int(one.destination[2:])]) for one in item.probes or ()
        )
        members = {f"i-{place}": known for place, known in enumerate(addresses)}
        found.append(dataclasses.replace(item, address=addresses[node], probes=probes, members=members))
        host = item.host
        assert host is not None
        found[-1] = dataclasses.replace(
            found[-1],
            host=dataclasses.replace(
                host, hostname_addresses=(addresses[node],), interfaces={"ens5": (addresses[node],)}
            ),
        )
    return tuple(found)


def unread_firewalls(rows: Reports) -> Reports:
    """As an ordinary user sees it: no node may read its own ruleset."""
    return on_host(rows, range(len(rows)), firewall_rules=None, firewall_error="nf_tables: needs root")


Which = Callable[[int, int, int], bool]
"""(source, destination, port) -> whether the probe is meant."""


def isolated(s: int, d: int, p: int) -> bool:
    """All that node 2 has a part in."""
    return 2 in (s, d)


def into_2(s: int, d: int, p: int) -> bool:
    """All that goes to node 2."""
    return d == 2


def dies(rows: Reports, which: Which, outcome: ConnectOutcome, **changes: Any) -> Reports:
    """Probes with another outcome."""

    def seen(source: int, item: PairProbe) -> PairProbe:
        destination = int(item.destination.partition("-")[2])
        if not which(source, destination, item.port):
            return item
        bad = dataclasses.replace(
            item, outcome=outcome, errno=_ERRNOS.get(outcome), connect_s=None, round_trip_s=None
        )
        return dataclasses.replace(bad, **changes)

    return tuple(
        dataclasses.replace(one, probes=tuple(seen(source, item) for item in one.probes or ()))
        for source, one in enumerate(rows)
    )


def drops(rows: Reports, which: Which) -> Reports:
    """Probes that time out."""
    return dies(rows, which, ConnectOutcome.TIMED_OUT)


def expect(nodes: int = 4, **changes: Any) -> Expectation:
    plan = Expectation(nodes=nodes, master_port=MASTER_PORT, cluster="demo")
    return dataclasses.replace(plan, **changes)


def named(diagnosis: Diagnosis) -> Named:
    """The causes."""
    return [(item.id, item.subject) for item in diagnosis.causes]


def suspected(diagnosis: Diagnosis) -> Named:
    """The candidates."""
    return [(item.id, item.subject) for item in diagnosis.candidates]


def diagnose(rows: Reports, nodes: Optional[int] = None, **changes: Any) -> Diagnosis:
    """The judge's answer without an account's rules."""
    return judge(rows, expect(nodes if nodes is not None else len(rows), **changes))


def answer(rows: Reports) -> Tuple[Named, Named, int, Verdict, bool]:
    """Without an account's rules: causes, candidates, how many consequences, verdict, is there a command."""
    found = diagnose(rows)
    return (
        named(found),
        suspected(found),
        len(found.consequences),
        found.verdict,
        found.next_command is not None,
    )


def with_rules(rows: Reports, world: World) -> Diagnosis:
    """The judge's answer with the account's rules."""
    return judge(rows, expect(len(rows)), world.snapshot())
