"""Places that a launcher's variables name: looked up, and tried as a job's process would."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from diagnosis.report import ConnectOutcome, Contact, Meeting
from probe.contact import read_contacts
from probe.torch_store import keys_in_store


@contextlib.contextmanager
def listening(answer: bytes = b"") -> Iterator[int]:
    """A port of 127.0.0.1 that takes a question and answers so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(100)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_store_that_listens_and_an_endpoint_that_does_not() -> None:
    """CONNECTED is the handshake alone; a closed port is REFUSED with its errno."""
    closed = free_port()
    with listening() as port:
        store, endpoint = read_contacts(
            {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PET_RDZV_ENDPOINT": f"127.0.0.1:{closed}"}
        )
    assert store == Contact(
        meeting=Meeting.STORE,
        host="127.0.0.1",
        port=port,
        addresses=("127.0.0.1",),
        address="127.0.0.1",
        outcome=ConnectOutcome.CONNECTED,
    )
    assert (endpoint.meeting, endpoint.port, endpoint.outcome, endpoint.errno) == (
        Meeting.RENDEZVOUS,
        closed,
        ConnectOutcome.REFUSED,
        errno.ECONNREFUSED,
    )


def test_a_name_that_does_not_resolve_is_not_tried() -> None:
    """The resolver's error is kept, and no outcome is made up."""
    (found,) = read_contacts({"MASTER_ADDR": "no-such-host.invalid", "MASTER_PORT": "29500"})
    assert (found.addresses, found.address, found.outcome) == ((), None, None)
    assert found.error


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, [], id="nothing set"),
        pytest.param({"MASTER_ADDR": "127.0.0.1"}, [], id="no port"),
        pytest.param({"MASTER_ADDR": " ", "MASTER_PORT": "1"}, [], id="a blank host"),
        pytest.param({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "x"}, [], id="no number"),
        pytest.param({"PET_RDZV_ENDPOINT": "127.0.0.1"}, [("127.0.0.1", 29400)], id="torchrun's own port"),
        pytest.param({"PET_RDZV_ENDPOINT": "[::1]:5"}, [("::1", 5)], id="brackets"),
        pytest.param(
            {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5", "PET_RDZV_ENDPOINT": "127.0.0.1:5"},
            [("127.0.0.1", 5)],
            id="one place, asked once",
        ),
    ],
)
def test_what_is_named(environ: dict[str, str], expected: list[tuple[str, int]]) -> None:
    """Only what reads as a place is tried."""
    assert [(found.host, found.port) for found in read_contacts(environ)] == expected


STORE = """
import sys, torch.distributed as d
uv = sys.argv[2] == "uv"
store = d.TCPStore("127.0.0.1", int(sys.argv[1]), 1, True, wait_for_workers=False, use_libuv=uv)
for name in ("a", "b", "c"):
    store.set(name, "x")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("back_end", ["uv", "plain"])
def test_torchs_own_store_tells_how_many_keys_it_has(back_end: str) -> None:
    """Real torch, both back ends; asking changes nothing."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-c", STORE, str(port), back_end], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as store:
        assert store.stdout is not None
        assert store.stdout.readline() == b"ready\n"
        assert [keys_in_store("127.0.0.1", port) for _ in range(2)] == [3, 3]
        store.kill()


def test_other_listeners_are_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, silence, a closed connection and a closed port are None, within the time-out."""
    monkeypatch.setattr("probe.torch_store.TIMEOUT_S", 0.2)
    started = time.monotonic()
    for answer in (b"HTTP/1.1 400 Bad Request\r\n", b"\xff" * 8, b"", b"abc"):
        with listening(answer) as port:
            assert keys_in_store("127.0.0.1", port) is None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert keys_in_store("127.0.0.1", silent.getsockname()[1]) is None
    assert keys_in_store("127.0.0.1", free_port()) is None
    assert time.monotonic() - started < 5
