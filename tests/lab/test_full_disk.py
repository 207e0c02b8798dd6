"""A disk without space below the lab's state folder: said as what it is, and nothing is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import CHECKOUT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

FILLED = """
set -e
mount -t tmpfs -o size=64k full "$1"
mkdir -p "$1/state/logs"
dd if=/dev/zero of="$1/fill" bs=1k count=64 status=none 2>/dev/null || true
status=0
"$2" lab up --state-dir "$1/state" || status=$?
ls -A "$1/state"
exit "$status"
"""


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """UNKNOWN (3) with the folder and what to do, and no draft of a state file beside it."""
    unshare = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    done = subprocess.run(
        [*unshare, "bash", "-c", FILLED, "bash", str(tmp_path), str(CHECKOUT / ".venv/bin/fullmesh")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert (
        f"no space is left for the lab's state and logs (No space left on device: {tmp_path}/state); free"
        in (done.stderr)
    )
    assert done.stdout == "logs\n"
