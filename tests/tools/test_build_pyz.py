"""The one-file build: the same bytes each time, and it runs on its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.build_pyz import build

# The oldest Python that counts, where this machine has it, beside its own.
OTHERS = ("python3.9", *map(str, Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9")))


def runs(python: str) -> bool:
    """Whether it is a Python, and not a launcher's shim without one behind it."""
    path = shutil.which(python)
    return (
        path is not None
        and subprocess.run([path, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0
    )


PYTHONS = [sys.executable, *filter(runs, OTHERS)]


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "fullmesh.pyz"
    build(path)
    return path


def test_the_same_sources_give_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    """Two builds, under another umask and name, differ in nothing."""
    before = os.umask(0o077)
    try:
        digest = build(tmp_path / "other.pyz")
    finally:
        os.umask(before)
    assert (tmp_path / "other.pyz").read_bytes() == pyz.read_bytes()
    assert digest == build(tmp_path / "third.pyz")


def test_it_holds_sources_only(pyz: Path) -> None:
    """Nothing but Python sources of the three packages, in order, all with one time."""
    with zipfile.ZipFile(pyz) as archive:
        entries = archive.infolist()
    names = [entry.filename for entry in entries]
    assert names == sorted(names)
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "cluster", "diagnosis", "probe"}
    assert {Path(name).suffix for name in names} == {".py"}
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("python", PYTHONS)
def test_help_runs_without_the_checkout(pyz: Path, tmp_path: Path, python: str) -> None:
    """`check --help` shows its examples, from another folder and without any package."""
    done = subprocess.run(
        [python, "-I", str(pyz), "check", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--meet /shared/check --nodes 4" in done.stdout


def test_it_is_executable(pyz: Path) -> None:
    """The file starts with a shebang and may be run."""
    assert pyz.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert os.access(pyz, os.X_OK)
