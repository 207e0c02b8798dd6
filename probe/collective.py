"""A real all_reduce over Gloo: the answer is known, then the time is taken. Imports torch.

A worker process: `main` reads a CollectiveTask from its first argument and writes a
CollectiveResult to the file named by its second, whatever happens, a hang included. It says
on a descriptor when torch is imported, and begins when standard input says so.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import statistics
import sys
import threading
import time
from datetime import timedelta
from typing import Any, List, Optional

from cluster.serial import decode, encode
from diagnosis.report import CollectiveResult, Verdict
from probe.collective_process import GO, WATCHDOG_FACTOR, CollectiveTask

# Elements of the known-answer rounds: one, one segment, several segments (Gloo cuts at 1 MiB).
KNOWN_SIZES = (1, 1_000, 300_007)
RAMP = 1021  # a prime, so that shifted or repeated segments show
# The measurement takes about this long: enough to be steady, not to hold up a deploy.
MEASURE_S = 1.0
MAX_ROUNDS = 5
_FLOAT32_BYTES = 4


class Worker:
    """One rank. Keeps what is known so far, so that the watchdog can write it."""

    def __init__(self, task: CollectiveTask, answer: str, tell: int) -> None:
        """tell: a descriptor; a byte there says that torch is imported."""
        self.task = task
        self._tell = tell
        self.result = CollectiveResult(outcome=Verdict.UNKNOWN, world_size=task.world_size)
        self._answer = answer
        self._written = threading.Lock()
        self._step = "import torch"

    def run(self) -> None:
        """Watch over `_work`; the result is written once, by whoever is first."""
        try:
            self._work()
        except ImportError as error:
            self._note(outcome=Verdict.UNKNOWN, error=f"torch cannot be imported: {error}")
        except Exception as error:  # noqa: BLE001 - whatever torch raises is the result
            self._note(outcome=Verdict.FAIL, error=f"{self._step}: {type(error).__name__}: {error}"[:2000])
        self._write()

    def _watch(self) -> None:
        limit_s = self.task.timeout_s * WATCHDOG_FACTOR
        watchdog = threading.Timer(limit_s, self._give_up, (limit_s,))
        watchdog.daemon = True
        watchdog.start()

    def _give_up(self, limit_s: float) -> None:
        faulthandler.dump_traceback(sys.stderr)
        self._note(outcome=Verdict.FAIL, error=f"{self._step}: no end within {limit_s:g} s")
        self._write()
        os._exit(1)  # torch's threads cannot be interrupted

    def _note(self, **changes: Any) -> None:
        self.result = dataclasses.replace(self.result, **changes)

    def _write(self) -> None:
        if not self._written.acquire(blocking=False):
            return
        unfinished = f"{self._answer}.part"
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(encode(self.result), file)
        os.replace(unfinished, self._answer)

    def _work(self) -> None:
        import torch  # noqa: PLC0415 - where it is missing, that is a result too
        import torch.distributed as dist  # noqa: PLC0415 - as above

        self._note(torch_version=str(torch.__version__))
        self._step = "wait for the other members"
        os.write(self._tell, b"1")
        if sys.stdin.buffer.read() != GO:
            raise RuntimeError("was not told to begin")
        self._watch()
        started = time.perf_counter()
        self._step = "rendezvous"
        self._meet(dist)
        self._note(init_s=round(time.perf_counter() - started, 4), world_size=dist.get_world_size())
        self._step = "all_reduce with a known answer"
        wrong = self._wrong_values(torch, dist)
        if wrong is None:
            self._step = "measured all_reduce"
            wrong = self._measure(torch, dist)
        self._note(outcome=Verdict.FAIL if wrong else Verdict.PASS, wrong_values=wrong)
        self._step = "shutdown"
        dist.destroy_process_group()

    def _meet(self, dist: Any) -> None:
        task = self.task
        timeout = timedelta(seconds=task.timeout_s)
        if task.by_environment:
            dist.init_process_group("gloo", init_method="env://", timeout=timeout)
            return
        store = dist.TCPStore(
            task.master_address, task.master_port, task.world_size, task.rank == 0, timeout=timeout
        )
        dist.init_process_group(
            "gloo", store=store, rank=task.rank, world_size=task.world_size, timeout=timeout
        )

    def _wrong_values(self, torch: Any, dist: Any) -> Optional[str]:
        """Each rank gives (rank + 1) x ramp; the sum is n (n + 1) / 2 x ramp, exact in float64."""
        rank, world_size = dist.get_rank(), dist.get_world_size()
        for size in KNOWN_SIZES:
            ramp = torch.arange(1, size + 1, dtype=torch.float64) % RAMP + 1
            values = ramp * (rank + 1)
            dist.all_reduce(values)
            wrong = _first_difference(values, ramp * (world_size * (world_size + 1) // 2))
            if wrong:
                return wrong
        return None

    def _measure(self, torch: Any, dist: Any) -> Optional[str]:
        rank, world_size = dist.get_rank(), dist.get_world_size()
        values = torch.empty(max(1, self.task.bytes // _FLOAT32_BYTES), dtype=torch.float32)
        expected = torch.full_like(values, world_size * (world_size + 1) // 2)
        times: List[float] = []
        rounds = 1  # the first one warms up, and tells how many fit
        while len(times) <= rounds:
            values.fill_(rank + 1)
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(values)
            times.append(time.perf_counter() - started)
            if len(times) == 1:
                slowest = torch.tensor([times[0]], dtype=torch.float64)
                dist.all_reduce(slowest, op=dist.ReduceOp.MAX)  # all ranks must agree on the count
                rounds = max(1, min(MAX_ROUNDS, int(MEASURE_S / max(float(slowest[0]), 1e-6))))
                wrong = _first_difference(values, expected)
                if wrong:
                    return wrong
        time_s = statistics.median(times[1:])
        size = values.numel() * _FLOAT32_BYTES
        algbw = size * 8 / time_s / 1e9
        self._note(
            bytes=size,
            time_s=round(time_s, 6),
            algbw_gbit_per_s=round(algbw, 4),
            busbw_gbit_per_s=round(algbw * 2 * (world_size - 1) / world_size, 4),
        )
        return _first_difference(values, expected)


def _first_difference(values: Any, expected: Any) -> Optional[str]:
    """The first element that is not the known answer, as text; None when all are."""
    different = (values != expected).nonzero()
    if len(different) == 0:
        return None
    place = int(different[0])
    return (
        f"element {place} of {values.numel()} is {float(values[place]):g}, not {float(expected[place]):g} "
        f"({len(different)} differ)"
    )


def main() -> None:
    """The worker: argv is TASK_JSON RESULT_FILE DESCRIPTOR."""
    task = decode(CollectiveTask, json.loads(sys.argv[1]))
    if task.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", task.interface)
    worker = Worker(task, sys.argv[2], int(sys.argv[3]))
    worker.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # The result is written; torch's teardown takes seconds on a busy machine and can hang.
    os._exit(0 if worker.result.outcome is Verdict.PASS else 1)
