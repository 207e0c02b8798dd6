"""Which variables the installed torch holds: the real one, and files with what a compiler may leave."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from diagnosis.variables import READ, UNREAD
from probe.torch_files import held_by_torch

CHECKOUT = Path(__file__).resolve().parents[2]
CONTROL = b"GLOO_SOCKET_IFNAME\0"
NAME = "GLOO_FUTURE_OF_NETWORKS"


def library(read_only: bytes) -> bytes:
    """A 64-bit library of which only the section .rodata is there."""
    names = b"\0.rodata\0.shstrtab\0"
    at = 64
    table = at + len(read_only) + len(names)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    sections = bytes(64)
    for name, offset, size in ((1, at, len(read_only)), (9, at + len(read_only), len(names))):
        sections += struct.pack("<IIQQQQIIQQ", name, 1, 2, 0, offset, size, 0, 0, 16, 0)
    return header + read_only + names + sections


def asked(folder: Path, *names: str, torch: bytes | None, python: str = "") -> dict[str, bool] | None:
    """What a Python of its own tells whose torch has this library and this file."""
    (folder / "torch/lib").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("raise SystemExit('torch must not be imported')")
    (folder / "torch/distributed").mkdir()
    (folder / "torch/distributed/run.py").write_text(python)
    if torch is not None:
        (folder / "torch/lib/libtorch_cpu.so").write_bytes(torch)
    code = f"import json; from probe.torch_files import *; print(json.dumps(held_by_torch({list(names)!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{folder}:{CHECKOUT}"},
        capture_output=True,
        check=True,
    )
    told: dict[str, bool] | None = json.loads(done.stdout)
    return told


def test_the_installed_torch_holds_what_the_table_says_it_reads() -> None:
    """Each compiled name of the table is there, but for those of other builds; each unread one is not."""
    compiled = {name: not read.some_builds for name, read in READ.items() if read.compiled}
    assert held_by_torch(list(compiled)) == compiled
    assert held_by_torch([*UNREAD, "GLOO_TURBO"]) == dict.fromkeys([*UNREAD, "GLOO_TURBO"], False)


def test_torch_is_not_imported_for_that() -> None:
    """Its import takes seconds; the names are looked up in files."""
    code = "import sys; from probe.torch_files import held_by_torch as held; held(['GLOO_X']); "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, check=True)
    assert done.stdout == b"False\n"


SPELLED = {
    "by itself": (b"\0" + NAME.encode() + b"\0", {NAME: True}),
    "nowhere": (b"\0" + NAME.encode()[:-1] + b"\0", {NAME: False}),
    "only as the beginning of another": (b"\0" + NAME.encode() + b"_2\0", {NAME: False}),
    "as the end of another": (b"\0TORCH_" + NAME.encode() + b"\0", {}),
    "its first 16 bytes as a constant": (b"\0" * 13 + NAME.encode()[:16] + b"\1" * 16, {}),
}


@pytest.mark.parametrize("spelling", SPELLED)
def test_a_name_is_absent_only_where_that_is_certain(tmp_path: Path, spelling: str) -> None:
    """What a linker or a compiler may have made of a name leaves it untold."""
    text, expected = SPELLED[spelling]
    assert asked(tmp_path, NAME, torch=library(CONTROL + text)) == expected


def test_a_build_without_the_control_tells_nothing_absent(tmp_path: Path) -> None:
    """A torch in which not even GLOO_SOCKET_IFNAME is found keeps its names where nobody looks."""
    assert asked(tmp_path, NAME, "GLOO_A", torch=library(b"\0GLOO_A\0")) == {"GLOO_A": True}


def test_a_name_that_torchs_python_speaks_of_is_held(tmp_path: Path) -> None:
    """torch.distributed reads variables in Python, too."""
    told = asked(tmp_path, NAME, torch=library(CONTROL), python=f"os.environ.get('{NAME}')")
    assert told == {NAME: True}


@pytest.mark.parametrize("torch", [None, b"", b"MZ" * 99], ids=["none", "empty", "of another system"])
def test_libraries_that_cannot_be_read_tell_nothing(tmp_path: Path, torch: bytes | None) -> None:
    """Not looked at is None."""
    assert asked(tmp_path, NAME, torch=torch) is None
