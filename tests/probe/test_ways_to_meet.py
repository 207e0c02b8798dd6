"""Members of a launcher meet wherever MASTER_PORT is open, and else blame nobody who was kept away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.cluster_in_namespace import TORCHRUN, address_of, run_cluster
from tests.probe.test_check import DROP_EPHEMERAL, causes, launched

pytestmark = pytest.mark.lab

CHECK = ["check", "--json", "--no-collective", "--timeout-s", "60"]
DROP_MEETING_PORT = DROP_EPHEMERAL.replace("32768-60999", "29501")
DROP_ALL_BUT_MASTER_PORT = DROP_EPHEMERAL.replace("dport 32768-60999", "dport != 29500")
DROP_ALL = DROP_EPHEMERAL.replace("tcp dport 32768-60999", "meta l4proto tcp")
SLOW_TORCHRUN_S = 240  # each agent and each worker imports torch
FAMOUS = [("sg-only-master-port", "cluster")]


def test_the_famous_failure_is_named_where_only_master_port_is_open(tmp_path: Path) -> None:
    """The meeting port is dropped, too: rank 0's listener on MASTER_PORT hands the others on."""
    ended = run_cluster(tmp_path, [CHECK] * 3, environments=launched(3), rules=DROP_ALL_BUT_MASTER_PORT)
    assert [item.status for item in ended] == [1, 1, 1], [item.log for item in ended]
    assert causes(ended[0]) == FAMOUS
    assert [item.answer for item in ended[1:]] == ["", ""]  # they have read it, and rank 0 shows it


def test_the_collective_is_proven_without_the_meeting_port(tmp_path: Path) -> None:
    """Torch takes MASTER_PORT for its store; the members then meet on a port of the proven range."""
    arguments = ["check", "--json", "--timeout-s", "200"]
    ended = run_cluster(
        tmp_path,
        [arguments] * 2,
        environments=launched(2),
        rules=DROP_MEETING_PORT,
        timeout_s=SLOW_TORCHRUN_S,
    )
    assert [item.status for item in ended] == [0, 0], [item.log for item in ended]
    assert (causes(ended[0]), ended[0].answer["collective"]["outcome"]) == ([], "PASS")


def test_who_cannot_reach_the_meeting_place_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """Nothing is open: rank 0, alone, cannot tell that from a rank that was never started, and says so."""
    ended = run_cluster(tmp_path, [[*CHECK[:-1], "9"]] * 2, environments=launched(2), rules=DROP_ALL)
    assert [item.status for item in ended] == [3, 3], [item.log for item in ended]
    answer = ended[0].answer
    assert (answer["verdict"], answer["causes"]) == ("UNKNOWN", [])
    assert [(item["id"], item["subject"]) for item in answer["candidates"]] == [
        ("peer-missing", "node:1"),
        ("master-unreachable", "node:1"),
    ]
    assert answer["next_command"].startswith(f"nc -zv -w 3 {address_of(0)} 29500")


def test_the_famous_failure_is_named_under_torchrun(tmp_path: Path) -> None:
    """Every worker reaches the agent's store on MASTER_PORT, and no listener of another."""
    where = f"--nproc-per-node=1 --master-addr={address_of(0)} --master-port=29500"
    agents = [{TORCHRUN: f"--nnodes=2 --node-rank={rank} {where}"} for rank in range(2)]
    rules = DROP_ALL_BUT_MASTER_PORT
    ended = run_cluster(tmp_path, [CHECK] * 2, environments=agents, rules=rules, timeout_s=SLOW_TORCHRUN_S)
    assert [item.status for item in ended] == [1, 1], [item.log for item in ended]
    assert causes(ended[0]) == FAMOUS
