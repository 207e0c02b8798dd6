"""Static checks of what runs on nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

USERDATA = Path(__file__).resolve().parent.parent.parent / "userdata"
SCRIPTS = sorted(path.name for path in USERDATA.glob("*.sh"))


def test_all_scripts_are_found() -> None:
    """The list that the other checks run over is not empty or short."""
    assert SCRIPTS == ["bootstrap.sh", "check.sh", "launch.sh"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    """shellcheck, with its optional checks of unquoted and unchecked things, reports nothing."""
    program = str(Path(sys.executable).with_name("shellcheck"))
    done = subprocess.run(
        [program, "--severity=style", name], cwd=USERDATA, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("name", ["bootstrap.sh", "launch.sh"])
def test_what_the_lab_cannot_run_is_listed(name: str) -> None:
    """The head of each script lists the branches that no local test reaches."""
    head = (USERDATA / name).read_text().partition("set -euo pipefail")[0]
    assert re.search(r"# Branches the local lab does not run", head)


def test_the_timer_and_the_check_have_one_period() -> None:
    """The timer fires as often as check.sh names its runs, or members would not meet."""
    period_s = int(re.findall(r"PERIOD_S=(\d+)", (USERDATA / "check.sh").read_text())[0])
    (minutes,) = re.findall(
        r"^OnCalendar=\*:0/(\d+)$", (USERDATA / "fullmesh-check.timer").read_text(), re.MULTILINE
    )
    assert int(minutes) * 60 == period_s


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """systemd-analyze, where this machine has it, finds no fault in the units."""
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(USERDATA / "fullmesh-check.timer")],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{USERDATA}:/lib/systemd/system"},
            cwd=tmp_path,
        )
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not on this machine")
    assert "fullmesh" not in done.stderr, done.stderr
