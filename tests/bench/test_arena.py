"""The lab's nodes and wall as benchmarks use them, on real namespaces."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from bench import contained, ranks
from bench.arena import MASTER_PORT, Arena
from bench.ranks import Ranks
from bench.record import BenchError


def inside(act: str) -> Any:
    """What the tests below run in namespaces of their own (see bench.contained)."""
    return globals()[act]()


def _raise() -> None:
    raise BenchError("nc is not installed")


def _break() -> None:
    raise RuntimeError("a defect")


def _leave_stuck_rank() -> list[int]:
    stuck = "import time\nprint(1, flush=True)\ntime.sleep(3600)\n"
    ranks.END_TIMEOUT_S = 0.2
    with Arena(1) as arena:
        command = arena.command(0, ["python3", "-c", stuck])
        with Ranks([command], environment=arena.environment()) as group:
            return [int(answer) for answer in group.gather(30, "number")]


LISTEN = """\
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    server.accept()
"""
DIAL = """\
import socket, sys
client = socket.socket()
client.settimeout(4)
print(client.connect_ex((sys.argv[1], int(sys.argv[2]))))
"""


def _look() -> dict[str, Any]:
    def on(rank: int, *argv: str) -> str:
        command = arena.command(rank, argv)
        return subprocess.run(
            command, env=arena.environment(), capture_output=True, text=True, check=False
        ).stdout.strip()

    with Arena(2) as arena:
        host = arena.addresses[1]
        servers = [
            subprocess.Popen(
                arena.command(1, ["python3", "-c", LISTEN, host, str(port)]),
                env=arena.environment(),
                stdout=subprocess.PIPE,
            )
            for port in (MASTER_PORT, 40000)
        ]
        try:
            for server in servers:
                assert server.stdout is not None
                server.stdout.readline()
            seen: dict[str, Any] = {
                "host name": on(1, "hostname"),
                "own address": on(1, "getent", "ahostsv4", arena.names[1]).split()[0],
                "range": str(arena.ephemeral_ports()),
            }
            for name, act in (
                ("closed", None),
                ("master port", arena.open_only_master_port),
                ("all", arena.open_all_tcp),
            ):
                if act is not None:
                    act()
                seen[name] = [on(0, "python3", "-c", DIAL, host, str(port)) for port in (MASTER_PORT, 40000)]
            return seen
        finally:
            for server in servers:
                server.kill()
                server.wait()


@pytest.mark.lab
def test_nodes_know_their_names_and_the_wall_opens_what_it_is_told() -> None:
    """Closed at first; then MASTER_PORT alone with the rest dropped in silence; then every TCP port."""
    assert contained.call("tests.bench.test_arena", act="_look") == {
        "host name": "ip-10-42-0-5",
        "own address": "10.42.0.5",
        "range": "32768-60999",
        "closed": ["11", "11"],  # EAGAIN: Python's time-out of a connect that nothing answered
        "master port": ["0", "11"],
        "all": ["0", "0"],
    }


@pytest.mark.lab
def test_rank_that_never_ends_does_not_hold_up_the_end() -> None:
    """A rank blocked in a call, as torch's is, is killed with its node, and the benchmark ends."""
    assert contained.call("tests.bench.test_arena", act="_leave_stuck_rank") == [1]


@pytest.mark.lab
def test_reason_of_a_failure_inside_comes_out() -> None:
    """What a benchmark says when it cannot run is said by the caller, word for word."""
    with pytest.raises(BenchError, match=r"^nc is not installed$"):
        contained.call("tests.bench.test_arena", act="_raise")


@pytest.mark.lab
def test_defect_inside_is_no_answer() -> None:
    """A crash inside is an error of the benchmark, not an empty result."""
    with pytest.raises(BenchError, match=r"tests\.bench\.test_arena ended with exit status 1"):
        contained.call("tests.bench.test_arena", act="_break")
