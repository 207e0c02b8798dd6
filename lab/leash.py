"""`python -m lab.leash JSON`: a command that leaves nothing behind, however it ends.

The CDK needs it: a CLI that is interrupted leaves the app, the app's Node, their unpacked modules and
locks, and one whose control plane is gone tries again for more than a minute.

The command runs in a PID namespace of its own, out of the terminal's reach, with temporary files that
only it sees. When it ends, or its caller dies, or this process does or is asked to end (SIGTERM), the
kernel kills all that is left in there, daemons included, and the temporary files go with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Optional, Tuple

from cluster.serial import decode, encode
from lab import interrupts, sandbox, syscalls

ENDED_WITH_OTHER = 125
"""Exit status where the command was ended because the process it is of use to is gone."""
_REFUSED = 126
_ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(frozen=True)
class Leash:
    """What is run, and for whom.

    scratch: an empty folder, the command's alone, that TMPDIR names. caller: the process that starts this.
    lives_with: a process without which the command is of no use. folder: None = the scratch.
    assembly: the CDK's output folder, whose locks go too.
    """

    argv: Tuple[str, ...]
    scratch: str
    caller: int
    lives_with: int
    folder: Optional[str] = None
    assembly: Optional[str] = None

    def tidy(self) -> None:
        """Remove what a killed command leaves where others see it."""
        with contextlib.suppress(OSError):
            Path(self.scratch).rmdir()  # what was in it went with the command's mounts
        if self.assembly is not None:
            # Their process ids are the namespace's: to the next CLI they would seem to be alive.
            for pattern in ("synth.lock", "read.*.lock"):
                for lock in Path(self.assembly).glob(pattern):
                    with contextlib.suppress(OSError):
                        lock.unlink()


@contextlib.contextmanager
def command(
    argv: list[str],
    *,
    folder: Path | None = None,
    assembly: Path | None = None,
    lives_with: int | None = None,
) -> Iterator[list[str]]:
    """The argument list that runs `argv` on a leash; start it in the repository, within the context.

    The thread that starts it must outlive it. Both ends tidy, so either may be killed.
    """
    leash = Leash(
        argv=tuple(argv),
        scratch=tempfile.mkdtemp(prefix="fullmesh-cdk-"),
        caller=os.getpid(),
        lives_with=lives_with or os.getpid(),
        folder=None if folder is None else str(folder.resolve()),
        assembly=None if assembly is None else str(assembly.resolve()),
    )
    try:
        yield [sys.executable, "-m", "lab.leash", json.dumps(encode(leash))]
    finally:
        leash.tidy()


def main(leash: Leash) -> int:
    """Run the command; its exit status, as a shell reports it."""
    become_deaf = interrupts.end_once(*_ENDINGS)
    init = 0
    try:
        sandbox.die_with_parent(signal.SIGTERM, leash.caller)
        other = os.pidfd_open(leash.lives_with)
        init = sandbox.contain()
        if init == 0:
            _inside(leash)
        # a user namespace counts as a change of rights, which clears the request made above
        sandbox.die_with_parent(signal.SIGTERM, leash.caller)
        ended = os.pidfd_open(init)
        if ended not in select.select([ended, other], [], [])[0]:
            return ENDED_WITH_OTHER
        _, status = os.waitpid(init, 0)
        init = 0
        return os.waitstatus_to_exitcode(status)
    except ProcessLookupError:
        return ENDED_WITH_OTHER
    except sandbox.SandboxError as error:
        sys.stderr.write(f"{error}\n")
        return _REFUSED
    finally:
        become_deaf()
        if init:
            os.kill(init, signal.SIGKILL)
            os.waitpid(init, 0)  # returns when the namespace is empty
        leash.tidy()


def _inside(leash: Leash) -> NoReturn:
    """The init of the namespace: with it all ends."""
    status = _REFUSED
    try:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_DFL)  # an init is deaf to it
        syscalls.mount("fullmesh", leash.scratch, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=700")
        environment = {**os.environ, "TMPDIR": leash.scratch}
        if Path("/").stat().st_uid != 0:
            # In an ordinary user's namespace root's folders are nobody's; jsii takes no cache below them.
            environment["JSII_RUNTIME_PACKAGE_CACHE"] = "disabled"
        status = subprocess.call(leash.argv, cwd=leash.folder or leash.scratch, env=environment)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
    finally:
        os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    sys.exit(main(decode(Leash, json.loads(sys.argv[1]))))
