"""Logs of a given size that end with the line that counts; a run that must find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import explain, explain_logs
from bench.record import BenchError


@pytest.mark.parametrize("kind", explain_logs.KINDS)
def test_a_log_is_of_its_size_and_its_last_line_is_explained(kind: str, tmp_path: Path) -> None:
    """Each kind is as large as asked for, the same each time, and its end is read."""
    log = tmp_path / "job.log"
    size = 2 * explain_logs.PIECE_BYTES
    explain_logs.write(log, kind, size)
    assert size <= log.stat().st_size <= size * 1.5
    assert log.read_bytes().endswith(b"\n" + explain_logs.LAST_LINE)
    assert explain_logs.piece(kind) == explain_logs.piece(kind)
    run = explain.explained((str(log),), iter(()))
    assert run.cpu_s > 0
    assert 5e6 < run.peak_bytes < explain.MEMORY_TARGET.limit * explain.MEGABYTE


def test_an_answer_without_the_cause_is_no_measurement() -> None:
    """A reader that misses the last line must not be called fast."""
    with pytest.raises(BenchError, match=r"explain ended with 3 and \[\]"):
        explain.explained(("-",), iter([b"nothing of interest\n"]))


def test_a_start_is_compared_turn_by_turn() -> None:
    """The figure is the median of the differences, not the difference of two medians."""
    started = {"python -c pass": [0.02, 0.05, 0.03], "fullmesh": [0.06, 0.07, 0.09]}
    compared = explain.start_comparison("fullmesh", started)
    assert compared.ours.value == pytest.approx(0.04)
    assert compared.met is True
