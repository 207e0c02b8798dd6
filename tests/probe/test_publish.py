"""What a verdict becomes on AWS, and on the node's own disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosis.report import (
    CollectiveResult,
    ConnectOutcome,
    Diagnosis,
    NodeVerdict,
    PairVerdict,
    Verdict,
)
from probe.cloudwatch import Metric
from probe.node_files import write_node_files
from probe.publish import log_event, metrics, summary

NODES = tuple(
    NodeVerdict(rank=r, name=f"n{r}", address=f"10.0.0.{r + 4}", verdict=Verdict.PASS, member_id=f"i-{r}")
    for r in range(2)
)


def pair(source: int, destination: int, outcome: ConnectOutcome, round_trip_s: float | None) -> PairVerdict:
    return PairVerdict(
        source=source,
        destination=destination,
        outcomes={"29500": ConnectOutcome.CONNECTED, "32768": outcome, "60999": None},
        round_trip_s=round_trip_s,
    )


GOOD = Diagnosis(
    verdict=Verdict.PASS,
    nodes=NODES,
    pairs=(pair(0, 1, ConnectOutcome.CONNECTED, 0.0002), pair(1, 0, ConnectOutcome.CONNECTED, 0.0004)),
    collective=CollectiveResult(outcome=Verdict.PASS, world_size=2, busbw_gbit_per_s=9.5),
)
BROKEN = Diagnosis(
    verdict=Verdict.FAIL, nodes=NODES, pairs=(pair(0, 1, ConnectOutcome.TIMED_OUT, 0.0002), GOOD.pairs[1])
)


def by_name(found: tuple[Metric, ...]) -> dict[str, tuple[list[float], str]]:
    assert {str(metric.dimensions) for metric in found} == {"{'Cluster': 'c'}"}
    return {metric.name: (list(metric.values), metric.unit) for metric in found}


def test_metrics_of_a_pass() -> None:
    """Verdict, completeness, broken pairs, round trips in milliseconds and bandwidth."""
    assert by_name(metrics(GOOD, "c", 2)) == {
        "NodesReported": ([2], "Count"),
        "NodesExpected": ([2], "Count"),
        "MeshVerdict": ([1.0], "None"),
        "BrokenPairs": ([0], "Count"),
        "RoundTripTime": ([0.2, 0.4], "Milliseconds"),
        "AllReduceBusBandwidth": ([9.5], "Gigabits/Second"),
    }


def test_metrics_of_a_fail_and_of_nothing() -> None:
    """A FAIL is 0; an UNKNOWN sends no verdict, and no pairs are not zero broken pairs."""
    seen = by_name(metrics(BROKEN, "c", 2))
    assert (seen["MeshVerdict"][0], seen["BrokenPairs"][0]) == ([0.0], [1])
    assert by_name(metrics(Diagnosis(verdict=Verdict.UNKNOWN), "c", 2)) == {
        "NodesReported": ([0], "Count"),
        "NodesExpected": ([2], "Count"),
    }


def test_the_log_event_lists_broken_pairs_only() -> None:
    """One event holds what is broken, on which ports; a port that was not tried is left out."""
    event = log_event(BROKEN, "run-1")
    assert (event["kind"], event["run"], event["verdict"]) == ("verdict", "run-1", "FAIL")
    assert (event["pairs"], event["broken_pairs"]) == (2, 1)
    assert event["broken"] == [
        {"source": 0, "destination": 1, "outcomes": {"29500": "CONNECTED", "32768": "TIMED_OUT"}}
    ]


def test_the_stacks_output_is_small() -> None:
    """The data of the SUCCESS signal sums up a run in a few figures with units."""
    assert summary(GOOD, "s3://b/k") == {
        "verdict": "PASS",
        "nodes": 2,
        "pairs": 2,
        "round_trip_ms_p50": 0.4,
        "round_trip_ms_max": 0.4,
        "all_reduce_busbw_gbit_per_s": 9.5,
        "evidence": "s3://b/k",
    }


def test_a_proven_node_keeps_what_torchrun_needs(tmp_path: Path) -> None:
    """cluster.env holds this node's place, the host file all addresses in rank order."""
    env, hosts = tmp_path / "cluster.env", tmp_path / "hostfile"
    write_node_files(
        tuple(reversed(NODES)),
        member_id="i-1",
        master_port=29500,
        interface="ens5",
        env_path=str(env),
        hostfile_path=str(hosts),
    )
    assert env.read_text() == (
        "MASTER_ADDR=10.0.0.4\nMASTER_PORT=29500\nWORLD_SIZE=2\nNNODES=2\nNODE_RANK=1\n"
        "GLOO_SOCKET_IFNAME=ens5\n"
    )
    assert hosts.read_text() == "10.0.0.4\n10.0.0.5\n"


def test_a_stranger_gets_no_files(tmp_path: Path) -> None:
    """A node that is not among the proven ones writes nothing."""
    with pytest.raises(ValueError, match="'i-9' stands 0 times among the 2 proven nodes"):
        write_node_files(
            NODES,
            member_id="i-9",
            master_port=29500,
            interface="",
            env_path=str(tmp_path / "e"),
            hostfile_path=str(tmp_path / "h"),
        )
    assert list(tmp_path.iterdir()) == []
