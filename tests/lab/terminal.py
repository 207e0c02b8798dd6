"""A command on a terminal of its own, as a person runs it; and what it leaves behind when it ends."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from lab import processes, syscalls

CTRL_C = b"\x03"


class Terminal:
    """A context manager. Whatever the command starts is found again, also where its parent has died.

    The calling process adopts orphans while it runs, so `left_behind` sees daemons, too.
    """

    def __init__(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._argv = [str(word) for word in argv]
        self._cwd = cwd
        self._env = None if env is None else dict(env)
        self.text = ""

    def __enter__(self) -> Terminal:
        syscalls.adopt_orphans()
        self._before = set(processes.children(os.getpid()))
        self._master, slave = pty.openpty()
        try:
            self.process = subprocess.Popen(
                self._argv,
                cwd=self._cwd,
                env=self._env,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=_take_terminal,  # noqa: PLW1509 - two system calls
            )
        finally:
            os.close(slave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        while left := self._left():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        syscalls.adopt_orphans(False)  # other tests' orphans are the machine's to collect
        os.close(self._master)

    def expect(self, words: str, timeout_s: float = 120.0) -> None:
        """Wait until the terminal has shown these words."""
        deadline = time.monotonic() + timeout_s
        while words not in self.text:
            assert time.monotonic() < deadline, f"{words!r} was not shown:\n{self.text}"
            assert self._read(0.1), f"ended before {words!r}:\n{self.text}"

    def press(self, keys: bytes = CTRL_C) -> None:
        """Type on the terminal; Ctrl-C reaches the whole foreground group, as it does for a person."""
        os.write(self._master, keys)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Read until the command has ended; its exit status."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end:\n{self.text}"
            self._read(0.1)
        while self._read(0.05):
            continue
        return self.process.returncode

    def left_behind(self, patience_s: float = 3.0) -> list[str]:
        """Command lines of what still runs `patience_s` after the command has ended."""
        deadline = time.monotonic() + patience_s
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [f"{pid} {command_line(pid)}" for pid in left]

    def _left(self) -> list[int]:
        own = self._before | {self.process.pid}
        for pid in set(processes.children(os.getpid())) - own:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # an adopted orphan that has ended
        direct = set(processes.children(os.getpid())) - self._before - {self.process.pid}
        return sorted(pid for top in direct for pid in (top, *processes.descendants(top)))

    def _read(self, timeout_s: float) -> bool:
        """Take what was shown; False when the terminal is closed or (without time) silent."""
        if not select.select([self._master], [], [], timeout_s)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the last process has let go of the terminal
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def _take_terminal() -> None:
    import fcntl  # noqa: PLC0415 - in the child
    import termios  # noqa: PLC0415 - as above

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "(gone)"
