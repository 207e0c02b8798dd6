"""Who a lab test runs as: this user, and, where that is root, an ordinary user too.

The ordinary user may be unable to reach the interpreter that runs the tests (a root's home is
closed to others), so it uses the system's Python of the same version, in a virtual environment of
its own that imports from the one the tests run in.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534


@dataclass(frozen=True)
class Identity:
    """A user id to run Python as; None = whoever runs the tests."""

    uid: int | None = None

    def __str__(self) -> str:
        return "self" if self.uid is None else f"uid-{self.uid}"

    def command(self, *arguments: str) -> list[str]:
        """The argument list that runs Python with these arguments as this user."""
        if self.uid is None:
            return [sys.executable, *arguments]
        drop = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return [*drop, str(_home() / "venv" / "bin" / "python"), *arguments]

    def settings(self, **extra: Any) -> dict[str, Any]:
        """Keyword arguments for subprocess."""
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
        environment["HOME"] = str(_home()) if self.uid is not None else os.environ.get("HOME", "/")
        return {"cwd": REPOSITORY, "env": environment, "text": True, **extra}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python to its end; stderr is part of stdout."""
        return subprocess.run(
            self.command(*arguments),
            check=False,
            **self.settings(stdout=subprocess.PIPE, stderr=subprocess.STDOUT),
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Python with its output on a pipe."""
        return subprocess.Popen(
            self.command(*arguments), **self.settings(stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        )

    def folder(self) -> Path:
        """A new folder that this user owns; gone when the tests end."""
        made = Path(tempfile.mkdtemp(prefix="fullmesh-lab-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        if self.uid is not None:
            os.chown(made, self.uid, self.uid)
        return made


@functools.cache
def _home() -> Path:
    home = Identity().folder()
    home.chmod(0o755)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    system = next(p for p in (f"/usr/bin/{version}", f"/usr/local/bin/{version}") if os.access(p, os.X_OK))
    subprocess.run([system, "-m", "venv", "--without-pip", str(home / "venv")], check=True)
    (home / "venv" / "lib" / version / "site-packages" / "tests.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )
    return home


IDENTITIES = [Identity(), Identity(NOBODY)] if os.geteuid() == 0 else [Identity()]
