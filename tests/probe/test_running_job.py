"""A job that trains is seen by what it holds, and a check imports no torch of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from probe import running_job as module
from probe.sockets import ESTABLISHED, TcpSocket

CHECKOUT = Path(__file__).resolve().parents[2]


def socket_to(remote: str, port: int = 40001) -> TcpSocket:
    return TcpSocket(("10.0.0.4", 40000), (remote, port), ESTABLISHED, 0, 0, inode="5")


@pytest.mark.parametrize(
    ("remote", "port", "maps", "seen"),
    [
        ("10.0.0.5", 40001, "/venv/torch/lib/libtorch_cpu.so", True),
        ("10.0.0.5", 40001, "/usr/lib/libssl.so", False),
        ("10.0.0.4", 40001, "/venv/torch/lib/libtorch_cpu.so", False),
        ("127.0.0.1", 40001, "/venv/torch/lib/libtorch_cpu.so", False),
        ("10.0.0.5", 443, "/venv/torch/lib/libtorch_cpu.so", False),
    ],
    ids=["torch and another host", "no torch", "its own host", "loopback", "a web service"],
)
def test_torch_that_talks_to_another_host_is_a_job(
    remote: str, port: int, maps: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch alone is a notebook, and a connection alone is any program's."""
    texts = {"/proc/77/maps": maps, "/proc/77/comm": "python3\n"}
    monkeypatch.setattr(module, "tcp_sockets", lambda: iter([socket_to(remote, port)]))
    monkeypatch.setattr(module, "inodes_of", lambda _: frozenset({"5"}))
    monkeypatch.setattr(module, "_text", lambda path: texts.get(path, ""))
    monkeypatch.setattr(module.os, "listdir", lambda _: ["77", "self"])
    words = "pid 77 (python3) has torch loaded and 1 connection to other hosts"
    assert module.running_job() == (words if seen else None)


def test_what_started_this_check_is_no_job_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's agent has torch loaded and its store open; it is an ancestor."""
    monkeypatch.setattr(module, "tcp_sockets", lambda: iter([socket_to("10.0.0.5")]))
    monkeypatch.setattr(module, "inodes_of", lambda _: frozenset({"5"}))
    monkeypatch.setattr(module, "_ancestors", lambda _: iter([77, 1]))
    monkeypatch.setattr(module, "_text", lambda _: "libtorch")
    monkeypatch.setattr(module.os, "listdir", lambda _: ["77"])
    assert module.running_job() is None


def test_only_the_collectives_own_process_imports_torch(tmp_path: Path) -> None:
    """A whole check of two ranks with an all_reduce: the probe's processes never load torch."""
    note = (
        "import atexit, json, os, sys\n"
        f"folder = {str(tmp_path)!r}\n"
        "def tell():\n"
        "    with open(os.path.join(folder, f'{os.getpid()}.json'), 'w') as file:\n"
        "        json.dump(['torch' in sys.modules, sys.argv[:2]], file)\n"
        "atexit.register(tell)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(note)
    done = subprocess.run(
        [sys.executable, "-m", "probe", "check", "--local", "2", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        timeout=200,
    )
    answer = json.loads(done.stdout)
    assert answer["collective"]["outcome"] == "PASS", done.stderr[-2000:]
    told = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert told, done.stderr[-2000:]
    assert [argv for loaded, argv in told if loaded] == []
