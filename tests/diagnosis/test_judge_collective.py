"""An all_reduce that is wrong, of another size, or failed over a good and over a broken mesh."""

from __future__ import annotations

from typing import Any

from diagnosis.report import Verdict
from tests.diagnosis.builders import (
    MASTER_PORT,
    Reports,
    all_reduce,
    change,
    diagnose,
    drops,
    healthy,
    named,
    suspected,
)

BOTH = ("mesh", "collective")


def collective(rows: Reports, node: int, **changes: Any) -> Reports:
    return change(rows, node, collective=all_reduce(4, **changes))


def test_wrong_numbers_are_named_at_their_rank() -> None:
    """The known answer did not come on one rank."""
    rows = collective(healthy(4, True), 2, outcome=Verdict.FAIL, wrong_values="element 7 is 9.0, not 10.0")
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == [("collective-wrong-result", "node:2")]
    assert suspected(diagnosis) == []


def test_a_collective_of_another_size_is_a_mismatch() -> None:
    """An all_reduce over three ranks says nothing about four."""
    rows = change(healthy(4, True), 2, collective=all_reduce(3))
    assert named(diagnose(rows, stages=BOTH)) == [("world-size-mismatch", "node:2")]


def test_a_failed_collective_over_a_good_mesh_is_undetermined() -> None:
    """The text alone does not decide who failed first."""
    rows = healthy(4, True)
    for node in range(4):
        rows = collective(rows, node, outcome=Verdict.FAIL, error="Timed out waiting 15000ms for recv")
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == []
    assert suspected(diagnosis)[0] == ("peer-not-in-collective", "cluster")
    assert diagnosis.verdict is Verdict.FAIL


def test_a_failed_collective_over_a_broken_mesh_is_its_consequence() -> None:
    """The named cause stands alone; the collective follows from it."""
    rows = drops(healthy(4, True), lambda s, d, p: p != MASTER_PORT)
    for node in range(4):
        rows = collective(rows, node, outcome=Verdict.FAIL, error="Connect timeout [none]")
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == [("sg-only-master-port", "cluster")]
    assert [(item.id, item.subject) for item in diagnosis.consequences] == [
        ("peer-not-in-collective", "cluster")
    ]
    assert suspected(diagnosis) == []
