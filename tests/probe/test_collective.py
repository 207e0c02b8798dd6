"""A real all_reduce in real processes, and what is told when torch hangs, dies or is refused."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from pathlib import Path

import pytest

from diagnosis.report import STEP_ORDER, CollectiveStep, Verdict
from probe import collective_process
from probe.collective import _first_difference
from tests.probe.ranks import other_way, run_ranks


def test_two_ranks_agree_on_the_known_answer_and_measure() -> None:
    """Every element is right on both ranks; busbw is 2 (n - 1) / n of algbw, which is bits over time."""
    results = run_ranks(2, 2, size=4 * 1024 * 1024)
    for result in results.values():
        assert (result.outcome, result.error, result.wrong_values) == (Verdict.PASS, None, None)
        assert (result.world_size, result.bytes) == (2, 4 * 1024 * 1024)
        assert result.time_s is not None
        assert result.algbw_gbit_per_s == pytest.approx(result.bytes * 8 / result.time_s / 1e9, rel=0.01)
        assert result.busbw_gbit_per_s == result.algbw_gbit_per_s


def test_every_step_is_told_with_its_time() -> None:
    """All steps of a good run, in their order, and an exit of 0 without a word of torch's."""
    result = run_ranks(2, 2)[1]
    assert list(result.steps) == [step.value for step in STEP_ORDER]
    assert sorted(result.steps.values()) == list(result.steps.values())
    assert time.time() - 300 < result.steps[CollectiveStep.IMPORT.value] < time.time()
    assert result.process is not None
    assert (result.process.exit_status, result.log) == (0, ())


def test_a_missing_rank_is_a_fail_with_torchs_words() -> None:
    """One of two came: the store's own words say so, after its time-out."""
    (result,) = run_ranks(1, 2, timeout_s=3.0).values()
    assert result.outcome is Verdict.FAIL
    assert re.match(r"store: DistStoreError: Timed out .* 1/2 clients joined", result.error or "")
    assert result.step is CollectiveStep.STORE


def test_members_that_never_come_are_unknown_not_a_fail() -> None:
    """Where not everybody got as far as torch, no rank waits inside it, and nothing is claimed."""
    (result,) = run_ranks(1, 2, ready=False).values()
    assert (result.outcome, result.error) == (Verdict.UNKNOWN, "not every member came to the collective")
    assert result.step is CollectiveStep.READY


def test_a_killed_worker_is_told_with_its_signal() -> None:
    """SIGKILL, as the kernel sends it when memory runs out, is no silence."""

    def kill(text: str) -> None:
        found = re.search(r"pid (\d+)", text)
        assert found is not None
        os.kill(int(found[1]), signal.SIGKILL)

    (result,) = run_ranks(1, 2, say=kill).values()
    assert result.outcome is Verdict.FAIL
    assert (result.error or "").endswith("the collective's process was ended by SIGKILL")
    assert result.process is not None
    assert result.process.exit_status == -signal.SIGKILL


def test_a_rank_that_ends_without_a_word_is_told_with_its_status(tmp_path: Path) -> None:
    """It exits in the middle of the job: its status and how far it had come; the other one lost it."""
    leaves = other_way(tmp_path, "barrier", "os._exit(7)")
    results = run_ranks(2, 2, {1: leaves}, timeout_s=10)
    left = results[1]
    assert left.error == "measured all_reduce: the collective's process ended with 7 and without a result"
    assert left.process is not None
    assert left.process.exit_status == 7
    assert re.search(r"Connection (closed|reset) by peer", results[0].error or "")


def test_a_stopped_rank_is_seen_and_ended(tmp_path: Path) -> None:
    """SIGSTOP in the all_reduce: state T and unread bytes, long before the others' time-out."""
    large = "if args[0].numel() > 10**6: {}\nreal(*args, **kwargs)"
    stops = other_way(tmp_path / "1", "all_reduce", large.format("os.kill(os.getpid(), signal.SIGSTOP)"))
    comes_after = other_way(tmp_path / "0", "all_reduce", large.format("time.sleep(1)"))
    started = time.monotonic()
    ways = {0: comes_after, 1: stops}
    stopped = run_ranks(2, 2, ways, size=8 * 1024 * 1024, timeout_s=60)[1]
    assert time.monotonic() - started < 50
    assert stopped.outcome is Verdict.FAIL
    assert re.search(r"ended by the probe: it was stopped by a signal for [56] s", stopped.error or "")
    seen = stopped.process
    assert seen is not None
    assert (seen.exit_status, seen.state, stopped.step) == (None, "T", CollectiveStep.MEASURE)
    assert seen.receive_queue_bytes is not None
    assert seen.receive_queue_bytes > 0
    assert seen.connections is not None
    assert seen.connections > 0


def test_a_rank_that_hangs_says_where_once_another_one_failed(tmp_path: Path) -> None:
    """It waits for something else: the others time out, and it is ended with where its Python stood."""
    waits = other_way(tmp_path, "monitored_barrier", "time.sleep(600)")
    started = time.monotonic()
    results = run_ranks(2, 2, {1: waits}, timeout_s=3, tell_each_other=True)
    assert time.monotonic() - started < 60
    assert re.search(r"Ranks 1 failed to pass monitoredBarrier in 3000 ms", results[0].error or "")
    assert re.search(r"ended by the probe: another member had failed \d+ s before", results[1].error or "")
    seen = results[1].process
    assert seen is not None
    assert (seen.exit_status, seen.state) == (None, "S")
    assert re.match(r'File ".*/sitecustomize.py", line \d+ in other', seen.stack[0])
    assert seen.idle_s is not None
    assert seen.idle_s > 3


def test_a_hang_alone_is_ended_after_the_time_that_is_given(tmp_path: Path) -> None:
    """Nobody else says anything: the limit of the stage holds, and the step is named."""
    waits = other_way(tmp_path, "rendezvous", "time.sleep(600)")
    started = time.monotonic()
    (result,) = run_ranks(1, 2, {0: waits}, patience_s=4).values()
    assert time.monotonic() - started < 40
    assert result.error == (
        "store: the collective's process did not end and was ended by the probe: no end within 4 s"
    )


def test_a_wrong_number_is_told_also_when_the_rank_hangs_later(tmp_path: Path) -> None:
    """The value is written at once, so that nothing that follows can hide it."""
    flips = other_way(tmp_path, "all_reduce", "real(*args, **kwargs)\nargs[0][-1] += 1\ntime.sleep(2)")
    (result, _) = (run_ranks(2, 2, {0: flips}, patience_s=3)[rank] for rank in (0, 1))
    assert (result.outcome, result.wrong_values) == (Verdict.FAIL, "element 0 of 1 is 7, not 6 (1 differ)")


def test_torch_gets_the_limit_of_open_files_that_a_job_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe raises its own limit; the worker has the first one, and torch says when it is too low."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    monkeypatch.setattr(collective_process, "started_with", lambda: (20, hard))
    results = run_ranks(2, 2, timeout_s=5, tell_each_other=True)
    assert any("Too many open files" in (result.error or "") for result in results.values())


def test_a_wrong_number_is_found_wherever_it_stands() -> None:
    """The first differing element is named with both values."""
    torch = pytest.importorskip("torch")
    expected = torch.arange(1000, dtype=torch.float64)
    values = expected.clone()
    assert _first_difference(values, expected) is None
    values[998] = 3
    values[999] = float("nan")
    assert _first_difference(values, expected) == "element 998 of 1000 is 3, not 998 (2 differ)"


def test_each_rank_times_what_comes_from_the_one_before() -> None:
    """Three ranks, three links of the ring, each with a figure of its own."""
    rates = [result.link_gbit_per_s for result in run_ranks(3, 3).values()]
    assert all(rate is not None and rate > 0.001 for rate in rates)
    assert len(set(rates)) == 3
