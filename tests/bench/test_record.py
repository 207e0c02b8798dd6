"""Figures side by side and the documents that keep them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.record import BenchError, Comparison, Figure, Result, Target, document, read, table, write


def comparison(ours: float | None, theirs: float | None, target: Target | None = None) -> Comparison:
    return Comparison(
        what="a thing",
        ours=Figure(label="ours", value=ours, note="silent" if ours is None else ""),
        theirs=Figure(label="theirs", value=theirs),
        target=target,
    )


def test_ratio_is_theirs_to_ours_or_the_other_way_round_when_asked() -> None:
    """Above 1, ours is the smaller; a question of cost asks the other way round."""
    assert comparison(2.0, 10.0).ratio == 5.0
    other_way = Comparison(
        what="cost",
        ours=Figure(label="ours", value=10.0),
        theirs=Figure(label="theirs", value=4.0),
        ours_to_theirs=True,
    )
    assert other_way.ratio == 2.5


@pytest.mark.parametrize(("ours", "theirs"), [(None, 1.0), (1.0, None), (0.0, 1.0)])
def test_ratio_of_what_was_not_measured_is_none(ours: float | None, theirs: float | None) -> None:
    """A side without a value, or a zero to divide by, gives no ratio rather than a wrong one."""
    assert comparison(ours, theirs).ratio is None


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target(limit=5.0, on_ratio=True, at_least=True), True),
        (Target(limit=5.1, on_ratio=True, at_least=True), False),
        (Target(limit=2.0), True),
        (Target(limit=1.9), False),
        (None, None),
    ],
)
def test_target_is_met_at_its_limit_and_not_past_it(target: Target | None, met: bool | None) -> None:
    """A target bounds the ratio or our own figure, from either side, the limit included."""
    assert comparison(2.0, 10.0, target).met is met


def test_target_of_a_figure_that_was_never_reached_is_not_met_nor_missed() -> None:
    """Not measured is neither: it is printed as such."""
    never = comparison(None, 10.0, Target(limit=3.0))
    assert never.met is None
    assert table([never]) == (
        "  a thing\n    ours   silent\n    theirs 10 s\n    target at most 3: not measured"
    )


def test_table_aligns_figures_and_says_what_missed() -> None:
    """The printed text: both figures, the ratio with its direction, the target and its verdict."""
    text = table([comparison(2.0, 1234.5, Target(limit=1.0))])
    assert text == (
        "  a thing\n"
        "    ours   2 s\n"
        "    theirs 1,234 s\n"
        "    ratio, second to first 617 x\n"
        "    target at most 1: NOT met"
    )


def test_document_keeps_data_beside_what_repeats_the_run() -> None:
    """A record says when, on what machine and by which command, and holds the benchmark's own fields."""
    record = document("synth", "python -m bench synth", Result((comparison(2.0, 10.0),), {"runs": [1]}))
    assert record["name"] == "synth"
    assert record["command"] == "python -m bench synth"
    assert record["runs"] == [1]
    assert sorted(record["machine"]) == [
        "architecture",
        "cores",
        "kernel",
        "memory_gib",
        "python",
        "torch",
    ]
    assert record["comparisons"] == [
        {
            "what": "a thing",
            "ours": {"label": "ours", "value": 2.0, "unit": "s", "note": ""},
            "theirs": {"label": "theirs", "value": 10.0, "unit": "s", "note": ""},
            "ratio": 5.0,
            "target": None,
            "met": None,
        }
    ]


def test_document_refuses_data_that_would_hide_the_header() -> None:
    """A benchmark cannot replace the date or the command of its own record."""
    with pytest.raises(ValueError, match=r"benchmark synth: data holds reserved fields \['command'\]"):
        document("synth", "python -m bench synth", Result((), {"command": "true"}))


def test_written_record_reads_back_and_an_absent_one_is_none(tmp_path: Path) -> None:
    """write and read agree, a folder without the record has none, and no half-written file stays."""
    assert read(tmp_path / "new", "synth") is None
    path = write(tmp_path / "new", "synth", {"name": "synth"})
    assert json.loads(path.read_text()) == {"name": "synth"}
    assert read(tmp_path / "new", "synth") == {"name": "synth"}
    assert [item.name for item in (tmp_path / "new").iterdir()] == ["synth.json"]


@pytest.mark.parametrize("text", ['{"name": ', "[]"])
def test_record_that_does_not_read_is_an_error_with_the_next_step(tmp_path: Path, text: str) -> None:
    """A damaged record is never taken for an absent one: what it kept would be lost."""
    (tmp_path / "synth.json").write_text(text)
    with pytest.raises(BenchError, match=r"synth\.json .*: delete it and run python -m bench synth"):
        read(tmp_path, "synth")
