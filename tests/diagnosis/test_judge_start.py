"""Causes of variables, ranks and the nodes' own start-up, each at exactly its subject."""

from __future__ import annotations

import dataclasses
import errno
from typing import Dict, Tuple

import pytest

from diagnosis.report import Listener, PortKind, StepFailure, Verdict
from tests.diagnosis.builders import (
    MASTER_PORT,
    Named,
    Reports,
    address,
    change,
    diagnose,
    drops,
    env,
    healthy,
    launched,
    named,
    on_host,
    suspected,
    without,
)


def test_a_complete_environment_is_no_finding() -> None:
    """torchrun's variables on every node, alike: nothing to say."""
    diagnosis = diagnose(launched())
    assert (diagnosis.verdict, diagnosis.causes) == (Verdict.PASS, ())


STARTS: Dict[str, Tuple[Reports, Named]] = {
    "RANK is absent on one node": (without(launched(), 2, "RANK"), [("env-missing", "node:2")]),
    "nothing is set on one node": (
        without(launched(), 2, "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        [("env-missing", "node:2")],
    ),
    "MASTER_PORT is absent everywhere": (
        without(without(launched(2), 0, "MASTER_PORT"), 1, "MASTER_PORT"),
        [("env-missing", "cluster")],
    ),
    "ready for torchrun": (
        env(healthy(), range(4), NODE_RANK="0", WORLD_SIZE="4", MASTER_ADDR=address(0), MASTER_PORT="29500"),
        [],
    ),
    "another job's rank in a task of srun": (
        on_host(
            env(
                launched(),
                [1],
                RANK="0",
                WORLD_SIZE="1",
                SLURM_STEP_ID="0",
                SLURM_PROCID="1",
                SLURM_NTASKS="4",
            ),
            [1],
            started_by="slurmstepd",
        ),
        [("env-leftover", "node:1")],
    ),
    "a daemon's task in every rank of mpirun": (
        on_host(
            env(
                launched(),
                [2],
                **{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
                **{"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "3"},
            ),
            [2],
            started_by="orted",
        ),
        [],
    ),
    "another MASTER_PORT on one node": (
        env(launched(), [1], MASTER_PORT="29501"),
        [("env-inconsistent", "node:1")],
    ),
    "two halves": (
        env(launched(), [1, 3], MASTER_PORT="29501"),
        [("env-inconsistent", "cluster")],
    ),
    "another MASTER_ADDR on one node": (
        env(launched(), [1], MASTER_ADDR=address(2)),
        [("env-inconsistent", "node:1")],
    ),
    "rank 0 by its name, and by localhost on itself": (
        env(env(launched(), [1], MASTER_ADDR="ip-10-20-1-10"), [0], MASTER_ADDR="localhost"),
        [],
    ),
    "MASTER_ADDR is another member": (
        env(launched(), range(4), MASTER_ADDR=address(2)),
        [("master-addr-not-a-member", "cluster")],
    ),
    "MASTER_ADDR is public": (
        env(launched(), range(4), MASTER_ADDR="52.1.2.3"),
        [("public-address", "cluster")],
    ),
    "MASTER_ADDR has a port": (
        env(launched(), [1], MASTER_ADDR="10.20.1.10:29500"),
        [("master-addr-malformed", "node:1")],
    ),
    "MASTER_ADDR is empty": (env(launched(), [1], MASTER_ADDR=""), [("master-addr-empty", "node:1")]),
    "a variable that nothing reads": (
        env(healthy(), [2], GLOO_TIMEOUT_SECONDS="60"),
        [("env-no-effect", "node:2")],
    ),
    "an unknown variable on every node": (
        env(healthy(), range(4), GLOO_TURBO="1"),
        [("env-no-effect", "cluster")],
    ),
    "a transport that does not exist": (
        env(healthy(), [1], GLOO_DEVICE_TRANSPORT="RDMA"),
        [("transport-unsupported", "node:1")],
    ),
    # numbers
    "WORLD_SIZE differs on one node": (
        change(launched(), 1, world_size=5),
        [("world-size-mismatch", "node:1")],
    ),
    "WORLD_SIZE differs from the plan": (
        tuple(dataclasses.replace(item, world_size=8) for item in healthy()),
        [("world-size-mismatch", "cluster")],
    ),
    "a rank beyond the size": (change(launched(), 3, rank=7), [("world-size-mismatch", "node:7")]),
    "one rank twice": (change(launched(), 3, rank=2), [("duplicate-rank", "node:2")]),
    # nodes
    "a failed step": (
        change(healthy(), 3, failures=(StepFailure(step="torch", exit_status=1, output="no\nspace left\n"),)),
        [("bootstrap-failed", "node:3")],
    ),
    "no way to the bucket": (
        change(
            healthy(),
            3,
            failures=(
                StepFailure(
                    step="asset",
                    exit_status=255,
                    output='Could not connect to the endpoint URL: "https://b.s3.eu-west-1.amazonaws.com/a"',
                ),
            ),
        ),
        [("storage-unreachable", "node:3")],
    ),
    "metrics refused on one node": (
        change(healthy(), 1, publish_errors=("PutMetricData: AccessDenied",)),
        [("publish-failed", "node:1")],
    ),
    "metrics refused everywhere": (
        tuple(dataclasses.replace(item, publish_errors=("AccessDenied",)) for item in healthy()),
        [("publish-failed", "cluster")],
    ),
}

# Worth saying, and never a reason for FAIL.
ADVICE = ("env-no-effect", "publish-failed")


@pytest.mark.parametrize("name", STARTS)
def test_each_start_is_named_at_its_subject(name: str) -> None:
    """Exactly these causes, no candidates, and FAIL only where a cause breaks the mesh."""
    rows, expected = STARTS[name]
    diagnosis = diagnose(rows)
    assert named(diagnosis) == expected
    assert suspected(diagnosis) == []
    breaks = any(cause_id not in ADVICE for cause_id, _ in expected)
    assert diagnosis.verdict is (Verdict.FAIL if breaks else Verdict.PASS)


def test_a_held_master_port_is_named_with_its_holder() -> None:
    """EADDRINUSE at MASTER_PORT: the port, the node and the process."""
    listeners = list(healthy()[0].listeners or ())
    listeners[0] = Listener(
        port=MASTER_PORT, kind=PortKind.MASTER, opened=False, errno=errno.EADDRINUSE, holder="pid 7 (python3)"
    )
    rows = change(healthy(), 0, listeners=tuple(listeners))
    rows = tuple(
        dataclasses.replace(
            item,
            probes=tuple(
                one for one in item.probes or () if (one.destination, one.port) != ("i-0", MASTER_PORT)
            ),
        )
        for item in rows
    )
    diagnosis = diagnose(rows)
    assert named(diagnosis) == [("port-in-use", "node:0")]
    assert (
        diagnosis.causes[0].summary == f"port 29500 on node 0 (n0, {address(0)}) is held by pid 7 (python3)"
    )
    assert diagnosis.causes[0].commands[0] == "sudo ss -ltnp 'sport = :29500'"


def test_missing_ranks_are_named_where_ranks_were_claimed() -> None:
    """With claimed ranks the missing one is known; without, only how many came."""
    claimed = tuple(
        dataclasses.replace(
            item,
            members={key: value for key, value in item.members.items() if key != "i-1"},
            probes=tuple(one for one in item.probes or () if one.destination != "i-1"),
        )
        for place, item in enumerate(launched())
        if place != 1
    )
    assert named(diagnose(claimed, 4)) == [("peer-missing", "node:1")]
    unclaimed = tuple(dataclasses.replace(item, rank=None, world_size=None) for item in claimed)
    assert ("peer-missing", "cluster") in named(diagnose(unclaimed, 4))


def test_too_many_members_are_a_mismatch() -> None:
    """Five members in a cluster of four."""
    assert named(diagnose(healthy(5), 4)) == [("world-size-mismatch", "cluster")]


def test_advice_stands_behind_causes_and_never_in_their_place() -> None:
    """A useless variable beside a real fault: after a cause, and no cause where none is certain."""
    certain = env(drops(healthy(), lambda s, d, p: (s, d) == (0, 1)), [0], GLOO_DEBUG="1")
    assert named(diagnose(certain)) == [("one-way-block", "pair:0>1"), ("env-no-effect", "node:0")]
    unsure = env(drops(healthy(), lambda s, d, p: True), [0], GLOO_DEBUG="1")
    diagnosis = diagnose(unsure)
    assert named(diagnosis) == []
    assert [item.id for item in diagnosis.consequences] == ["env-no-effect"]


def test_a_failed_step_explains_the_silence_of_its_node() -> None:
    """A node whose start-up failed before the mesh is not also missing."""
    failed = dataclasses.replace(
        healthy()[3],
        host=None,
        listeners=None,
        probes=None,
        members={},
        failures=(StepFailure(step="mesh", exit_status=2, output="Traceback\nboom"),),
    )
    diagnosis = diagnose((*healthy()[:3], failed), 4)
    assert named(diagnosis) == [("bootstrap-failed", "node:3")]
    assert diagnosis.causes[0].summary.endswith("ended with status 2: boom")
