"""version-mismatch: what has to be alike, what need not, and what a passed all_reduce proves."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

import pytest

from diagnosis.report import Verdict
from tests.diagnosis.builders import Named, Reports, all_reduce, change, diagnose, healthy, named, on_host

GIT = {"2.13.0": "cf30153c4c131c81", "2.12.1": "0123456789abcdef"}


def versions(torch: str = "2.13.0+cpu", python: str = "3.11.7", **others: str) -> Dict[str, str]:
    """Of one Python; torch "" = it has none."""
    build = {"torch": torch, "torch_git": GIT[torch.partition("+")[0]]} if torch else {}
    return {"python": python, "kernel": "6.1", **build, **others}


def with_versions(*told: Dict[str, str]) -> Reports:
    rows = healthy(len(told))
    for node, one in enumerate(told):
        rows = on_host(rows, [node], versions=one)
    return rows


def of(*nodes: int) -> Named:
    return [("version-mismatch", f"node:{node}") for node in nodes]


SAME, OLD = versions(), versions("2.12.1+cpu")
CASES: Dict[str, Tuple[Sequence[Dict[str, str]], Named]] = {
    "all alike": ([SAME] * 4, []),
    "one older torch": ([SAME, SAME, OLD, SAME], of(2)),
    "two of four": ([SAME, OLD, OLD, SAME], [("version-mismatch", "cluster")]),
    "one Python of another minor version": ([SAME, versions(python="3.10.2"), SAME, SAME], of(1)),
    "a patch of Python": ([SAME, versions(python="3.11.9"), SAME, SAME], []),
    "another kernel and system": ([SAME, versions(kernel="5.10", os="Ubuntu"), SAME, SAME], []),
    "CPU and CUDA of one commit": ([SAME, versions("2.13.0+cu126"), SAME, SAME], []),
    "one Python without torch": ([SAME, versions("", "3.9.16"), SAME, SAME], []),
    "no torch anywhere": ([versions("", "3.9.16"), versions("", "3.12.1")], []),
    "no commit told, another release": (
        [{"torch": "2.13.0", "python": "3.11.1"}] * 3 + [{"torch": "2.12.1", "python": "3.11.1"}],
        of(3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_builds(name: str) -> None:
    """Exactly these causes."""
    told, expected = CASES[name]
    diagnosis = diagnose(with_versions(*told))
    assert named(diagnosis) == expected
    assert diagnosis.verdict is (Verdict.FAIL if expected else Verdict.PASS)


def test_both_builds_are_told() -> None:
    """Versions and commits, of the node and of the others."""
    (found,) = diagnose(with_versions(SAME, SAME, OLD, SAME)).causes
    assert found.summary == (
        "node 2 (n2, 10.20.1.12) has torch 2.12.1+cpu (012345678), Python 3.11.7, "
        "the others torch 2.13.0+cpu (cf30153c4), Python 3.11.7"
    )
    assert found.evidence[2] == "node:2 torch 2.12.1+cpu (012345678), Python 3.11.7"


BOTH = ("mesh", "collective")


def collected(rows: Reports, **changes: object) -> Reports:
    for node in range(len(rows)):
        rows = change(rows, node, collective=all_reduce(len(rows), **changes))
    return rows


def test_an_all_reduce_that_passed_proves_the_builds() -> None:
    """What works together is no fault."""
    rows = collected(with_versions(SAME, SAME, OLD, SAME))
    assert named(diagnose(rows, 4, stages=BOTH)) == []


def test_the_python_that_ran_the_all_reduce_counts() -> None:
    """The probe's own Python is the system's on a deployed node; torch's is another."""
    rows = collected(healthy(), outcome=Verdict.FAIL, error="x", versions=SAME)
    rows = change(rows, 3, collective=all_reduce(4, outcome=Verdict.FAIL, error="x", versions=OLD))
    diagnosis = diagnose(rows, 4, stages=BOTH)
    assert named(diagnosis) == of(3)
    assert diagnosis.candidates == ()
