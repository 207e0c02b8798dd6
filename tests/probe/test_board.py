"""Meeting places: what is posted can be listed and read, and what cannot be used says so."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.ports import PortRange
from probe import tcp_board
from probe.board import Board, BoardContentError, BoardError, DirectoryBoard, registered
from probe.members import Member
from probe.mesh import Mesh
from probe.relay import ASK, OPEN, Relay
from probe.store_board import StoreBoard
from probe.tcp_board import BoardServer, TcpBoard


def torchs_store() -> tuple[subprocess.Popen[bytes], int]:
    """A process with torch's own TCPStore, as torchrun's agent serves it, and its port."""
    code = (
        "import sys, torch.distributed as d; s = d.TCPStore('127.0.0.1', 0, is_master=True, "
        "wait_for_workers=False); print(s.port, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@contextlib.contextmanager
def carried() -> Iterator[tuple[int, int]]:
    """A place whose own port nobody knows: (a closed port, that of a listener that hands on)."""
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for sock in (one, two, three):
            sock.bind(("127.0.0.41", 0))
        closed, carrier, service = (int(sock.getsockname()[1]) for sock in (one, two, three))
    relay = Relay("127.0.0.41", service)
    with (
        BoardServer("127.0.0.41", service, relay),
        Mesh("127.0.0.41", PortRange(42000, 43000), carrier, relay=relay),
    ):
        yield closed, carrier


@pytest.fixture(params=["directory", "tcp", "carried", "torch"])
def boards(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Board, Board]]:
    """Two members' view of one place, of each kind."""
    if request.param == "directory":
        yield DirectoryBoard(str(tmp_path / "x"), "a"), DirectoryBoard(str(tmp_path / "x"), "b")
    elif request.param == "torch":
        process, port = torchs_store()
        yield StoreBoard("127.0.0.1", port, "x.0", "a"), StoreBoard("127.0.0.1", port, "x.0", "b")
        process.communicate()
    elif request.param == "carried":
        with carried() as (closed, carrier):
            one, two = (TcpBoard("127.0.0.41", closed, who, 20.0, (carrier,)) for who in "ab")
            yield one, two
    else:
        with BoardServer("127.0.0.41", 0) as server:
            yield TcpBoard("127.0.0.41", server.port, "a"), TcpBoard("127.0.0.41", server.port, "b")


def test_everyone_sees_what_everyone_posts(boards: tuple[Board, Board]) -> None:
    """Names are listed in order with their member, and bodies come back byte for byte."""
    one, two = boards
    assert one.names() == ()
    body = bytes(range(256)) * 5000
    two.post("mesh.json", body)
    one.post("member~10.0.0.4~29500~1,2", b"")
    assert one.names() == two.names() == ("a/member~10.0.0.4~29500~1,2", "b/mesh.json")
    assert one.read("b/mesh.json") == body
    assert two.read("a/member~10.0.0.4~29500~1,2") == b""
    assert registered(one.names()) == (
        Member(member_id="a", address="10.0.0.4", master_port=29500, ports=(1, 2)),
    )


def test_a_second_post_replaces_the_first(boards: tuple[Board, Board]) -> None:
    """A name holds its latest body."""
    one, two = boards
    one.post("verdict-mesh.json", b"1")
    one.post("verdict-mesh.json", b"2")
    assert (two.names(), two.read("a/verdict-mesh.json")) == (("a/verdict-mesh.json",), b"2")


def test_what_is_not_there_cannot_be_read(boards: tuple[Board, Board]) -> None:
    """A missing object is an error that names it."""
    with pytest.raises(BoardError, match=r"b/mesh\.json"):
        boards[0].read("b/mesh.json")


def test_many_members_post_at_once(boards: tuple[Board, Board]) -> None:
    """Nothing is lost when 40 objects are posted from as many threads."""
    threads = [threading.Thread(target=boards[i % 2].post, args=(f"o{i}", b"x" * i)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert boards[0].names() == tuple(sorted(f"{'ab'[i % 2]}/o{i}" for i in range(40)))


def test_an_unfinished_object_is_never_listed(tmp_path: Path) -> None:
    """A write that was cut off leaves a hidden file, which no listing shows."""
    board = DirectoryBoard(str(tmp_path), "a")
    board.post("mesh.json", b"1")
    (tmp_path / "a" / ".cut-off").write_bytes(b"half")
    assert board.names() == ("a/mesh.json",)


def test_a_directory_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """The error names the object, the folder and the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BoardError, match=r"cannot write mesh\.json in .*/file/a: Not a directory"):
        DirectoryBoard(str(tmp_path / "file"), "a").post("mesh.json", b"")


def test_nobody_serves() -> None:
    """Without a server the error names the place and what to check."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.41", 0))
        port = unused.getsockname()[1]
        with pytest.raises(
            BoardError, match=rf"tcp://127\.0\.0\.41:{port}: .*refused; check that rank 0 runs"
        ):
            TcpBoard("127.0.0.41", port, "a").names()


def test_a_client_waits_for_a_server_that_comes_late() -> None:
    """Within its patience a client repeats what nobody answered yet."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.41", 0))
        port = unused.getsockname()[1]
    found: list[tuple[str, ...]] = []
    client = threading.Thread(
        target=lambda: found.append(TcpBoard("127.0.0.41", port, "a", patience_s=20).names())
    )
    client.start()
    client.join(0.3)
    with BoardServer("127.0.0.41", port):
        client.join()
    assert found == [()]


def test_a_taken_port_is_told() -> None:
    """A server that cannot bind names its port and the way out."""
    with BoardServer("127.0.0.41", 0) as server, pytest.raises(BoardError, match="--meet tcp://HOST:PORT"):
        BoardServer("127.0.0.41", server.port)


def test_strange_clients_do_no_harm() -> None:
    """Bytes that are no request, and frames that are too large, are dropped; the next client is served."""
    with BoardServer("127.0.0.41", 0) as server:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", struct.pack("!II", 1 << 31, 0), b""):
            with socket.create_connection(("127.0.0.41", server.port)) as sock:
                sock.sendall(garbage)
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(100) == b""
        assert TcpBoard("127.0.0.41", server.port, "a").names() == ()


def test_a_registration_that_does_not_read_as_one_is_an_error() -> None:
    """A malformed name is told, not skipped, and not taken for a place that cannot be reached."""
    with pytest.raises(BoardContentError, match="has 2 fields, needs 4"):
        registered(("a/member~10.0.0.4",))
    with pytest.raises(BoardContentError, match=r"'10\.0\.0' is no address"):
        registered(("a/member~10.0.0~0~1",))


@pytest.mark.parametrize("name", ["../x", "a", "a/b/c", "/b", "a/.b", "a/b c", "a/b\nc/d", "a" * 200 + "/b"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    """A name is MEMBER/OBJECT of plain characters; anything else is told and not stored."""
    with BoardServer("127.0.0.41", 0) as server:
        client = TcpBoard("127.0.0.41", server.port, "a")
        with pytest.raises(BoardContentError, match="is not MEMBER/OBJECT"):
            client._request({"do": "post", "name": name}, b"x")
        assert client.names() == ()


def test_a_folder_is_written_from_one_address_only() -> None:
    """Another host can read a verdict and cannot replace it; the first writer can."""
    with BoardServer("127.0.0.41", 0) as server:
        own = TcpBoard("127.0.0.41", server.port, "a")
        own.post("verdict-mesh.json", b"FAIL")
        refused = post_from("127.0.0.42", ("127.0.0.41", server.port), "a/verdict-mesh.json", b"PASS")
        kept = own.read("a/verdict-mesh.json")
        own.post("verdict-mesh.json", b"UNKNOWN")
        assert (kept, own.read("a/verdict-mesh.json")) == (b"FAIL", b"UNKNOWN")
        assert refused["ok"] is False
        assert "'a' is written by 127.0.0." in str(refused["error"])


def test_who_is_handed_on_writes_as_the_host_that_it_is() -> None:
    """A listener that hands on is not taken for the writer, so that folders stay apart there, too."""
    with carried() as (_, carrier):
        address = ("127.0.0.41", carrier)
        assert post_from("127.0.0.43", address, "a/mesh.json", b"1", ASK)["ok"] is True
        assert post_from("127.0.0.43", address, "a/mesh.json", b"2", ASK)["ok"] is True
        refused = post_from("127.0.0.42", address, "a/mesh.json", b"3", ASK)
        assert "'a' is written by 127.0.0.43, not by 127.0.0.42" in str(refused["error"])


def test_an_echo_is_not_taken_for_the_meeting_place() -> None:
    """A listener that hands nobody on gives the question back, and that is no way."""
    with Mesh("127.0.0.41", PortRange(42000, 43000), None) as mesh, socket.socket() as unused:
        unused.bind(("127.0.0.41", 0))
        port = unused.getsockname()[1]
        board = TcpBoard("127.0.0.41", port, "a", 0.0, (mesh.listeners[0].port,))
        with pytest.raises(BoardError, match=rf"cannot reach the meeting place tcp://127\.0\.0\.41:{port}"):
            board.names()


def test_what_is_no_store_of_torchs_cannot_be_used() -> None:
    """An echo on that port is told as a place that cannot be used."""
    with Mesh("127.0.0.41", PortRange(42000, 43000), None) as mesh:
        board = StoreBoard("127.0.0.41", mesh.listeners[0].port, "x", "a")
        with pytest.raises(BoardError, match="cannot use torchrun's store at 127"):
            board.post("mesh.json", b"1")


def test_all_objects_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is looked at before a body is read; empty objects need some too."""
    monkeypatch.setattr(tcp_board, "MAX_TOTAL_BYTES", 2000)
    with BoardServer("127.0.0.41", 0) as server:
        client = TcpBoard("127.0.0.41", server.port, "a")
        client.post("mesh.json", b"x" * 1000)
        with pytest.raises(BoardContentError, match="no room for 'a/more'"):
            client.post("more", b"x" * 10_000_000)
        client.post("o0", b"")
        client.post("o1", b"")
        with pytest.raises(BoardContentError, match="no room for 'a/o2'"):
            client.post("o2", b"")
        assert client.names() == ("a/mesh.json", "a/o0", "a/o1")


def post_from(
    source: str, server: tuple[str, int], name: str, body: bytes, ask: bytes = b""
) -> dict[str, object]:
    """What a client at another address is answered. ask: for the way to the meeting place, first."""
    with socket.create_connection(server, timeout=5, source_address=(source, 0)) as sock:
        if ask:
            sock.sendall(ask)
            assert tcp_board._exactly(sock, len(OPEN)) == OPEN
        tcp_board._send(sock, {"do": "post", "name": name}, body)
        return tcp_board._receive(sock)[0]
