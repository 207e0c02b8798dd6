"""Looks at the collective's process from outside: how far it is, and what it does or waits for.

A process that hangs cannot say so itself: one that is stopped runs nothing at all, and torch's
threads hold the interpreter while they wait.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from diagnosis.report import CollectiveStep, ProcessFacts
from probe.memory_kills import MemoryKills
from probe.sockets import ESTABLISHED, TcpSocket, inodes_of, tcp_sockets

# The worker has this long to write where it stands, once it is asked to.
STACK_PATIENCE_S = 2.0
_STACK_LINES = 12
_STOPPED = ("T", "t")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# Two looks in which a process used less CPU than this and sent nothing: it is idle. One tick is
# the least that the kernel tells; a thread that only polls stays below.
_IDLE_CPU_S = 0.02


@dataclass(frozen=True)
class _Look:
    at_s: float  # monotonic
    state: str
    cpu_s: float
    sent_bytes: Optional[int]


class WorkerWatch:
    """One worker. Call `look` several times a second."""

    def __init__(self, pid: int, marks: int, stack_file: str) -> None:
        """
        Args:
            marks: the reading end of the pipe that it tells its steps on.
            stack_file: where it writes its stack when asked.
        """
        os.set_blocking(marks, False)
        self.steps: Dict[str, float] = {}
        self._pid = pid
        self._marks = marks
        self._stack_file = stack_file
        self._unread = b""
        self._memory = MemoryKills.now()
        self._last: Optional[_Look] = None
        self._stopped_at: Optional[float] = None
        self._busy_at = time.monotonic()
        self._queues: Optional[Tuple[int, int, int]] = None
        self._wait_channel: Optional[str] = None
        self._stack: Tuple[str, ...] = ()

    def look(self) -> None:
        """Read its steps and its state; keeps the last state that was seen."""
        self._read_marks()
        seen = _look(self._pid)
        if seen is None:
            return
        before, self._last = self._last, seen
        busy = (
            before is None or seen.cpu_s - before.cpu_s > _IDLE_CPU_S or seen.sent_bytes != before.sent_bytes
        )
        if busy:
            self._busy_at = seen.at_s
        if seen.state not in _STOPPED:
            self._stopped_at = None
        else:
            self._stopped_at = self._stopped_at or seen.at_s
            self._read_queues()  # now: its peers give up, and a closed socket has no queue

    def has_begun(self, step: CollectiveStep) -> bool:
        return step.value in self.steps

    @property
    def step(self) -> str:
        """The step it began last, for a sentence."""
        return next(reversed(self.steps), CollectiveStep.IMPORT.value)

    @property
    def stopped_s(self) -> float:
        """How long it has been stopped by a signal."""
        return 0.0 if self._stopped_at is None else time.monotonic() - self._stopped_at

    def look_closely(self) -> None:
        """Before it is ended: its queues, what the kernel makes it wait for, where its Python stands."""
        self.look()
        self._read_queues()
        self._wait_channel = _text(f"/proc/{self._pid}/wchan").strip("0") or None
        if not self.stopped_s:
            self._stack = self._ask_for_stack()

    def facts(self, exit_status: Optional[int], ended_at: float) -> ProcessFacts:
        """What is known of it. exit_status: None = the probe ended it; ended_at: seconds since the epoch."""
        self._read_marks()
        last = self._last
        receive, send, connections = self._queues or (None, None, None)
        oom = exit_status == -signal.SIGKILL
        return ProcessFacts(
            pid=self._pid,
            exit_status=exit_status,
            ended_at=ended_at,
            state=last.state if last else None,
            wait_channel=self._wait_channel,
            idle_s=round(time.monotonic() - self._busy_at, 2) if exit_status is None else None,
            cpu_s=last.cpu_s if last else None,
            sent_bytes=last.sent_bytes if last else None,
            receive_queue_bytes=receive,
            send_queue_bytes=send,
            connections=connections,
            stack=self._stack,
            oom_kills=self._memory.since() if oom else None,
            kernel_lines=self._memory.kernel_lines(self._pid) if oom else (),
        )

    def _read_queues(self) -> None:
        """Keep the fullest queues that were seen."""
        own = inodes_of(str(self._pid))
        sockets = [item for item in tcp_sockets(f"/proc/{self._pid}/net") if item.inode in own]
        if own:
            seen = _queues(sockets)
            self._queues = seen if self._queues is None else max(seen, self._queues)

    def _read_marks(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(self._marks, 4096)
                if not data:
                    break
                self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            name, _, at_s = line.decode().rpartition(" ")
            self.steps[name] = float(at_s)

    def _ask_for_stack(self) -> Tuple[str, ...]:
        """Where its Python stands, innermost frame of the main thread first; () when it does not say."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGUSR1)
        give_up_at = time.monotonic() + STACK_PATIENCE_S
        before = ""
        while time.monotonic() < give_up_at:
            time.sleep(0.05)
            text = _text(self._stack_file)
            if text and text == before:  # it has stopped growing
                return _main_thread(text)
            before = text
        return ()


def _main_thread(dump: str) -> Tuple[str, ...]:
    """Frames of faulthandler's dump that are the main thread's, which it prints last."""
    frames: List[str] = []
    for line in dump.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            frames = []
        elif line.strip().startswith("File "):
            frames.append(line.strip())
    return tuple(frames[:_STACK_LINES])


def _look(pid: int) -> Optional[_Look]:
    text = _text(f"/proc/{pid}/stat")
    fields = text.rpartition(")")[2].split()
    if len(fields) < 13:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
    return _Look(at_s=time.monotonic(), state=fields[0], cpu_s=round(cpu_s, 2), sent_bytes=_written(pid))


def _written(pid: int) -> Optional[int]:
    """Bytes that it wrote, sockets included: Gloo sends with writev, which wchar counts."""
    for line in _text(f"/proc/{pid}/io").splitlines():
        name, _, value = line.partition(":")
        if name == "wchar":
            return int(value)
    return None


def _queues(sockets: List[TcpSocket]) -> Tuple[int, int, int]:
    """(bytes received and not read, bytes sent and not acknowledged, established connections)."""
    connected = [item for item in sockets if item.state == ESTABLISHED]
    return sum(s.receive_queue for s in connected), sum(s.send_queue for s in connected), len(connected)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
