"""Whether the kernel ended processes for memory: its counters, and its log where that may be read."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Optional, Tuple

_KMSG = "/dev/kmsg"
_KMSG_RECORD_BYTES = 8192  # LOG_LINE_MAX and its header, kernel/printk/printk.c
_KERNEL_LINES = 4
# The kernel stamps its log with a clock of its own, which may be this far behind the monotonic one.
_CLOCK_SLACK_S = 1.0


@dataclass(frozen=True)
class MemoryKills:
    """How many processes were ended for memory by now, and when that was read."""

    count: Optional[int]
    at_s: float  # monotonic

    @classmethod
    def now(cls) -> MemoryKills:
        return cls(count=_count(), at_s=time.monotonic())

    def since(self) -> Optional[int]:
        """How many more there are now; None where this host does not count them."""
        count = _count()
        return None if count is None or self.count is None else count - self.count

    def kernel_lines(self, pid: int) -> Tuple[str, ...]:
        """What the kernel's log says of this process since then.

        () also where the log may not be read, and in a container, whose process ids are its own.
        """
        return _kernel_lines(self.at_s - _CLOCK_SLACK_S, pid)


def _count() -> Optional[int]:
    """Of this process's control group where it counts them, else of the whole machine.

    memory.events counts every process of the group ended by any out-of-memory killer, a limit of
    the group's or the machine's own (Documentation/admin-guide/cgroup-v2.rst); its root has none.
    """
    for path in _group_files():
        found = _number_after(path, "oom_kill")
        if found is not None:
            return found
    return _number_after("/proc/vmstat", "oom_kill")


def _group_files() -> Tuple[str, ...]:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return ()
    files = []
    for row in rows:
        if len(row) != 3:
            continue
        _, controllers, path = row
        if controllers == "":  # version 2; beside version 1 it may hold no memory.events
            files.append(f"/sys/fs/cgroup{path.rstrip('/')}/memory.events")
        elif "memory" in controllers.split(","):
            files.append(f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.oom_control")
    return tuple(files)


def _number_after(path: str, name: str) -> Optional[int]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                fields = line.split()
                if len(fields) == 2 and fields[0] == name and fields[1].isdigit():
                    return int(fields[1])
    except OSError:
        return None
    return None


def _kernel_lines(since_s: float, pid: int) -> Tuple[str, ...]:
    about = re.compile(rf"oom-kill:.*\bpid={pid}\b|[Kk]illed process {pid}\b")
    try:
        log = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    found = []
    try:
        while True:
            try:
                record = os.read(log, _KMSG_RECORD_BYTES).decode(errors="replace")
            except BrokenPipeError:  # the record was overwritten meanwhile; the next read goes on
                continue
            except OSError:  # EAGAIN: the end
                break
            head, _, text = record.partition(";")
            fields = head.split(",")
            line = text.partition("\n")[0]
            recent = len(fields) > 2 and fields[2].isdigit() and int(fields[2]) / 1e6 >= since_s
            if recent and about.search(line):
                found.append(line.strip())
    finally:
        os.close(log)
    return tuple(found[-_KERNEL_LINES:])
