"""What ranks of a failed all_reduce came to, as real runs of four nodes told it (torch 2.13)."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Mapping, Optional, Tuple

from diagnosis.report import (
    STEP_ORDER,
    CollectiveResult,
    CollectiveStep,
    Diagnosis,
    ProcessFacts,
    Verdict,
)
from tests.diagnosis.builders import STARTED_AT, Reports, address, all_reduce, change, diagnose, healthy

BEGAN = STARTED_AT + 10.0
BOTH = ("mesh", "collective")
_GLOO = "/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp"


def swapped(port: int) -> int:
    """A port as Gloo prints it."""
    return (port & 0xFF) << 8 | port >> 8


def closed_by(node: int, port: int = 40000) -> str:
    return (
        f"RuntimeError: [{_GLOO}/pair.cc:553] Connection closed by peer [{address(node)}]:{swapped(port)}. "
        "This is typically caused by a remote worker crashing. Check the logs of the remote worker before "
        "reporting an error. GLHF!"
    )


WAITED = (
    f"RuntimeError: [{_GLOO}/unbound_buffer.cc:78] Timed out waiting 30000ms for recv operation to complete"
)
STORE_CLOSED = (
    "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server "
    "shutdown or crash?"
)
THREE_OF_FOUR = "DistStoreError: Timed out after 31 seconds waiting for clients. 3/4 clients joined."
NO_TRANSPORT = "RuntimeError: makeDeviceForInterface(): unsupported gloo device"
NO_FILES = (
    f"RuntimeError: [enforce fail at {_GLOO}/socket.cc:24] rv != -1. -1 vs -1. socket: Too many open files"
)
NO_MEMORY = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 67108864 bytes. Error code 12 (Cannot allocate memory)"
)
BARRIER_FAILED = "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 30000 ms"
BARRIER_ECHO = (
    "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for "
    "send/recv from rank 0. Please check rank 0 logs for faulty rank."
)
INSIDE = 'File "/venv/torch/distributed/distributed_c10d.py", line 5435 in monitored_barrier'
OUTSIDE = 'File "/job/data.py", line 12 in next_batch'


def steps(last: CollectiveStep, at_s: float = BEGAN) -> Dict[str, float]:
    """Every step up to one, half a second apart."""
    through = STEP_ORDER[: STEP_ORDER.index(last) + 1]
    return {step.value: at_s + 0.5 * place for place, step in enumerate(through)}


def rank(
    error: str,
    last: CollectiveStep = CollectiveStep.MEASURE,
    *,
    status: Optional[int] = 1,
    at_s: float = BEGAN + 10,
    log: Tuple[str, ...] = (),
    seen: Optional[Mapping[str, Any]] = None,
    **changes: Any,
) -> CollectiveResult:
    """A rank that failed. error: what torch raised; status: of its process, None = the probe ended it."""
    return all_reduce(
        4,
        outcome=Verdict.FAIL,
        error=f"{last.value}: {error}",
        bytes=0,
        asked_bytes=1 << 26,
        timeout_s=30.0,
        steps=steps(last),
        log=log,
        process=ProcessFacts(pid=100, exit_status=status, ended_at=at_s, **(seen or {})),
        **changes,
    )


def killed(signal: int, last: CollectiveStep = CollectiveStep.MEASURE, **changes: Any) -> CollectiveResult:
    return rank("the collective's process was ended by a signal", last, status=-signal, **changes)


def hung(last: CollectiveStep, state: str, **seen: Any) -> CollectiveResult:
    """A rank that the probe had to end, six seconds after the others had failed."""
    facts = {"state": state, "idle_s": 12.0, **seen}
    words = "the collective's process did not end and was ended by the probe"
    return rank(words, last, status=None, at_s=BEGAN + 46, seen=facts)


def rows(results: Mapping[int, Optional[CollectiveResult]]) -> Reports:
    """Four nodes whose mesh passed, with these results; None = no result; the others' are good."""
    found = healthy(4, collective=True)
    for node, result in results.items():
        found = change(found, node, collective=result, finished_at=BEGAN + 50)
    return found


def judged(results: Mapping[int, Optional[CollectiveResult]]) -> Diagnosis:
    return diagnose(rows(results), stages=BOTH)


def asked(result: CollectiveResult, **changes: Any) -> CollectiveResult:
    return dataclasses.replace(result, **changes)
