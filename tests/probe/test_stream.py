"""Streams that look for loss: over a clean way, a lossy one, and to peers that do not take part."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from cluster.ports import PortRange
from diagnosis.report import PathStream
from probe import stream
from probe.echo import _READY, SMALL_BYTES, TAKEN, announcement
from probe.members import Member
from probe.mesh import Mesh
from probe.stream import StreamTarget, plan_streams

CHECKOUT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.61"


def sent_to(port: int) -> Optional[PathStream]:
    target = StreamTarget(destination="p", address=ADDRESS, port=port)
    return asyncio.run(stream.send(target))


def test_a_clean_way_loses_nothing_and_takes_its_time() -> None:
    """All segments are small, none is lost, and the pace is kept."""
    with Mesh(ADDRESS, PortRange(41000, 41999), None) as mesh:
        found = sent_to(mesh.listeners[0].port)
    assert found is not None
    assert (found.destination, found.lost, found.complete) == ("p", 0, True)
    assert stream.FIRST_BYTES / 1200 <= found.segments < stream.FIRST_BYTES / 1000
    assert found.time_s > 0.8 * stream.FIRST_BYTES / stream.PACE_BYTES_PER_S


LOSSY = """
import asyncio, dataclasses, json, subprocess, sys
from cluster.ports import PortRange
from lab.fabric import turn_off_segmentation_offload
from probe import stream
from probe.mesh import Mesh
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
turn_off_segmentation_offload("lo")  # loopback passes several segments as one, and loses them together
with Mesh("127.0.0.1", PortRange(41000, 41999), None) as mesh:
    port = mesh.listeners[0].port
    match = sys.argv[1].format(port=port)
    subprocess.run(["nft", "table inet t { chain in { type filter hook input priority 0; "
        f"{match} numgen random mod 100 < {sys.argv[2]} drop; }}; }}"], check=True)
    target = stream.StreamTarget(destination="p", address="127.0.0.1", port=port)
    async def send_all(): return await asyncio.gather(*(stream.send(target) for _ in range(int(sys.argv[3]))))
    print(json.dumps([dataclasses.astuple(found) if found else None for found in asyncio.run(send_all())]))
"""


def sent_over_lossy_way(match: str, percent: int, count: int) -> list[Any]:
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", LOSSY, match, str(percent), str(count)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    told: list[Any] = json.loads(done.stdout)
    return told


@pytest.mark.lab
@pytest.mark.parametrize("percent", [3, 10])
def test_a_lossy_way_is_told_by_how_much_it_loses(percent: int) -> None:
    """Once anything is lost, enough is sent to tell the share."""
    [(_, segments, lost, complete, _)] = sent_over_lossy_way("tcp dport {port} ip length > 1000", percent, 1)
    assert complete
    assert segments > stream.MORE_BYTES / 1200
    assert 0.4 * percent < 100 * lost / segments < 2 * percent


@pytest.mark.lab
def test_no_lossy_way_stays_unknown_by_chance() -> None:
    """Also where handshakes and first answers get lost, each of many streams begins and tells its loss."""
    told = sent_over_lossy_way("meta l4proto tcp", 12, 100)
    assert all(found is not None and found[2] >= 5 for found in told)


@contextlib.contextmanager
def peer(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A peer of another kind."""
    with socket.create_server((ADDRESS, 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        behave(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def stop_taking(connection: socket.socket) -> None:
    connection.sendall(connection.recv(SMALL_BYTES)[:-16] + _READY)
    connection.recv(1000)
    threading.Event().wait(2)


def take_and_say_nothing(connection: socket.socket) -> None:
    connection.sendall(connection.recv(SMALL_BYTES)[:-16] + _READY)
    while connection.recv(65536):
        pass


@pytest.mark.parametrize("behave", [echo, lambda connection: connection.close()], ids=["echoes", "closes"])
def test_a_peer_that_does_not_take_part_tells_nothing(behave: Callable[[socket.socket], None]) -> None:
    """A listener of another release, or one that closes, leaves the loss unknown."""
    with peer(behave) as port:
        assert sent_to(port) is None


@pytest.mark.parametrize("behave", [stop_taking, take_and_say_nothing])
def test_a_peer_that_stops_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, behave: Callable[[socket.socket], None]
) -> None:
    """The stream ends with its time, and says that it was not taken whole."""
    monkeypatch.setattr(stream, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(stream, "NO_NEW_AFTER_S", 0.5)
    with peer(behave) as port:
        found = sent_to(port)
    assert found is not None
    assert (found.lost, found.complete) == (0, False)
    assert found.time_s < 2


def test_a_closed_port_is_no_stream() -> None:
    """Nothing is made up where nothing began."""
    with socket.create_server((ADDRESS, 0)) as listener:
        port = int(listener.getsockname()[1])
    assert sent_to(port) is None


def test_data_after_a_stream_is_echoed_again() -> None:
    """The listener takes exactly what was announced; also where the last part brings more."""
    with (
        Mesh(ADDRESS, PortRange(41000, 41999), None) as mesh,
        socket.create_connection((ADDRESS, mesh.listeners[0].port)) as sock,
    ):
        for _ in range(2):
            sock.sendall(announcement(5000))
            assert exactly(sock, SMALL_BYTES)[-16:] == _READY
            sock.sendall(bytes(5000))
            assert exactly(sock, len(TAKEN)) == TAKEN
            sock.sendall(b"hello")
            assert exactly(sock, 5) == b"hello"


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += sock.recv(count - len(data))
    return data


def members(count: int, **changes: Any) -> list[Member]:
    return [
        Member(member_id=f"m{n}", address=f"10.0.0.{n + 1}", master_port=29500, ports=(40000 + n,), **changes)
        for n in range(count)
    ]


def test_every_peer_of_a_small_cluster_is_looked_at() -> None:
    """Each of its own, on its first port, beginning with the next one."""
    plan = plan_streams("m2", members(4))
    assert [(item.destination, item.port) for item in plan] == [("m3", 40003), ("m0", 40000), ("m1", 40001)]


def test_in_a_large_cluster_each_is_looked_at_as_often() -> None:
    """Two streams a node, and two to each node."""
    plans = [item.destination for n in range(20) for item in plan_streams(f"m{n}", members(20))]
    assert sorted(plans) == sorted(2 * [f"m{n}" for n in range(20)])


def test_ranks_of_one_host_have_no_way_to_each_other() -> None:
    """Packets between them never leave the host."""
    two = members(3)
    two[1] = Member(member_id="m1", address="10.0.0.1", master_port=0, ports=(40001,))
    assert [item.destination for item in plan_streams("m0", two)] == ["m2"]


def test_a_member_without_any_port_is_left_out() -> None:
    """MASTER_PORT serves where it is all there is."""
    three = members(3)
    three[1] = Member(member_id="m1", address="10.0.0.2", master_port=0, ports=())
    three[2] = Member(member_id="m2", address="10.0.0.3", master_port=29500, ports=())
    assert [(item.destination, item.port) for item in plan_streams("m0", three)] == [("m2", 29500)]
