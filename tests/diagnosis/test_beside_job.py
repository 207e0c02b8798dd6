"""A check beside a job that trains: what is left to the job is said, and is no gap."""

from __future__ import annotations

from diagnosis.report import PortKind, Verdict
from tests.diagnosis.builders import MASTER_PORT, Reports, change, diagnose, healthy, named

JOB = "pid 7 (python3) has torch loaded and 3 connections to other hosts"


def trains_on(node: int, job: str | None = JOB) -> Reports:
    """Four healthy nodes, one of which left MASTER_PORT alone: nobody probed it there."""
    rows = healthy()
    ports = tuple(item for item in rows[node].listeners or () if item.kind is not PortKind.MASTER)
    rows = change(rows, node, job=job, listeners=ports)
    for other in range(4):
        probes = tuple(
            item
            for item in rows[other].probes or ()
            if (item.destination, item.port) != (f"i-{node}", MASTER_PORT)
        )
        rows = change(rows, other, probes=probes)
    return rows


def test_a_port_that_is_left_to_a_job_is_no_open_question() -> None:
    """PASS on the mesh, with the reason for what was left out, at the node."""
    diagnosis = diagnose(trains_on(2))
    assert (diagnosis.verdict, named(diagnosis)) == (Verdict.PASS, [])
    assert diagnosis.skipped == (f"node:2: {JOB}; MASTER_PORT and the all_reduce are left to it",)


def test_without_a_job_the_same_gap_is_one() -> None:
    """A listener that is missing without a reason is not looked at, and so UNKNOWN."""
    assert diagnose(trains_on(2, job=None)).verdict is Verdict.UNKNOWN


def test_of_many_nodes_with_a_job_the_first_are_named() -> None:
    """Each node that trains has its line, up to four; the others are counted."""
    rows = healthy(6)
    for node in range(6):
        rows = change(rows, node, job=JOB)
    lines = diagnose(rows).skipped
    assert [line.partition(": ")[0] for line in lines] == [
        "node:0",
        "node:1",
        "node:2",
        "node:3",
        "and 2 more",
    ]
