"""A real all_reduce in real processes, and what is told when torch hangs, dies or is refused."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest

from diagnosis.report import CollectiveResult, Verdict
from probe import collective_process
from probe.collective import _first_difference
from probe.collective_process import CollectiveTask, run_in_process


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def run_ranks(
    count: int,
    world_size: int,
    act: Callable[[int, int], None] | None = None,
    *,
    size: int = 1024,
    timeout_s: float = 30.0,
    ready: bool = True,
) -> dict[int, CollectiveResult]:
    """Ranks 0 to count - 1 of a world, each in its process; `act(rank, pid)` once it has started."""
    port = free_port()
    results: dict[int, CollectiveResult] = {}

    def one(rank: int) -> None:
        task = CollectiveTask(
            rank=rank,
            world_size=world_size,
            master_address="127.0.0.1",
            master_port=port,
            interface="lo",
            bytes=size,
            timeout_s=timeout_s,
        )

        def say(text: str) -> None:
            pid = re.search(r"pid (\d+)", text)
            if act is not None and pid:
                act(rank, int(pid[1]))

        results[rank] = run_in_process(task, dict(os.environ), say, lambda: ready)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_ranks_agree_on_the_known_answer_and_measure() -> None:
    """Every element is right on both ranks; busbw is 2 (n - 1) / n of algbw, which is bits over time."""
    results = run_ranks(2, 2, size=4 * 1024 * 1024)
    for result in results.values():
        assert (result.outcome, result.error, result.wrong_values) == (Verdict.PASS, None, None)
        assert (result.world_size, result.bytes) == (2, 4 * 1024 * 1024)
        assert result.time_s is not None
        assert result.algbw_gbit_per_s == pytest.approx(result.bytes * 8 / result.time_s / 1e9, rel=0.01)
        assert result.busbw_gbit_per_s == result.algbw_gbit_per_s


def test_a_missing_rank_is_a_fail_with_torchs_words() -> None:
    """One of two came: the store's own words say so, after its time-out."""
    (result,) = run_ranks(1, 2, timeout_s=3.0).values()
    assert result.outcome is Verdict.FAIL
    assert "1/2 clients joined" in (result.error or "")


def test_members_that_never_come_are_unknown_not_a_fail() -> None:
    """Where not everybody got as far as torch, no rank waits inside it, and nothing is claimed."""
    (result,) = run_ranks(1, 2, ready=False).values()
    assert (result.outcome, result.error) == (Verdict.UNKNOWN, "not every member came to the collective")


def test_a_hang_is_ended_by_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that torch never returns to writes its result itself and names the step."""
    monkeypatch.setattr(collective_process, "WATCHDOG_FACTOR", 5)
    started = time.monotonic()
    (result,) = run_ranks(1, 2, timeout_s=0.1).values()
    assert result.outcome is Verdict.FAIL
    assert re.match(r"rendezvous: ", result.error or "")
    assert time.monotonic() - started < 20


def test_a_killed_worker_is_told_with_its_signal() -> None:
    """SIGKILL, as the kernel sends it when memory runs out, is no silence."""
    (result,) = run_ranks(1, 2, act=lambda _, pid: os.kill(pid, signal.SIGKILL)).values()
    assert (result.outcome, result.error) == (
        Verdict.FAIL,
        "the collective's process was ended by SIGKILL (out of memory? see dmesg); last lines: none",
    )


def test_a_wrong_number_is_found_wherever_it_stands() -> None:
    """The first differing element is named with both values."""
    torch = pytest.importorskip("torch")
    expected = torch.arange(1000, dtype=torch.float64)
    values = expected.clone()
    assert _first_difference(values, expected) is None
    values[998] = 3
    values[999] = float("nan")
    assert _first_difference(values, expected) == "element 998 of 1000 is 3, not 998 (2 differ)"
