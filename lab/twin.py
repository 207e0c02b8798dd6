"""A command as two processes, so that what it started in the nodes ends with it, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import Optional

from lab import interrupts, processes, sandbox, syscalls


def watch() -> Optional[int]:
    """Fork: None in the twin, which goes on; its exit status here, when it and all below it have ended.

    Whoever of the two is killed, the other ends what the twin has started: the twin gets SIGTERM, which
    it raises as SystemExit; this process adopts what a dead twin leaves. (PR_SET_PDEATHSIG of nsenter
    itself would not hold where it joins a user namespace.) Ctrl-C is the twin's to hear.

    The status is negative where the twin was killed by that signal. Call before anything was printed.
    """

    def leave_to_twin(_number: int, _frame: Optional[FrameType]) -> None:
        pass

    interrupted = signal.signal(signal.SIGINT, leave_to_twin)
    syscalls.adopt_orphans()
    caller = os.getpid()
    twin = os.fork()
    if twin == 0:
        interrupts.end_once(signal.SIGTERM, signal.SIGHUP)
        sandbox.die_with_parent(signal.SIGTERM, caller)
        signal.signal(signal.SIGINT, interrupted)
        return None

    def pass_on(number: int, _frame: Optional[FrameType]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(twin, number)
            os.kill(twin, signal.SIGCONT)  # one that was stopped does not hear

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    _, status = os.waitpid(twin, 0)
    processes.end_below(caller)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return os.waitstatus_to_exitcode(status)
