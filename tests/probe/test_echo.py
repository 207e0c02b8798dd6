"""The small message: an echo that also tells the listener's clock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time

import pytest

from cluster.ports import PortRange
from diagnosis.report import ConnectOutcome, PortKind
from probe import echo, outcome
from probe.mesh import Mesh
from probe.plan import ProbeTarget


@pytest.mark.parametrize("ahead_s", [0.0, 3.0, -3.0])
@pytest.mark.parametrize("way_there_s", [0.001, 0.4])
def test_the_offset_is_right_to_within_its_error(ahead_s: float, way_there_s: float) -> None:
    """Also where the way there takes far longer than the way back."""
    asked = echo.question()
    sent_at, way_back_s = 1000.0, 0.002
    came_at = sent_at + way_there_s + ahead_s
    received = asked[:24] + echo._TIMES.pack(came_at, came_at + 0.01)
    read = echo.clock_reading(received, sent_at, sent_at + way_there_s + 0.01 + way_back_s)
    assert read is not None
    assert read.error_s == pytest.approx((way_there_s + way_back_s) / 2)
    assert abs(read.offset_s - ahead_s) <= read.error_s + 1e-9


def test_a_clock_that_is_set_meanwhile_is_not_read() -> None:
    """An exchange that seems to take less than no time tells nothing."""
    asked = echo.question()
    received = asked[:24] + echo._TIMES.pack(1000.0, 1000.5)
    assert echo.clock_reading(received, 1000.0, 1000.1) is None
    backwards = asked[:24] + echo._TIMES.pack(1000.5, 1000.0)
    assert echo.clock_reading(backwards, 1000.0, 1001.0) is None


def test_a_mere_echo_tells_no_time() -> None:
    """A listener of another release sends the question back: an answer, and no clock."""
    asked = echo.question()
    assert echo.is_answer(asked, asked)
    assert echo.clock_reading(asked, 1.0, 2.0) is None


def test_only_a_question_is_answered() -> None:
    """Everything else comes back as it is, also what merely begins like a question."""
    asked = echo.question()
    for message in (b"", b"fullmesh", asked[:-1], asked + b"x", os.urandom(echo.SMALL_BYTES)):
        assert echo.answer(message, 5.0) == message
    told = echo.answer(asked, 5.0)
    assert told != asked
    assert echo.is_answer(asked, told)
    assert not echo.is_answer(asked, echo.answer(echo.question(), 5.0))  # of another question
    assert not echo.is_answer(b"payload" * 100, b"payload" * 99 + b"pAyload")


def test_a_probe_reads_the_peers_clock() -> None:
    """Over loopback both have one clock: the offset is within the error, and that within the time taken."""
    with Mesh("127.0.0.47", PortRange(41000, 41999), None) as mesh:
        port = mesh.listeners[0].port
        target = ProbeTarget(destination="p", address="127.0.0.47", port=port, kind=PortKind.EPHEMERAL)
        started = time.monotonic()
        (seen,) = mesh.probe([target])
        took_s = time.monotonic() - started
    assert seen.outcome is ConnectOutcome.CONNECTED
    assert seen.clock_offset_s is not None
    assert seen.clock_error_s is not None
    assert abs(seen.clock_offset_s) <= seen.clock_error_s + 2e-6
    assert 0 < seen.clock_error_s < took_s


def test_a_foreign_echo_is_connected_without_a_clock() -> None:
    """Whatever returns the same bytes counts as an echo, and its clock stays unknown."""
    with socket.create_server(("127.0.0.48", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                while data := connection.recv(65536):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        seen = asyncio.run(outcome.attempt("127.0.0.48", listener.getsockname()[1]))
    assert (seen.outcome, seen.clock) == (ConnectOutcome.CONNECTED, None)
