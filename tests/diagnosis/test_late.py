"""peer-late: who came when the others had gone, and why, as far as boots tell."""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

import pytest

from diagnosis.report import Verdict
from tests.diagnosis.builders import STARTED_AT, Reports, change, diagnose, healthy, named

GAVE_UP_AFTER_S = 60.0


def waited(
    rows: Reports, late: Sequence[int], after_s: float = 100.0, booted_s: Optional[float] = None
) -> Reports:
    """The others met without these members and ended; these began so much later.

    booted_s: when they had booted, relative to the others' start; the others booted 30 s before it.
    """
    early = [node for node in range(len(rows)) if node not in late]
    for node in early:
        others = {f"i-{one}": (rows[node].members)[f"i-{one}"] for one in early}
        probes = tuple(p for p in rows[node].probes or () if int(p.destination[2:]) in early)
        rows = change(
            rows,
            node,
            members=others,
            probes=probes,
            finished_at=STARTED_AT + GAVE_UP_AFTER_S,
            booted_at=STARTED_AT - 30 if booted_s is not None else None,
        )
    for node in late:
        rows = change(
            rows,
            node,
            started_at=STARTED_AT + after_s,
            finished_at=STARTED_AT + after_s + 3,
            booted_at=STARTED_AT + booted_s if booted_s is not None else None,
        )
    return rows


def test_a_member_that_came_when_the_others_had_gone() -> None:
    """Named at this node, with how long after the others it began."""
    diagnosis = diagnose(waited(healthy(), [3]))
    assert named(diagnosis) == [("peer-late", "node:3")]
    assert diagnosis.verdict is Verdict.FAIL
    (found,) = diagnosis.causes
    assert found.summary == (
        "node 3 (n3, 10.20.1.13) began 100 s after the others, who had given up waiting by then"
    )
    assert "the others met 3 of 4 members and ended after 60.0 s" in found.evidence


def test_two_late_members() -> None:
    """Each of its own."""
    assert named(diagnose(waited(healthy(), [1, 3]))) == [("peer-late", "node:1"), ("peer-late", "node:3")]


def test_a_member_that_the_others_still_met_is_not_late() -> None:
    """They waited for it: starts that are far apart are no fault by themselves."""
    rows = change(healthy(), 3, started_at=STARTED_AT + 100, finished_at=STARTED_AT + 103)
    rows = tuple(dataclasses.replace(row, finished_at=STARTED_AT + 103) for row in rows)
    assert named(diagnose(rows)) == []


def test_a_clock_that_is_ahead_makes_nobody_late() -> None:
    """Its times are beyond the others' end, but they met it."""
    rows = change(healthy(), 3, started_at=STARTED_AT + 600, finished_at=STARTED_AT + 603)
    assert ("peer-late", "node:3") not in named(diagnose(rows))


@pytest.mark.parametrize(
    ("booted_s", "words"),
    [
        pytest.param(60.0, "it booted 90 s after the last of them", id="launched late"),
        pytest.param(
            -25.0,
            "125 s passed between its boot and its probe, 30 s at most on the others "
            "(an installation, a download or a slow disk)",
            id="slow from boot to probe",
        ),
        pytest.param(-80000.0, "", id="started by hand, long after its boot"),
    ],
)
def test_the_reason_where_boots_tell_it(booted_s: float, words: str) -> None:
    """An instance that was launched late is told from one whose start-up was slow."""
    (found,) = diagnose(waited(healthy(), [3], booted_s=booted_s)).causes
    assert found.summary.partition("given up waiting by then")[2] == (f": {words}" if words else "")


def test_a_member_whose_probe_never_ran_is_not_late() -> None:
    """A row without probes tells another fault."""
    rows = change(waited(healthy(), [3]), 3, probes=None, listeners=None)
    assert ("peer-late", "node:3") not in named(diagnose(rows))
