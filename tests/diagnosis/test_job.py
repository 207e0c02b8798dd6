"""A failed all_reduce of four nodes: the first cause at its node, from what was seen and what was said."""

from __future__ import annotations

import dataclasses
import signal
from typing import Dict, List, Optional, Tuple

import pytest

from diagnosis.report import CollectiveResult, CollectiveStep, ConnectOutcome, Verdict
from tests.diagnosis import jobs
from tests.diagnosis.builders import all_reduce, change, diagnose, dies, named, suspected
from tests.diagnosis.jobs import BEGAN, BOTH, closed_by, hung, judged, killed, rank

STORE, CONNECT, BARRIER = CollectiveStep.STORE, CollectiveStep.CONNECT, CollectiveStep.BARRIER
MEASURE = CollectiveStep.MEASURE
OTHERS_LOST_2 = {node: rank(closed_by(2), at_s=BEGAN + 10.1) for node in (0, 1, 3)}
OTHERS_WAITED = {node: rank(jobs.WAITED, at_s=BEGAN + 40) for node in (0, 1, 3)}

Results = Dict[int, Optional[CollectiveResult]]
CASES: Dict[str, Tuple[Results, List[Tuple[str, str]]]] = {
    "killed": ({2: killed(signal.SIGKILL), **OTHERS_LOST_2}, [("peer-died", "node:2")]),
    "crashed": ({2: killed(signal.SIGSEGV), **OTHERS_LOST_2}, [("peer-died", "node:2")]),
    "exited": (
        {2: rank("the collective's process ended with 7 and without a result", status=7), **OTHERS_LOST_2},
        [("peer-died", "node:2")],
    ),
    "killed, and its neighbours abort later": (
        {2: killed(signal.SIGKILL), 1: killed(signal.SIGABRT, at_s=BEGAN + 10.2), 0: rank(closed_by(1))},
        [("peer-died", "node:2")],
    ),
    "two killed": (
        {2: killed(signal.SIGKILL), 1: killed(signal.SIGKILL, at_s=BEGAN + 11), 0: rank(closed_by(2))},
        [("peer-died", "node:2"), ("peer-died", "node:1")],
    ),
    "two abort: the first": (
        {3: killed(signal.SIGABRT, at_s=BEGAN + 9), 1: killed(signal.SIGABRT), 0: rank(closed_by(1))},
        [("peer-died", "node:3")],
    ),
    "the node is gone, and others fall one after the other": (
        {
            2: None,
            1: rank(closed_by(2), at_s=BEGAN + 10.1),
            0: rank(closed_by(1), at_s=BEGAN + 10.2),
            3: rank(closed_by(0), at_s=BEGAN + 10.3),
        },
        [("peer-died", "node:2")],
    ),
    "the kernel ended it for memory": (
        {2: killed(signal.SIGKILL, seen={"oom_kills": 1}), **OTHERS_LOST_2},
        [("peer-out-of-memory", "node:2")],
    ),
    "the kernel's log names it": (
        {
            2: killed(
                signal.SIGKILL,
                seen={"kernel_lines": ("Memory cgroup out of memory: Killed process 100 (python3)",)},
            ),
            **OTHERS_LOST_2,
        },
        [("peer-out-of-memory", "node:2")],
    ),
    "counters that did not move": (
        {2: killed(signal.SIGKILL, seen={"oom_kills": 0}), **OTHERS_LOST_2},
        [("peer-died", "node:2")],
    ),
    "torch had no memory": (
        {2: rank(jobs.NO_MEMORY), **OTHERS_LOST_2},
        [("peer-out-of-memory", "node:2")],
    ),
    "a GPU had no memory": (
        {2: rank("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"), **OTHERS_LOST_2},
        [("peer-out-of-memory", "node:2")],
    ),
    "stopped": ({2: hung(MEASURE, "T"), **OTHERS_WAITED}, [("peer-frozen", "node:2")]),
    "stopped before the store": (
        {
            2: hung(CollectiveStep.READY, "T"),
            0: rank(jobs.THREE_OF_FOUR, STORE),
            1: hung(CONNECT, "S", stack=(jobs.INSIDE,)),
            3: hung(CONNECT, "S", stack=(jobs.INSIDE,)),
        },
        [("peer-frozen", "node:2")],
    ),
    "stuck in the kernel": (
        {2: hung(MEASURE, "D", wait_channel="nfs_wait_bit_killable"), **OTHERS_WAITED},
        [("peer-frozen", "node:2")],
    ),
    "elsewhere in its program": (
        {
            2: hung(BARRIER, "S", stack=(jobs.OUTSIDE,)),
            0: rank(jobs.BARRIER_FAILED, BARRIER),
            1: rank(jobs.BARRIER_ECHO, BARRIER),
        },
        [("peer-not-in-collective", "node:2")],
    ),
    "torch's barrier alone names it": (
        {2: None, 0: rank(jobs.BARRIER_FAILED, BARRIER), 1: rank(jobs.BARRIER_ECHO, BARRIER)},
        [("peer-not-in-collective", "node:2")],
    ),
    "the store's process was killed": (
        {0: killed(signal.SIGKILL, CONNECT), **{n: rank(jobs.STORE_CLOSED, CONNECT) for n in (1, 2, 3)}},
        [("store-host-exited", "node:0")],
    ),
    "rank 0 was killed after the mesh stood": (
        {0: killed(signal.SIGKILL), **{n: rank(closed_by(0)) for n in (1, 2, 3)}},
        [("peer-died", "node:0")],
    ),
    "the store's whole node is gone": (
        {0: None, **{n: rank(jobs.STORE_CLOSED, CONNECT) for n in (1, 2, 3)}},
        [("store-host-exited", "node:0")],
    ),
    "no such transport": (
        {2: rank(jobs.NO_TRANSPORT, CONNECT), 0: hung(CONNECT, "S", stack=(jobs.INSIDE,))},
        [("transport-unsupported", "node:2")],
    ),
    "no descriptors, told before an abort": (
        {
            2: killed(
                signal.SIGABRT,
                CONNECT,
                log=(
                    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
                    "  what():  [enforce fail at /gloo/transport/tcp/listener.cc:79] false. accept: "
                    "Too many open files",
                ),
            ),
            **OTHERS_LOST_2,
        },
        [("fd-limit", "node:2")],
    ),
    "no descriptors": ({2: rank(jobs.NO_FILES, CONNECT), **OTHERS_LOST_2}, [("fd-limit", "node:2")]),
    "other sizes": (
        {
            2: jobs.asked(hung(MEASURE, "S", stack=(jobs.INSIDE,)), asked_bytes=4096),
            **OTHERS_WAITED,
        },
        [("collective-mismatch", "node:2")],
    ),
    "a wrong number on one rank": (
        {2: rank("", wrong_values="element 5 of 9 is 4, not 3 (1 differ)"), **OTHERS_LOST_2},
        [("collective-wrong-result", "node:2")],
    ),
    "wrong numbers everywhere": (
        {node: rank("", wrong_values="element 5 of 9 is 4, not 3 (1 differ)") for node in range(4)},
        [("collective-wrong-result", "cluster")],
    ),
    "two faults at once": (
        {1: rank(jobs.NO_FILES, CONNECT, at_s=BEGAN + 5), 2: hung(MEASURE, "T"), 0: rank(jobs.WAITED)},
        [("fd-limit", "node:1"), ("peer-frozen", "node:2")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_failed_job_has_its_first_cause(case: str) -> None:
    """FAIL with exactly these causes, the first one first, and no candidates."""
    results, expected = CASES[case]
    diagnosis = judged(results)
    assert named(diagnosis) == expected
    assert (diagnosis.verdict, diagnosis.candidates) == (Verdict.FAIL, ())


def test_ports_and_addresses_become_members() -> None:
    """Gloo's swapped port is told as it is, beside the node that it belongs to, and how much later."""
    (cause,) = judged({2: killed(signal.SIGKILL), **OTHERS_LOST_2}).causes
    assert cause.evidence[0] == "node:2 process 100 was ended by SIGKILL in step measured all_reduce"
    assert "Connection closed by peer [10.20.1.12]:16540 (node:2 port 40000)" in cause.evidence[1]
    assert cause.evidence[1].startswith("node:0: measured all_reduce: RuntimeError: ")
    assert cause.evidence[1].endswith("(+0.10 s)")


def test_who_was_first_is_told_on_one_clock() -> None:
    """Node 1's clock is an hour ahead: its line is the earliest all the same, so node 2 was lost first."""
    results: Results = {
        2: None,
        1: rank(closed_by(2), at_s=BEGAN + 3600 + 10.1),
        0: rank(closed_by(1), at_s=BEGAN + 10.2),
        3: rank(closed_by(1), at_s=BEGAN + 10.2),
    }
    rows = jobs.rows(results)
    ahead = {0: 0.0, 1: 3600.0, 2: 0.0, 3: 0.0}
    for node, row in enumerate(rows):
        probes = tuple(
            dataclasses.replace(
                probe,
                clock_offset_s=ahead[int(probe.destination[2:])] - ahead[node],
                clock_error_s=0.0001,
            )
            for probe in row.probes or ()
        )
        rows = change(rows, node, probes=probes)
    assert ("peer-died", "node:2") in named(diagnose(rows, stages=BOTH))


def test_nobody_is_named_where_everybody_waits_inside_torch() -> None:
    """All four wait in the same step, and nothing that was seen tells them apart."""
    results: Results = {
        node: hung(MEASURE, "S", stack=(jobs.INSIDE,), receive_queue_bytes=0, send_queue_bytes=0)
        for node in range(4)
    }
    diagnosis = judged(results)
    assert named(diagnosis) == []
    assert suspected(diagnosis)[0] == ("peer-not-in-collective", "cluster")
    assert diagnosis.verdict is Verdict.FAIL


def test_what_the_mesh_has_proven_is_no_candidate() -> None:
    """ "No data came" has four explanations in a log; a path that eats packets is not one of them here."""
    diagnosis = judged({node: rank(jobs.WAITED) for node in range(4)})
    ids = [cause_id for cause_id, _ in suspected(diagnosis)]
    assert ids == ["peer-not-in-collective", "collective-mismatch", "peer-frozen", "timeout-too-short"]


def test_a_member_whose_row_is_there_is_not_missing() -> None:
    """The store counted 3 of 4 in time, but all four members met before: one came late, or hung."""
    diagnosis = judged({0: rank(jobs.THREE_OF_FOUR, STORE), 2: rank("ValueError: x", STORE)})
    assert "peer-missing" not in {item.id for item in (*diagnosis.causes, *diagnosis.candidates)}
    assert diagnosis.verdict is Verdict.FAIL


def test_a_failed_job_over_a_mesh_that_broke_is_its_consequence() -> None:
    """Where pairs are blocked, no cause of the job's is named beside the blocked pairs."""
    rows = dies(
        jobs.rows({node: rank(jobs.WAITED) for node in range(4)}),
        lambda s, d, _: {s, d} == {1, 3},
        ConnectOutcome.TIMED_OUT,
    )
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == [("pair-blocked", "pair:1>3")]


# --- time-outs -----------------------------------------------------------------------------------


def imported(node_s: Dict[int, float], **changes: object) -> Results:
    """Good results of nodes whose imports of torch took so long."""
    results: Results = {}
    for node, seconds in node_s.items():
        steps = {CollectiveStep.IMPORT.value: BEGAN, CollectiveStep.READY.value: BEGAN + seconds}
        results[node] = all_reduce(4, steps=steps, **changes)
    return results


def test_a_time_out_below_the_start_up_skew_is_too_short() -> None:
    """One member's torch takes 8 s longer; a job's time-out of 3 s would pass meanwhile, one of 9 s not."""
    slow = {0: 1.0, 1: 1.2, 2: 9.2, 3: 1.1}
    assert named(judged(imported(slow, timeout_s=3.0))) == [("timeout-too-short", "cluster")]
    assert named(judged(imported(slow, timeout_s=9.0))) == []
    assert named(judged(imported({**slow, 2: 60.0}, timeout_s=30.0))) == []


def test_a_member_that_is_ready_after_the_others_gave_up_is_late() -> None:
    """The others waited until BEGAN + 20; node 2 was ready six seconds later."""
    results = imported({0: 1.0, 1: 1.0, 2: 26.0, 3: 1.0}, outcome=Verdict.UNKNOWN, timeout_s=30.0)
    rows = jobs.rows(results)
    for node in range(4):
        rows = change(rows, node, finished_at=BEGAN + (27 if node == 2 else 20))
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == [("peer-late", "node:2")]
    assert diagnosis.verdict is Verdict.FAIL


def test_a_step_that_begins_after_others_time_out_passed_is_late() -> None:
    """Node 2 came to the store 31 s after rank 0, which counted its clients for 30 s."""
    late = rank("DistNetworkError: The client socket has timed out after 30000ms", STORE)
    late = jobs.asked(late, steps={**late.steps, STORE.value: BEGAN + 32.1})
    waits = rank(jobs.THREE_OF_FOUR, STORE)
    assert named(judged({0: waits, 2: late})) == [("peer-late", "node:2")]
    hasty = {0: jobs.asked(waits, timeout_s=5.0), 2: jobs.asked(late, timeout_s=5.0)}
    assert named(judged(hasty)) == [("timeout-too-short", "cluster")]
