"""`check --local N`: real ranks on this machine, and what they may claim."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.ports import PortRange
from probe import local
from probe.versions import torch_version

CHECKOUT = Path(__file__).resolve().parents[2]
CHECK = [sys.executable, "-m", "probe", "check", "--json", "--local"]


def run_local(*arguments: str, **variables: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, answer and progress of `check --local ARGUMENTS`."""
    done = subprocess.run(
        [*CHECK, *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def named(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["id"], item["subject"]) for item in answer["causes"]]


def children(pid: int) -> list[int]:
    """Every process below this one, as /proc tells."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [lower for child in found for lower in children(child)]


def test_four_ranks_pass_and_claim_no_network() -> None:
    """Every pair of four processes is proven, and the answer says that no network was."""
    status, answer, _ = run_local("4", "--no-collective", "--address", "127.0.0.1")
    assert (status, answer["verdict"], named(answer)) == (0, "PASS", [])
    assert len(answer["pairs"]) == 12
    assert {node["address"] for node in answer["nodes"]} == {"127.0.0.1"}
    (left_out,) = answer["skipped"]
    assert left_out.startswith("cluster: the network between hosts: all 4 ranks ran on this host (127.0.0.1)")
    ports = {port for pair in answer["pairs"] for port in pair["outcomes"]}
    assert len(ports) == 4 * 3 + 1  # three listeners a rank, and rank 0's MASTER_PORT


def test_a_collective_runs_between_local_ranks() -> None:
    """Three processes with torch add up, with a launcher's leftovers around them that would stop torch."""
    status, answer, _ = run_local("3", RANK="7", WORLD_SIZE="8", MASTER_ADDR="203.0.113.1", SLURM_PROCID="7")
    assert (status, named(answer)) == (0, [])
    assert (answer["collective"]["outcome"], answer["collective"]["world_size"]) == ("PASS", 3)


def test_a_held_master_port_is_named_once() -> None:
    """A port that was asked for and is held is a fault of rank 0 alone, which is where the store would be."""
    with socket.create_server(("127.0.0.1", 0)) as job:
        port = str(job.getsockname()[1])
        status, answer, _ = run_local("3", "--no-collective", "--address", "127.0.0.1", "--master-port", port)
    assert (status, named(answer)) == (1, [("port-in-use", "node:0")])


def test_a_job_on_torchs_port_is_left_alone() -> None:
    """Where nobody named a port, one that a running job holds is passed over."""
    with socket.socket() as job:
        job.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        job.bind(("127.0.0.1", 29500))
        job.listen()
        status, answer, log = run_local("2", "--no-collective", "--address", "127.0.0.1")
    assert (status, named(answer)) == (0, [])
    assert f"port 29500 is held by pid {os.getpid()}" in log
    assert "29500" not in {port for pair in answer["pairs"] for port in pair["outcomes"]}


def test_a_variable_without_effect_is_named_locally() -> None:
    """The ranks keep GLOO_ variables of their shell, so what one machine can tell of them is told."""
    status, answer, _ = run_local("2", "--no-collective", GLOO_COMPRESSION="1")
    assert (status, named(answer)) == (0, [("env-no-effect", "cluster")])
    assert (
        f"torch {torch_version()} as it is installed here does not hold its name"
        in answer["causes"][0]["summary"]
    )


@pytest.mark.lab
def test_a_firewall_of_this_host_is_named() -> None:
    """Where this host's own rules drop what its ranks send each other, that is the cause."""
    rules = "table inet t { chain c { type filter hook input priority 0; tcp dport 40000-44000 drop; }; }"
    script = f'ip link set lo up; nft "{rules}"; exec "$@"'
    done = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            "--net",
            "sh",
            "-c",
            script,
            "sh",
            *CHECK,
            "3",
            "--no-collective",
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert {cause for cause, _ in named(answer)} == {"os-firewall-drop"}
    assert "its ranks use 127.0.0.1" in done.stderr


def test_ranks_end_with_their_parent(tmp_path: Path) -> None:
    """A SIGKILL of the command leaves no rank and no file behind."""
    command = subprocess.Popen(
        [*CHECK, "3"],
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert command.stderr is not None
    while b"collective: pid" not in command.stderr.readline():
        assert command.poll() is None
    below = children(command.pid)
    assert len(below) >= 4
    command.send_signal(signal.SIGKILL)
    command.wait()
    give_up_at = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in below) or list(tmp_path.iterdir()):
        assert time.monotonic() < give_up_at, "a rank outlives its parent"
        time.sleep(0.05)
    command.stderr.close()


def test_a_rank_that_is_killed_is_never_a_pass() -> None:
    """Without one rank's row the others do not claim a mesh."""
    command = subprocess.Popen(
        [*CHECK, "3", "--no-collective", "--timeout-s", "8"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    while len(children(command.pid)) < 3:
        time.sleep(0.01)
    os.kill(children(command.pid)[2], signal.SIGKILL)
    output, _ = command.communicate(timeout=60)
    answer = json.loads(output)
    assert answer["verdict"] in ("FAIL", "UNKNOWN")
    assert command.returncode in (1, 3)
    assert {cause for cause, _ in named(answer)} <= {"peer-missing", "peer-died"}


def test_an_address_of_another_machine_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """The error names the address and says whose it must be."""
    done = subprocess.run([*CHECK, "2", "--address", "203.0.113.1"], cwd=CHECKOUT, check=False)
    assert done.returncode == 2
    assert "--address 203.0.113.1: Cannot assign requested address" in capfd.readouterr().err


def test_every_rank_has_ports_of_its_own() -> None:
    """The range is cut without overlap, also where it is small."""
    for ports, count in ((PortRange(32768, 60999), 256), (PortRange(40000, 40007), 4)):
        pieces = local._slices(ports, count)
        numbers = [port for piece in pieces for port in range(piece.first, piece.last + 1)]
        assert len(numbers) == len(set(numbers))
        assert set(numbers) <= set(range(ports.first, ports.last + 1))
