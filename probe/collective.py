"""A real all_reduce over Gloo: the answer is known, then the time is taken. Imports torch.

A worker process: `main` reads a CollectiveTask from its first argument and writes a
CollectiveResult to the file named by its second. On a descriptor it tells each step that it
begins; it meets the others when standard input says so, and ends when that is closed. Asked by
SIGUSR1 it writes where it stands. A hang is ended, and told, by the process that started it.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import signal
import socket
import statistics
import sys
import threading
import time
from datetime import timedelta
from typing import Any, List, Optional, Tuple

from cluster.serial import decode, encode
from diagnosis.report import CollectiveResult, CollectiveStep, Verdict
from probe.collective_process import GO, CollectiveTask
from probe.limits import lower_descriptor_limit
from probe.link_rate import link_gbit_per_s
from probe.members import address_family
from probe.versions import read_versions

# Elements of the known-answer rounds: one, one segment, several segments (Gloo cuts at 1 MiB).
KNOWN_SIZES = (1, 1_000, 300_007)
RAMP = 1021  # a prime, so that shifted or repeated segments show
# The measurement takes about this long: enough to be steady, not to hold up a deploy.
MEASURE_S = 1.0
MAX_ROUNDS = 5
_FLOAT32_BYTES = 4


class Worker:
    """One rank."""

    def __init__(self, task: CollectiveTask, answer: str, tell: int) -> None:
        """tell: a descriptor; a line there says which step begins, and when."""
        self.task = task
        self._tell = tell
        self.result = CollectiveResult(outcome=Verdict.UNKNOWN, world_size=task.world_size)
        self._answer = answer
        self._step = CollectiveStep.IMPORT

    def run(self) -> None:
        """Do the work and write the result, whatever becomes of it."""
        try:
            self._work()
        except ImportError as error:
            self._note(outcome=Verdict.UNKNOWN, error=f"torch cannot be imported: {error}")
        except Exception as error:  # noqa: BLE001 - whatever torch raises is the result
            self._note(
                outcome=Verdict.FAIL, error=f"{self._step.value}: {type(error).__name__}: {error}"[:2000]
            )
        self._write()

    def _note(self, **changes: Any) -> None:
        self.result = dataclasses.replace(self.result, **changes)

    def _begin(self, step: CollectiveStep) -> None:
        self._step = step
        os.write(self._tell, f"{step.value} {time.time():.6f}\n".encode())

    def _write(self) -> None:
        unfinished = f"{self._answer}.part"
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(encode(self.result), file)
        os.replace(unfinished, self._answer)

    def _work(self) -> None:
        self._begin(CollectiveStep.IMPORT)
        self._note(versions=read_versions())
        import torch  # noqa: PLC0415 - where it is missing, that is a result too
        import torch.distributed as dist  # noqa: PLC0415 - as above

        self._note(torch_version=str(torch.__version__))
        lower_descriptor_limit(self.task.open_files)
        self._begin(CollectiveStep.READY)
        if sys.stdin.buffer.readline() != GO:
            raise RuntimeError("was not told to begin")
        threading.Thread(target=_end_with_the_starter, daemon=True).start()
        started = time.perf_counter()
        self._meet(dist)
        self._note(init_s=round(time.perf_counter() - started, 4), world_size=dist.get_world_size())
        self._begin(CollectiveStep.BARRIER)
        # Without a time-out of its own it takes torch's default of 30 minutes, whatever the group's is.
        dist.monitored_barrier(timeout=timedelta(seconds=self.task.timeout_s), wait_all_ranks=True)
        self._begin(CollectiveStep.ALL_REDUCE)
        self._known_answers(torch, dist)
        self._begin(CollectiveStep.MEASURE)
        self._measure(torch, dist)
        self._note(link_gbit_per_s=link_gbit_per_s(torch, dist))
        self._note(outcome=Verdict.FAIL if self.result.wrong_values else Verdict.PASS)
        self._begin(CollectiveStep.SHUTDOWN)
        dist.destroy_process_group()

    def _meet(self, dist: Any) -> None:
        """The store first and the mesh then, as init_process_group does it, so that a hang has a place."""
        timeout = timedelta(seconds=self.task.timeout_s)
        self._begin(CollectiveStep.STORE)
        url, rank, world_size = self._rendezvous()
        store, rank, world_size = next(dist.rendezvous(url, rank, world_size, timeout=timeout))
        store.set_timeout(timeout)
        self._begin(CollectiveStep.CONNECT)
        store = dist.PrefixStore("default_pg", store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)

    def _rendezvous(self) -> Tuple[str, int, int]:
        """(url, rank, world size) for torch; -1 = the environment tells."""
        task = self.task
        if task.by_environment:
            return "env://", -1, -1
        host = task.master_address
        if address_family(host) == socket.AF_INET6:
            host = f"[{host}]"
        return f"tcp://{host}:{task.master_port}", task.rank, task.world_size

    def _known_answers(self, torch: Any, dist: Any) -> None:
        """Each rank gives (rank + 1) x ramp; the sum is n (n + 1) / 2 x ramp, exact in float64."""
        rank, world_size = dist.get_rank(), dist.get_world_size()
        for size in KNOWN_SIZES:
            ramp = torch.arange(1, size + 1, dtype=torch.float64) % RAMP + 1
            values = ramp * (rank + 1)
            dist.all_reduce(values)
            self._compare(values, ramp * (world_size * (world_size + 1) // 2))

    def _compare(self, values: Any, expected: Any) -> None:
        """Keep the first wrong value, and go on: one that leaves would make the others fail, too."""
        wrong = None if self.result.wrong_values else _first_difference(values, expected)
        if wrong:
            self._note(outcome=Verdict.FAIL, wrong_values=wrong)
            self._write()

    def _measure(self, torch: Any, dist: Any) -> None:
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
                self._compare(values, expected)
        time_s = statistics.median(times[1:])
        size = values.numel() * _FLOAT32_BYTES
        algbw = size * 8 / time_s / 1e9
        self._note(
            bytes=size,
            time_s=round(time_s, 6),
            algbw_gbit_per_s=round(algbw, 4),
            busbw_gbit_per_s=round(algbw * 2 * (world_size - 1) / world_size, 4),
        )
        self._compare(values, expected)


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


def _end_with_the_starter() -> None:
    """End when standard input is closed: nobody reads the result any more, and others must not wait."""
    os.read(sys.stdin.fileno(), 1)  # not through sys.stdin, whose lock an interpreter that ends would want
    os._exit(1)


def main() -> None:
    """The worker: argv is TASK_JSON RESULT_FILE DESCRIPTOR STACK_FILE."""
    task = decode(CollectiveTask, json.loads(sys.argv[1]))
    stack = open(sys.argv[4], "w", encoding="utf-8")  # noqa: SIM115 - faulthandler writes to it at any time
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    if task.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", task.interface)
    worker = Worker(task, sys.argv[2], int(sys.argv[3]))
    worker.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # The result is written; torch's teardown takes seconds on a busy machine and can hang.
    os._exit(0 if worker.result.outcome is Verdict.PASS else 1)
