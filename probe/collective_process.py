"""Runs the collective in a process of its own, so that a crash or a hang of torch is told, not suffered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Mapping

from cluster.serial import DecodeError, decode, encode
from diagnosis.report import CollectiveResult, Verdict
from probe.rows import Say

# Gloo's own longest wait is five times its time-out (the passive side of a connection), and
# rendezvous comes before it. The worker's watchdog ends at WATCHDOG_FACTOR, this process later.
WATCHDOG_FACTOR = 5
GRACE_S = 15.0
TAIL_CHARACTERS = 1500


@dataclass(frozen=True)
class CollectiveTask:
    """What one rank is to do.

    interface: for GLOO_SOCKET_IFNAME where the environment sets none.
    by_environment: rendezvous by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as a launcher set them.
    """

    rank: int
    world_size: int
    master_address: str
    master_port: int
    interface: str = ""
    bytes: int = 64 * 1024 * 1024
    timeout_s: float = 30.0
    by_environment: bool = False


def run_in_process(task: CollectiveTask, environ: Mapping[str, str], say: Say) -> CollectiveResult:
    """The result that the worker wrote; FAIL with its last lines where it ended without one."""
    with tempfile.TemporaryDirectory(prefix="fullmesh-") as folder:
        answer, log = os.path.join(folder, "result.json"), os.path.join(folder, "log")
        with open(log, "wb") as output:
            worker = subprocess.Popen(
                [*worker_command(), json.dumps(encode(task)), answer],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ),
            )
            say(f"collective: pid {worker.pid}, rank {task.rank} of {task.world_size}")
            try:
                status = worker.wait(task.timeout_s * WATCHDOG_FACTOR + GRACE_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if worker.poll() is None:
                    worker.kill()
                    worker.wait()
        return _read_result(task, answer, log, status)


def worker_command() -> list[str]:
    """The command of a worker, from a checkout and from inside the one-file build alike."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from probe.collective import main; main()"
    return [sys.executable, "-c", start, root]


def _read_result(task: CollectiveTask, answer: str, log: str, status: int | None) -> CollectiveResult:
    try:
        with open(answer, encoding="utf-8") as file:
            return decode(CollectiveResult, json.load(file))
    except (OSError, ValueError, DecodeError):
        pass
    with open(log, encoding="utf-8", errors="replace") as file:
        tail = file.read()[-TAIL_CHARACTERS:].strip()
    return CollectiveResult(
        outcome=Verdict.FAIL,
        world_size=task.world_size,
        error=f"{_ending(status)}; last lines: {tail or 'none'}",
    )


def _ending(status: int | None) -> str:
    if status is None:
        return "the collective's process did not end and was killed"
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory? see dmesg)" if name == "SIGKILL" else ""
        return f"the collective's process was ended by {name}{hint}"
    return f"the collective's process ended with {status} and without a result"
