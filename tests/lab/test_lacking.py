"""A machine without space or without nft: said as what it is, and nothing is left."""

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


WITHOUT_NFT = """
touch "$1/nft"
mount --bind "$1/nft" "$(readlink -f "$(PATH="$PATH:/usr/sbin:/sbin" command -v nft)")"
exec "$2" lab up --state-dir "$1/state"
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The script with mounts of its own; $1 is the folder, $2 fullmesh."""
    unshare = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    return subprocess.run(
        [*unshare, "bash", "-c", script, "bash", str(folder), str(CHECKOUT / ".venv/bin/fullmesh")],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_nft_is_named(tmp_path: Path) -> None:
    """UNKNOWN (3) with the tool and the packages, and the lab's folder is empty again."""
    done = run(WITHOUT_NFT, tmp_path)
    assert done.returncode == 3, done.stderr
    assert "nft cannot be run (Permission denied); run: sudo apt-get install nftables" in done.stderr
    assert [item.name for item in (tmp_path / "state").iterdir()] == ["logs"]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """UNKNOWN (3) with the folder and what to do, and no draft of a state file beside it."""
    done = run(FILLED, tmp_path)
    assert done.returncode == 3, done.stderr
    assert (
        f"no space is left for the lab's state and logs (No space left on device: {tmp_path}/state); free"
        in (done.stderr)
    )
    assert done.stdout == "logs\n"
