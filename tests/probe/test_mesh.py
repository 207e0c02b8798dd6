"""Connections to real sockets, each told for what it is."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.ports import PortRange
from diagnosis.report import ConnectOutcome, Listener, PairProbe, PortKind
from probe import conversation
from probe.mesh import Mesh
from probe.plan import ProbeTarget, plan_probes

CHECKOUT = Path(__file__).resolve().parents[2]
PORTS = PortRange(41000, 41999)


def target(port: int, address: str = "127.0.0.31") -> ProbeTarget:
    return ProbeTarget(destination="peer", address=address, port=port, kind=PortKind.EPHEMERAL)


@contextlib.contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listener on 127.0.0.31 that treats each connection by `behave`."""
    with socket.create_server(("127.0.0.31", 0)) as listener:
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    kept.append(connection)
                    behave(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            connection.close()


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    with Mesh("127.0.0.32", PORTS, None) as opened:
        yield opened


def probed(mesh: Mesh, port: int) -> PairProbe:
    (result,) = mesh.probe([target(port)])
    return result


def test_nobody_listens(mesh: Mesh) -> None:
    """A closed port is REFUSED with its errno, after two attempts."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.31", 0))
        seen = probed(mesh, unused.getsockname()[1])
    assert (seen.outcome, seen.errno, seen.attempts) == (ConnectOutcome.REFUSED, errno.ECONNREFUSED, 2)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for an echo half a second, so that tests of silence are short."""
    monkeypatch.setattr(conversation, "ECHO_TIMEOUT_S", 0.2)
    monkeypatch.setattr(conversation, "ECHO_PATIENCE_S", 0.5)
    monkeypatch.setattr(conversation, "_DOUBT_EVERY_S", 0.1)


@pytest.mark.usefixtures("impatient")
def test_silent_listener(mesh: Mesh) -> None:
    """A listener that never answers is SILENT, without a round trip."""
    with server(lambda connection: None) as port:
        seen = probed(mesh, port)
    assert (seen.outcome, seen.round_trip_s, seen.connect_s is not None) == (
        ConnectOutcome.SILENT,
        None,
        True,
    )


def test_wrong_echo(mesh: Mesh) -> None:
    """Something that answers as much, but not the same, is SILENT at once."""

    def garble(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(bytes(byte ^ 1 for byte in data))

    with server(garble) as port:
        seen = probed(mesh, port)
    assert (seen.outcome, seen.attempts, seen.round_trip_s) == (ConnectOutcome.SILENT, 1, None)
    assert (seen.garbled, seen.unacknowledged) == (True, None)


def test_a_starved_peer_is_waited_for(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """An echo that comes after the time-out still counts: the peer's kernel had taken the data."""
    monkeypatch.setattr(conversation, "ECHO_TIMEOUT_S", 0.1)
    monkeypatch.setattr(conversation, "_DOUBT_EVERY_S", 0.1)

    def slowly(connection: socket.socket) -> None:
        time.sleep(0.6)
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)

    with server(slowly) as port:
        seen = probed(mesh, port)
    assert (seen.outcome, seen.attempts) == (ConnectOutcome.CONNECTED, 1)


@pytest.mark.usefixtures("impatient")
def test_small_passes_large_does_not(mesh: Mesh) -> None:
    """SILENT with a round trip: small messages came back, the large one did not."""

    def small_only(connection: socket.socket) -> None:
        while True:
            data = connection.recv(65536)
            if not data or len(data) > 1000:
                return
            connection.sendall(data)

    with server(small_only) as port:
        seen = probed(mesh, port)
    assert (seen.outcome, seen.round_trip_s is not None) == (ConnectOutcome.SILENT, True)
    assert (seen.garbled, seen.unacknowledged) == (False, False)  # its kernel took the large one


EATEN = """
import asyncio, json, socket, subprocess, threading
from probe import conversation, outcome
conversation.ECHO_TIMEOUT_S = conversation._DOUBT_EVERY_S = 0.8
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
rules = "table ip f { chain i { type filter hook input priority 0; ip length > 1000 drop; }; }"
subprocess.run(["nft", rules], check=True)
listener = socket.create_server(("127.0.0.1", 0))
def echo():
    connection = listener.accept()[0]
    while data := connection.recv(65536):
        connection.sendall(data)
threading.Thread(target=echo, daemon=True).start()
seen = asyncio.run(outcome.attempt("127.0.0.1", listener.getsockname()[1]))
print(json.dumps([seen.outcome.value, seen.round_trip_s is not None, seen.unacknowledged, seen.garbled]))
"""


@pytest.mark.lab
def test_a_path_that_eats_the_large_message_is_told_by_the_kernel() -> None:
    """Where full-size packets vanish, the kernel's own repetitions say so, beside the small round trip."""
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", EATEN],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == ["SILENT", True, True, False]


def test_closed_after_accept(mesh: Mesh) -> None:
    """A connection that is closed after the handshake is RESET."""
    with server(lambda connection: connection.close()) as port:
        assert probed(mesh, port).outcome is ConnectOutcome.RESET


def test_out_of_descriptors_is_a_local_error(mesh: Mesh) -> None:
    """EMFILE says nothing about the peer, so it is LOCAL_ERROR and not a time-out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        (seen,) = mesh.probe([target(9)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (seen.outcome, seen.errno) == (ConnectOutcome.LOCAL_ERROR, errno.EMFILE)


def test_two_nodes_reach_each_other_on_every_listener() -> None:
    """All probes of both nodes are CONNECTED at the first attempt, with a round trip."""
    with Mesh("127.0.0.33", PORTS, 29533) as one, Mesh("127.0.0.34", PORTS, 29533) as two:
        members = [one.member("one"), two.member("two")]
        seen = one.probe(plan_probes("one", members)) + two.probe(plan_probes("two", members))
    assert [(p.destination, p.port, p.outcome, p.attempts) for p in seen] == [
        (peer, port, ConnectOutcome.CONNECTED, 1)
        for peer in ("two", "one")
        for port in (29533, 41000, 41500, 41999)
    ]
    assert all(p.round_trip_s is not None and 0 < p.round_trip_s <= 4 for p in seen)


def test_a_taken_master_port_is_told_with_its_holder() -> None:
    """A held MASTER_PORT is listed as not opened, with errno and holder, and is not registered."""
    with socket.create_server(("127.0.0.35", 0)) as holder:
        port = int(holder.getsockname()[1])
        with Mesh("127.0.0.35", PORTS, port) as mesh:
            listener = mesh.listeners[0]
            assert mesh.member("x").master_port == 0
    name = Path("/proc/self/comm").read_text().strip()
    assert listener == Listener(
        port=port,
        kind=PortKind.MASTER,
        opened=False,
        errno=errno.EADDRINUSE,
        holder=f"pid {os.getpid()} ({name})",
    )


def test_a_taken_ephemeral_port_is_replaced_by_its_neighbour() -> None:
    """The listener moves to the next port of the range."""
    with socket.create_server(("127.0.0.36", 41000)), Mesh("127.0.0.36", PORTS, None) as mesh:
        assert [listener.port for listener in mesh.listeners] == [41001, 41500, 41999]


def test_listeners_are_gone_after_the_mesh() -> None:
    """Leaving the context closes every listener."""
    with Mesh("127.0.0.37", PORTS, None) as mesh:
        ports = [listener.port for listener in mesh.listeners]
    for port in ports:
        with socket.socket() as sock:
            assert sock.connect_ex(("127.0.0.37", port)) == errno.ECONNREFUSED


def test_a_foreign_address_cannot_be_listened_on() -> None:
    """An address that no interface holds gives no listener, and says so."""
    with Mesh("203.0.113.7", PORTS, 29500) as mesh:
        assert {(item.opened, item.errno) for item in mesh.listeners} == {(False, errno.EADDRNOTAVAIL)}


IN_NAMESPACE = """
import json, subprocess, sys
from cluster.ports import PortRange
from diagnosis.report import PortKind
from probe.mesh import Mesh
from probe.plan import ProbeTarget
run = lambda *a: subprocess.run(a, check=True)
run("ip", "link", "set", "lo", "up")
run("nft", "table inet t { chain in { type filter hook input priority 0; tcp dport 29500 drop; "
    "tcp dport 29501 reject with icmp type admin-prohibited; tcp dport 29502 reject with tcp reset; }; }")
with Mesh("127.0.0.1", PortRange(41000, 41999), None) as mesh:
    where = [("127.0.0.1", p) for p in (29500, 29501, 29502, 41000)] + [("192.0.2.1", 9)]
    plan = [ProbeTarget(destination="p", address=a, port=p, kind=PortKind.MASTER) for a, p in where]
    seen = mesh.probe(plan)
print(json.dumps([[p.port, p.outcome.value, p.errno, p.attempts, p.connect_s is None] for p in seen]))
"""


@pytest.mark.lab
def test_a_firewall_drops_and_rejects() -> None:
    """A drop is TIMED_OUT, a reject UNREACHABLE or REFUSED, no route UNREACHABLE, beside an open port."""
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", IN_NAMESPACE],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == [
        [29500, "TIMED_OUT", errno.ETIMEDOUT, 2, True],
        [29501, "UNREACHABLE", errno.EHOSTUNREACH, 2, True],
        [29502, "REFUSED", errno.ECONNREFUSED, 2, True],
        [41000, "CONNECTED", None, 1, False],
        [9, "UNREACHABLE", errno.ENETUNREACH, 2, True],
    ]


LOSSY = """
import json, subprocess, sys
from cluster.ports import PortRange
from diagnosis.report import PortKind
from probe import outcome
from probe.mesh import Mesh
from probe.plan import ProbeTarget
lost, outcome.HEDGE_AFTER_S, outcome.CONNECT_TIMEOUT_S = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
run = lambda *a: subprocess.run(a, check=True)
run("ip", "link", "set", "lo", "up")
with Mesh("127.0.0.1", PortRange(41000, 41999), None) as mesh:
    run("nft", "table inet t { chain in { type filter hook input priority 0; "
        "tcp flags & (syn | ack) == syn numgen inc mod 1000 < " + lost + " drop; }; }")
    plan = [ProbeTarget(destination="p", address="127.0.0.1", port=41000, kind=PortKind.MASTER)]
    (seen,) = mesh.probe(plan)
print(json.dumps([seen.outcome.value, seen.attempts]))
"""


@pytest.mark.lab
@pytest.mark.parametrize(
    ("lost", "hedge_after_s", "timeout_s"),
    [
        pytest.param(1, 0.2, 60, id="the second connection comes through"),
        pytest.param(2, 0.01, 0.02, id="the kernel has not yet repeated either"),
        pytest.param(3, 0.6, 1.2, id="the kernel has repeated only one"),
    ],
)
def test_a_lost_packet_is_no_time_out(lost: int, hedge_after_s: float, timeout_s: float) -> None:
    """A probe whose first packets are lost is CONNECTED by one of two connections."""
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", LOSSY, *map(str, (lost, hedge_after_s, timeout_s))],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == ["CONNECTED", 2]


def test_a_port_that_belongs_to_a_job_is_not_taken() -> None:
    """Also where MASTER_PORT lies in the range that listeners come from, and is free."""
    with Mesh("127.0.0.46", PortRange(43000, 43100), None, avoided=(43000,)) as mesh:
        assert [item.port for item in mesh.listeners] == [43001, 43050, 43100]


BLACK_HOLE = """
import json, subprocess
from cluster.ports import PortRange
from diagnosis.report import PortKind
from probe import conversation
from probe.mesh import Mesh
from probe.plan import ProbeTarget
conversation.ECHO_TIMEOUT_S = conversation._DOUBT_EVERY_S = 0.8
run = lambda *a: subprocess.run(a, check=True)
run("ip", "link", "set", "lo", "up")
run("nft", "table inet f { chain i { type filter hook input priority 0; ip length > 1500 drop; }; }")
with Mesh("127.0.0.1", PortRange(41000, 41999), None) as mesh:
    target = ProbeTarget(destination="p", address="127.0.0.1", port=41000, kind=PortKind.EPHEMERAL)
    (seen,) = mesh.probe([target])
print(json.dumps([seen.outcome.value, seen.unacknowledged, seen.small_segments, seen.path_mtu_bytes]))
"""


@pytest.mark.lab
def test_a_black_hole_is_proven_by_small_segments() -> None:
    """Where packets of more than 1,500 bytes vanish the same message passes in segments that are smaller."""
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", BLACK_HOLE],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == ["SILENT", True, "CONNECTED", 65535]
