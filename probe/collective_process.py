"""Runs the collective in a process of its own, so that a crash or a hang of torch is told, not suffered."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Callable, List, Mapping, Optional

from cluster.serial import DecodeError, decode, encode
from diagnosis.report import CollectiveResult, Verdict
from probe.rows import Say

# Gloo's own longest wait is five times its time-out (the passive side of a connection), and
# rendezvous comes before it. The worker's watchdog ends at WATCHDOG_FACTOR, this process later.
WATCHDOG_FACTOR = 5
GRACE_S = 15.0
# An import from a cold disk on a loaded machine; torch has been seen to need 20 s with 10 busy processes.
IMPORT_PATIENCE_S = 180.0
GO = b"go"
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


def run_in_process(
    task: CollectiveTask, environ: Mapping[str, str], say: Say, ready: Callable[[], bool]
) -> CollectiveResult:
    """The result that the worker wrote; FAIL with its last lines where it ended without one.

    Args:
        ready: called once torch is imported; whether all others are there too. Importing
            takes a second on an idle machine and a minute on a busy one, so time-outs
            begin after it. False ends the worker before it meets anyone.
    """
    with tempfile.TemporaryDirectory(prefix="fullmesh-") as folder:
        answer, log = os.path.join(folder, "result.json"), os.path.join(folder, "log")
        imported, tell = os.pipe()
        with open(log, "wb") as output:
            worker = subprocess.Popen(
                [*worker_command(), json.dumps(encode(task)), answer, str(tell)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ),
                pass_fds=(tell,),
            )
        try:
            os.close(tell)
            say(f"collective: pid {worker.pid}, rank {task.rank} of {task.world_size}")
            if _imported(imported) and not ready():
                return CollectiveResult(
                    outcome=Verdict.UNKNOWN,
                    world_size=task.world_size,
                    error="not every member came to the collective",
                )
            status = _let_go(worker, task.timeout_s * WATCHDOG_FACTOR + GRACE_S)
        finally:
            os.close(imported)
            worker.kill()
            worker.communicate()
        return _read_result(task, answer, log, status)


def _imported(pipe: int) -> bool:
    """Whether the worker has imported torch; False when it ended before, or takes too long."""
    there, _, _ = select.select([pipe], [], [], IMPORT_PATIENCE_S)
    return bool(there) and os.read(pipe, 1) != b""


def _let_go(worker: subprocess.Popen[bytes], patience_s: float) -> Optional[int]:
    """Let the worker begin; its exit status, or None when it did not end in time."""
    try:
        worker.communicate(GO, timeout=patience_s)
    except subprocess.TimeoutExpired:
        return None
    return worker.returncode


def worker_command() -> List[str]:
    """The command of a worker, from a checkout and from inside the one-file build alike."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from probe.collective import main; main()"
    return [sys.executable, "-c", start, root]


def _read_result(task: CollectiveTask, answer: str, log: str, status: Optional[int]) -> CollectiveResult:
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


def _ending(status: Optional[int]) -> str:
    if status is None:
        return "the collective's process did not end and was killed"
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory? see dmesg)" if name == "SIGKILL" else ""
        return f"the collective's process was ended by {name}{hint}"
    return f"the collective's process ended with {status} and without a result"
