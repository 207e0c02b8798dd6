"""The process above that started this one, as /proc names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TELL = "from probe.starter import started_by; print(started_by())"


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "None"),
        (["bash"], "None"),
        (["slurmstepd"], "slurmstepd"),
        (["slurmstepd", "orted", "bash"], "orted"),
        (["mpirun", "a ) (b"], "mpirun"),
    ],
)
def test_the_nearest_launcher_above_is_named(tmp_path: Path, names: list[str], told: str) -> None:
    """Of several processes above the nearest that is a launcher's counts; a shell between does not."""
    command = [sys.executable, "-c", TELL]
    for name in reversed(names):
        shell = tmp_path / name
        shell.symlink_to("/bin/bash")
        command = [str(shell), "-c", '"$@"; exit $?', "sh", *command]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told
