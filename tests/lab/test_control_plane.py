"""The control plane's process: where it listens, what it refuses, how it ends."""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import control_plane
from lab.control_plane import backend, capacity
from tests.lab.plane import Plane, free_port, running_plane

REPOSITORY = Path(__file__).resolve().parents[2]


def listening(pid: int) -> list[str]:
    """Local addresses, in the kernel's hexadecimal, of a process's listening sockets."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (fields[3] == "0A" or table.startswith("udp")):
                found.append(fields[1])
    return found


def test_listens_on_one_loopback_port(plane: Plane) -> None:
    """Nothing of the control plane can be reached from another machine."""
    port = int(plane.url.rpartition(":")[2])
    assert listening(plane.pid) == [f"0100007F:{port:04X}"]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/2015-03-31/functions"), ("PUT", "/_fullmesh/capacity")]
)
def test_a_browsers_page_changes_nothing(plane: Plane, method: str, path: str) -> None:
    """What a page sends on its own names its origin; it is refused before anything reads it."""
    connection = http.client.HTTPConnection("127.0.0.1", int(plane.url.rpartition(":")[2]), timeout=10)
    code = {"ImageUri": "x"}
    body = json.dumps({"FunctionName": "page", "Role": "r", "Code": code, "PackageType": "Image"})
    connection.request(method, path, body, {"Content-Type": "text/plain", "Origin": "http://evil.example"})
    assert connection.getresponse().status == 403
    connection.close()
    assert plane.client("lambda").list_functions()["Functions"] == []


def test_takes_the_absolute_form_of_a_request(plane: Plane) -> None:
    """A function on the host reaches a node's URL through the control plane as its proxy."""
    port = int(plane.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "http://aws.fullmesh.internal:443/_ministack/health")
    assert connection.getresponse().status == 200
    connection.close()


def test_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A starter that is killed with SIGKILL leaves no control plane behind."""
    port = free_port()
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from lab import control_plane\n"
        f"folder = Path({str(tmp_path)!r})\n"
        f"started = control_plane.start({port}, folder / 'log', folder / 'scratch')\n"
        f"control_plane.wait_healthy('http://127.0.0.1:{port}', 30, started)\n"
        "print(started.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.send_signal(signal.SIGKILL)
    starter.wait(10)
    starter.stdout.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_taken_port_is_told_at_once(plane: Plane, tmp_path: Path) -> None:
    """A second control plane on the same port ends instead of answering for the first."""
    port = int(plane.url.rpartition(":")[2])
    process = control_plane.start(port, tmp_path / "log", tmp_path / "scratch")
    assert process.wait(30) == 1
    assert "Address already in use" in (tmp_path / "log").read_text()


def test_an_early_end_is_told(tmp_path: Path) -> None:
    """Waiting for a control plane that has ended does not wait for the whole time."""
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(control_plane.ControlPlaneError, match="ended with status 3"):
        control_plane.wait_healthy("http://127.0.0.1:9", 60, process)


def test_another_release_of_ministack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private names of a release that is not known are never relied on."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.5.34")
    with pytest.raises(backend.VersionError) as refusal:
        backend.check_version()
    assert str(refusal.value) == (
        "ministack 1.5.34 is installed, but the lab's control plane is written for 1.5.33: run make setup"
    )


def test_capacity_limits_are_parsed() -> None:
    """A type alone cannot be had at all, a count limits it."""
    assert capacity.parse("m5.large, c5.large:2") == {"m5.large": 0, "c5.large": 2}


def test_a_wrong_capacity_limit_is_refused() -> None:
    """What is not a count is named."""
    with pytest.raises(ValueError, match=r"capacity of m5\.large is 'x', expected a count"):
        capacity.parse("m5.large:x")


def test_ends_at_once_in_the_middle_of_a_deployment(tmp_path: Path) -> None:
    """A stack that waits for its nodes does not keep the control plane alive, and no file stays."""
    template = {
        "Resources": {
            "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
            "Wait": {
                "Type": "AWS::CloudFormation::WaitCondition",
                "Properties": {"Handle": {"Ref": "Handle"}, "Timeout": "600"},
            },
        }
    }
    with running_plane(tmp_path) as running:
        client = running.client("cloudformation")
        client.create_stack(StackName="waits", TemplateBody=json.dumps(template))
        time.sleep(0.5)
        started = time.monotonic()
    assert time.monotonic() - started < 8
    assert [item.name for item in tmp_path.iterdir()] == ["control-plane.log"]
