"""The doctor: what is missing stands in the way, what set-up brings does not, a crash is UNKNOWN."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import doctor
from lab.doctor import Check

CHECKOUT = Path(__file__).resolve().parents[2]


def run_doctor(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PATH": path} if path is not None else {})}
    return subprocess.run(
        [sys.executable, "-m", "lab.doctor", *arguments],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.lab
def test_an_ordinary_users_path_is_enough() -> None:
    """ip and nft are found where a Debian user's PATH does not lead, and really used from there."""
    names = {
        check["name"]: check
        for check in json.loads(run_doctor("--json", path="/usr/bin:/bin").stdout)["checks"]
    }
    assert (names["nft"]["ok"], names["namespaces"]["ok"]) == (True, True)


@pytest.mark.lab
def test_this_machine_can_run_the_lab() -> None:
    """On a machine that runs the lab tests every check is ok."""
    answer = run_doctor("--json")
    document = json.loads(answer.stdout)
    assert (answer.returncode, document["verdict"]) == (0, "PASS")
    assert [check for check in document["checks"] if check["ok"] is not True] == []


def test_a_missing_tool_is_told_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that is nowhere is MISSING, with the command that installs it."""
    monkeypatch.setattr(doctor.sandbox, "search_path", lambda: "/nowhere")
    checks = {check.name: check for check in doctor.check_tools()}
    assert checks["nft"] == Check(
        "nft", False, "not found", "sudo apt-get install nftables", setup_installs=True
    )


def test_set_up_may_bring_what_only_root_can_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package stops an ordinary user before set-up, and not root, for whom set-up installs it."""
    missing = Check("nft", False, "not found", "sudo apt-get install nftables", setup_installs=True)
    monkeypatch.setattr(doctor.shutil, "which", lambda _name: "/usr/bin/apt-get")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    assert not doctor.stands_in_the_way(missing, before_setup=True)
    assert doctor.stands_in_the_way(missing, before_setup=False)
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    assert doctor.stands_in_the_way(missing, before_setup=True)


@pytest.mark.parametrize(
    ("set_up", "free_gib", "ok"), [(False, 3, False), (True, 3, True), (True, 0.1, False)]
)
def test_a_full_disk_is_told_before_and_after_set_up(
    set_up: bool, free_gib: float, ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed needs its room once; logs and templates need theirs at every start."""
    (tmp_path / ".venv").mkdir()
    if set_up:
        (tmp_path / doctor.SETUP_STAMP).touch()
    monkeypatch.setattr(doctor, "CHECKOUT", tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=int(free_gib * 1024**3))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _folder: usage)
    found = doctor.check_disk()
    assert found.ok is ok
    assert ("0.25 GiB are needed" if set_up else "4 GiB are needed") in found.remedy


def test_what_could_not_be_looked_at_is_never_fine() -> None:
    """A check without an answer stands in the way and shows as UNKNOWN."""
    unknown = Check("memory", None, "/proc/meminfo tells nothing", "check by hand")
    assert doctor.stands_in_the_way(unknown, before_setup=True)
    assert doctor.render([unknown]).startswith("UNKNOWN  memory")


def test_a_crashed_check_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that raises becomes a result of its own and does not hide the others."""

    def crash() -> Check:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(doctor, "check_disk", crash)
    found = {check.name: check for check in doctor.examine(before_setup=True)}
    assert found["crash"].ok is None
    assert found["crash"].found == "the check itself failed: no such luck"
    assert found["Linux"].ok is True


def test_it_runs_on_a_bare_python() -> None:
    """Before set-up nothing but the standard library is there: it needs nothing else."""
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, '.'); import lab.doctor"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
