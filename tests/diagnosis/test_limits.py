"""Limits of a host, by what is certain to be needed and by what the kernel counted meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from cluster.ports import PortRange
from diagnosis.counters import Counters
from diagnosis.report import ConnectOutcome, Verdict
from tests.diagnosis.builders import Reports, change, diagnose, dies, drops, healthy, named, on_host


def counted(rows: Reports, node: int, **counters: Any) -> Reports:
    return change(rows, node, counters=Counters(**counters))


# --- open files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "limit", "environment", "expected"),
    [
        pytest.param(2, 12, {}, [("fd-limit", "node:2")], id="10 and 3 peers: 12 are too few"),
        pytest.param(2, 13, {}, [], id="13 may do"),
        pytest.param(0, 22, {}, [("fd-limit", "node:0")], id="rank 0 serves the store"),
        pytest.param(0, 23, {}, [], id="23 may do there"),
        pytest.param(2, 15, {"GLOO_SOCKET_IFNAME": "ens5,ens5"}, [("fd-limit", "node:2")], id="two contexts"),
        pytest.param(2, 15, {"TORCH_DISTRIBUTED_DEBUG": "detail"}, [("fd-limit", "node:2")], id="two meshes"),
        pytest.param(2, None, {}, [], id="not looked at"),
    ],
)
def test_a_limit_below_the_least_that_a_job_needs(
    node: int, limit: int, environment: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    """Below it every job fails, measured; above it nothing is said."""
    rows = on_host(on_host(healthy(), range(4), environment=environment), [node], nofile_limit=limit)
    assert named(diagnose(rows)) == expected


def test_the_same_low_limit_everywhere_is_the_clusters() -> None:
    """One finding, not four, with each node's limit as evidence."""
    (cause,) = diagnose(on_host(healthy(), range(4), nofile_limit=12)).causes
    assert (cause.id, cause.subject) == ("fd-limit", "cluster")
    assert cause.evidence[1] == (
        "node:1 ulimit -n: 12; a job needs at least 13 there: 3 peers x 1 contexts x 1 meshes, and 10"
    )


# --- ports ---------------------------------------------------------------------------------------


def test_a_node_without_a_free_port_is_named() -> None:
    """It could not even try its peers: EADDRNOTAVAIL is the kernel's word for it."""
    rows = dies(healthy(), lambda s, d, p: s == 2, ConnectOutcome.LOCAL_ERROR, errno=errno.EADDRNOTAVAIL)
    rows = on_host(rows, [2], local_port_range=PortRange(40000, 40063), local_ports_held=64)
    diagnosis = diagnose(rows)
    assert named(diagnosis) == [("port-exhaustion", "node:2")]
    assert "64 ports, 40000-40063" in diagnosis.causes[0].summary
    assert "node:2 ports of 40000-40063 that a socket has: 64" in diagnosis.causes[0].evidence


def test_other_local_errors_are_not_about_ports() -> None:
    """No descriptors is another limit."""
    rows = dies(healthy(), lambda s, d, p: s == 2, ConnectOutcome.LOCAL_ERROR, errno=errno.EMFILE)
    assert "port-exhaustion" not in dict(named(diagnose(rows)))


@pytest.mark.parametrize(("held", "expected"), [(64, [("port-exhaustion", "node:2")]), (9, []), (None, [])])
def test_a_listener_that_found_no_port_proves_it_where_all_are_taken(
    held: int | None, expected: list[tuple[str, str]]
) -> None:
    """Its own and many beside it were taken; whether all are, the host's sockets tell."""
    rows = healthy()
    taken = tuple(
        type(item)(port=item.port, kind=item.kind, opened=False, errno=errno.EADDRINUSE)
        for item in rows[2].listeners or ()
        if item.kind.value == "EPHEMERAL"
    )
    rows = change(rows, 2, listeners=taken)
    rows = on_host(rows, [2], local_port_range=PortRange(40000, 40063), local_ports_held=held)
    assert named(diagnose(rows)) == expected


# --- the accept queue ----------------------------------------------------------------------------


def test_overflows_of_a_queue_that_cannot_hold_all_peers() -> None:
    """somaxconn is 1, three peers connect, and the kernel counted what did not fit."""
    rows = on_host(counted(healthy(), 2, listen_overflows=9), [2], somaxconn=1)
    diagnosis = diagnose(rows)
    assert named(diagnosis) == [("listen-backlog", "node:2")]
    assert diagnosis.causes[0].evidence[:2] == (
        "node:2 TcpExtListenOverflows grew by 9 while the cluster was probed",
        "node:2 net.core.somaxconn: 1",
    )


def test_overflows_that_made_a_peer_wait() -> None:
    """The queue is large enough by its number; a connection needed a second SYN all the same."""
    rows = dies(healthy(), lambda s, d, p: (s, d) == (1, 2), ConnectOutcome.CONNECTED, connect_s=1.03)
    assert named(diagnose(counted(rows, 2, listen_overflows=4))) == [("listen-backlog", "node:2")]
    assert named(diagnose(rows)) == []


@pytest.mark.parametrize(("overflows", "somaxconn"), [(9, 4096), (0, 1), (None, 1)])
def test_another_services_overflows_and_a_small_queue_alone_say_nothing(
    overflows: int | None, somaxconn: int
) -> None:
    """The counter is the whole host's, and a queue that held everybody was large enough."""
    rows = on_host(counted(healthy(), 2, listen_overflows=overflows), [2], somaxconn=somaxconn)
    assert diagnose(rows).verdict is Verdict.PASS


# --- connection tracking -------------------------------------------------------------------------


def test_ec2s_allowance_is_exceeded() -> None:
    """ENA's own counter grew: EC2 dropped packets of that instance."""
    rows = counted(healthy(), 2, allowances={"conntrack_allowance_exceeded": 17, "pps_allowance_exceeded": 3})
    diagnosis = diagnose(rows)
    assert named(diagnosis) == [("conntrack-exhausted", "node:2")]
    assert diagnosis.causes[0].evidence == (
        "node:2 conntrack_allowance_exceeded grew by 17 while it was probed",
    )
    assert diagnosis.causes[0].commands == ("ethtool -S ens5 | grep allowance_exceeded",)


def test_the_kernels_table_is_full() -> None:
    """Its own drops were counted, beside the table's size."""
    rows = counted(healthy(), 1, tracking_drops=5, tracked=65536, tracked_most=65536)
    diagnosis = diagnose(rows)
    assert named(diagnosis) == [("conntrack-exhausted", "node:1")]
    assert diagnosis.causes[0].evidence == (
        "node:1 tracked connections: 65536 of 65536; dropped meanwhile: 5",
    )


def test_connections_that_vanish_meanwhile_follow_from_it() -> None:
    """Where tracking is exhausted, what its node loses with one peer is the consequence."""
    rows = counted(healthy(), 2, allowances={"conntrack_allowance_exceeded": 17})
    rows = drops(rows, lambda s, d, p: {s, d} == {1, 2})
    diagnosis = diagnose(rows)
    assert named(diagnosis) == [("conntrack-exhausted", "node:2")]
    assert [(item.id, item.subject) for item in diagnosis.consequences] == [("pair-blocked", "pair:1>2")]


def test_drops_beside_a_table_with_room_are_not_the_tables() -> None:
    """A helper of a protocol refuses packets, too, and they are counted in the same column."""
    rows = counted(healthy(), 1, tracking_drops=5, tracked=900, tracked_most=65536)
    assert diagnose(rows).verdict is Verdict.PASS


def test_counters_that_stand_say_nothing() -> None:
    """A full table that dropped nothing, and another allowance, are no fault of the mesh's."""
    rows = counted(
        healthy(),
        2,
        listen_overflows=0,
        tracking_drops=0,
        tracked=65536,
        tracked_most=65536,
        allowances={"conntrack_allowance_exceeded": 0, "bw_in_allowance_exceeded": 9},
    )
    assert diagnose(rows).verdict is Verdict.PASS
