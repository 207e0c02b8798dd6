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


@pytest.mark.parametrize(
    ("minutes", "calendar"),
    [("5", "0/5"), ("1", "0/1"), ("15", "0/15"), ("7", "0/1"), ("60", "00"), ("", "0/5")],
)
def test_the_timer_has_the_members_interval(minutes: str, calendar: str) -> None:
    """It fires on minutes that all members share; where no hour is a multiple, each minute is looked at."""
    text = (USERDATA / "bootstrap.sh").read_text()
    (function,) = re.findall(r"^timer\(\) \{\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    script = f'set -euo pipefail\nHOME_DIR=.\nconfig() {{ echo "{minutes}"; }}\n{function}timer'
    done = subprocess.run(
        ["/bin/bash", "-c", script], cwd=USERDATA, capture_output=True, text=True, check=True
    )
    assert re.findall(r"^OnCalendar=(.*)$", done.stdout, re.MULTILINE) == [f"*:{calendar} UTC"]
    assert "WantedBy=timers.target" in done.stdout


def test_the_periodic_check_leaves_the_jobs_port_alone() -> None:
    """check.sh asks for the network only, without MASTER_PORT, in the run that the clock names."""
    words = (USERDATA / "check.sh").read_text().splitlines()[-1].split()
    assert words[3:] == [
        *("check", "--no-master-port", "--no-collective", "--timeout-s", '"$timeout_s"', "--run", '"$run"')
    ]


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
