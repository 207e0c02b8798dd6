"""Runs the collective in a process of its own, so that a crash or a hang of torch is told, not suffered."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Callable, List, Mapping, Optional, Tuple

from cluster.serial import DecodeError, decode, encode
from diagnosis.report import CollectiveResult, CollectiveStep, Verdict
from probe.limits import started_with
from probe.rows import Say
from probe.worker_watch import WorkerWatch

# Gloo's own longest wait is five times its time-out (the passive side of a connection), and
# rendezvous comes before it.
PATIENCE_FACTOR = 5
GRACE_S = 15.0
# An import from a cold disk on a loaded machine; torch has been seen to need 20 s with 10 busy processes.
IMPORT_PATIENCE_S = 180.0
GO = b"go\n"
LOOK_EVERY_S = 0.1
# A healthy all_reduce is over by then; asking the meeting place earlier would only cost.
ASK_OTHERS_AFTER_S = 3.0
ASK_OTHERS_EVERY_S = 1.0
# Ranks begin together, so their time-outs pass together: one that says nothing this long after
# another one's failure hangs.
ECHO_PATIENCE_S = 6.0
# Nothing stops a process for so long by itself; a debugger or a scheduler that means it does.
STOPPED_PATIENCE_S = 5.0
NOT_EVERYBODY_CAME = "not every member came to the collective"
_LOG_LINES = 40
_LOG_LINE_CHARACTERS = 600
# C++ frames below an exception say nothing that the exception does not.
_DULL = ("frame #", "<omitting python frames>", "Exception raised from ")


@dataclass(frozen=True)
class CollectiveTask:
    """What one rank is to do.

    interface: for GLOO_SOCKET_IFNAME where the environment sets none.
    by_environment: rendezvous by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as a launcher set them.
    open_files: the soft limit that a job started like this probe would have; None = leave it.
    """

    rank: int
    world_size: int
    master_address: str
    master_port: int
    interface: str = ""
    bytes: int = 64 * 1024 * 1024
    timeout_s: float = 30.0
    by_environment: bool = False
    open_files: Optional[int] = None


@dataclass(frozen=True)
class Others:
    """The rest of the cluster, as far as this rank must know it.

    ready: called once torch is imported here; whether it is everywhere. Importing takes a second
        on an idle machine and a minute on a busy one, so time-outs begin after it.
    failed: whether another member has told that its all_reduce failed.
    """

    ready: Callable[[], bool]
    failed: Callable[[], bool] = lambda: False


def run_in_process(
    task: CollectiveTask,
    environ: Mapping[str, str],
    say: Say,
    others: Others,
    patience_s: Optional[float] = None,
) -> CollectiveResult:
    """The result that the worker wrote, and what was seen of it; FAIL where it ended without one.

    Args:
        patience_s: how long it may take from its begin; a worker that hangs is then ended.
    """
    task = dataclasses.replace(task, open_files=started_with()[0])
    limit_s = patience_s if patience_s is not None else task.timeout_s * PATIENCE_FACTOR + GRACE_S
    with _Worker(task, environ) as worker:
        say(f"collective: pid {worker.pid}, rank {task.rank} of {task.world_size}")
        if worker.imports_torch() and not others.ready():
            return CollectiveResult(
                outcome=Verdict.UNKNOWN,
                world_size=task.world_size,
                error=NOT_EVERYBODY_CAME,
                steps=dict(worker.watch.steps),
            )
        worker.begin()
        return worker.result(worker.wait(others.failed, limit_s))


class _Worker:
    """One worker process and what it leaves; it is ended when the context is left."""

    def __init__(self, task: CollectiveTask, environ: Mapping[str, str]) -> None:
        self._task = task
        self._environ = dict(environ)

    def __enter__(self) -> _Worker:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fullmesh-"))
            self._answer, self._log = os.path.join(folder, "answer"), os.path.join(folder, "log")
            dump = os.path.join(folder, "stack")
            marks, tell = os.pipe()
            stack.callback(os.close, marks)
            try:
                with open(self._log, "wb") as output:
                    arguments = (json.dumps(encode(self._task)), self._answer, str(tell), dump)
                    self._process = subprocess.Popen(
                        [*worker_command(), *arguments],
                        stdin=subprocess.PIPE,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=self._environ,
                        pass_fds=(tell,),
                    )
            finally:
                os.close(tell)
            stack.callback(self._end)
            self.watch = WorkerWatch(pid=self._process.pid, marks=marks, stack_file=dump)
            self._leave = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._leave.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def imports_torch(self) -> bool:
        """Whether torch is imported there; False when it ended before, or takes too long."""
        give_up_at = time.monotonic() + IMPORT_PATIENCE_S
        while time.monotonic() < give_up_at:
            self.watch.look()
            if self.watch.has_begun(CollectiveStep.READY):
                return True
            if self._process.poll() is not None:
                return False
            time.sleep(LOOK_EVERY_S)
        return False

    def begin(self) -> None:
        """Let it meet the others. Its standard input stays open: it ends with this process."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended; its status tells
                self._process.stdin.write(GO)
                self._process.stdin.flush()

    def wait(self, failed_elsewhere: Callable[[], bool], limit_s: float) -> Optional[str]:
        """None when it ended by itself; else why it is not waited for any longer."""
        started = time.monotonic()
        ask_at, failed_at = started + ASK_OTHERS_AFTER_S, 0.0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_EVERY_S)
                return None
            self.watch.look()
            now = time.monotonic()
            if self.watch.stopped_s > STOPPED_PATIENCE_S:
                return f"it was stopped by a signal for {self.watch.stopped_s:.0f} s"
            if now - started > limit_s:
                return f"no end within {limit_s:g} s"
            if failed_at and now - failed_at > ECHO_PATIENCE_S:
                return f"another member had failed {now - failed_at:.0f} s before"
            if not failed_at and now >= ask_at:
                ask_at = now + ASK_OTHERS_EVERY_S
                failed_at = now if failed_elsewhere() else 0.0

    def result(self, why_ended: Optional[str]) -> CollectiveResult:
        """What it wrote, or how it ended; with what was seen of it."""
        status = self._process.returncode
        ended_at = time.time()
        if why_ended is not None:
            self.watch.look_closely()
            self._end()
            status = None
        process = self.watch.facts(status, ended_at)
        own = self._read(why_ended, status)
        return dataclasses.replace(
            own,
            asked_bytes=self._task.bytes,
            timeout_s=self._task.timeout_s,
            steps=dict(self.watch.steps),
            process=process,
            log=() if own.outcome is Verdict.PASS else _last_lines(self._log),
        )

    def _read(self, why_ended: Optional[str], status: Optional[int]) -> CollectiveResult:
        try:
            with open(self._answer, encoding="utf-8") as file:
                return decode(CollectiveResult, json.load(file))
        except (OSError, ValueError, DecodeError):
            pass
        return CollectiveResult(
            outcome=Verdict.FAIL,
            world_size=self._task.world_size,
            error=f"{self.watch.step}: {_ending(why_ended, status)}",
        )


def worker_command() -> List[str]:
    """The command of a worker, from a checkout and from inside the one-file build alike."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from probe.collective import main; main()"
    return [sys.executable, "-c", start, root]


def _ending(why_ended: Optional[str], status: Optional[int]) -> str:
    if status is None:
        return f"the collective's process did not end and was ended by the probe: {why_ended}"
    if status < 0:
        return f"the collective's process was ended by {signal.Signals(-status).name}"
    return f"the collective's process ended with {status} and without a result"


def _last_lines(log: str) -> Tuple[str, ...]:
    """What torch printed, without the C++ frames below each exception."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip()[:_LOG_LINE_CHARACTERS] for line in file]
    kept = [line for line in lines if line and not line.lstrip().startswith(_DULL)]
    return tuple(kept[-_LOG_LINES:])
