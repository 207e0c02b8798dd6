"""`check` as real processes with names and addresses of their own, meeting in every way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.cluster_in_namespace import Ended, address_of, run_cluster

pytestmark = pytest.mark.lab

DROP_EPHEMERAL = (
    "table inet t { chain f { type filter hook forward priority 0; "
    "tcp dport 32768-60999 ct state new drop; }; }"
)


def by_directory(folder: Path, count: int, *more: str) -> list[list[str]]:
    meet = ["--meet", str(folder / "meet"), "--nodes", str(count), "--json"]
    return [["check", *meet, "--address", address_of(rank), *more] for rank in range(count)]


def launched(count: int, **changes: dict[int, str]) -> list[dict[str, str]]:
    """The variables a launcher sets, one rank a node; `changes` replaces some, per rank."""
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": address_of(0), "MASTER_PORT": "29500"}
    return [
        {**common, "RANK": str(rank), **{name: by[rank] for name, by in changes.items() if rank in by}}
        for rank in range(count)
    ]


def causes(ended: Ended) -> list[tuple[str, str]]:
    return [(item["id"], item["subject"]) for item in ended.answer["causes"]]


def outcomes(answer: dict[str, Any]) -> set[tuple[int, int, str, str]]:
    return {
        (pair["source"], pair["destination"], port, outcome)
        for pair in answer["pairs"]
        for port, outcome in pair["outcomes"].items()
    }


def test_three_members_of_a_directory_pass(tmp_path: Path) -> None:
    """All six pairs connect on all four ports, and every member tells the same PASS."""
    ended = run_cluster(tmp_path, by_directory(tmp_path, 3, "--no-collective"))
    assert [(item.status, item.answer["verdict"], causes(item)) for item in ended] == [(0, "PASS", [])] * 3
    assert {str(item.answer["pairs"]) for item in ended} == {str(ended[0].answer["pairs"])}
    assert outcomes(ended[0].answer) == {
        (a, b, port, "CONNECTED")
        for a in range(3)
        for b in range(3)
        if a != b
        for port in ("29500", "32768", "46884", "60999")
    }
    assert [(node["rank"], node["name"], node["address"]) for node in ended[0].answer["nodes"]] == [
        (rank, f"node-{rank}", address_of(rank)) for rank in range(3)
    ]


def test_a_collective_over_the_environment_passes(tmp_path: Path) -> None:
    """Two ranks meet at MASTER_PORT + 1, prove the mesh and an all_reduce; rank 0 alone answers."""
    ended = run_cluster(tmp_path, [["check", "--json"]] * 2, environments=launched(2))
    assert [item.status for item in ended] == [0, 0]
    assert ended[1].answer == ""
    collective = ended[0].answer["collective"]
    assert (collective["outcome"], collective["world_size"], collective["bytes"]) == (
        "PASS",
        2,
        64 * 1024 * 1024,
    )
    assert collective["busbw_gbit_per_s"] > 0


def test_dropped_ephemeral_ports_are_timed_out_on_every_member(tmp_path: Path) -> None:
    """MASTER_PORT connects and every ephemeral port times out: FAIL, told by every member."""
    ended = run_cluster(tmp_path, by_directory(tmp_path, 3, "--no-collective"), rules=DROP_EPHEMERAL)
    assert [(item.status, item.answer["verdict"]) for item in ended] == [(1, "FAIL")] * 3
    assert {(port, outcome) for _, _, port, outcome in outcomes(ended[0].answer)} == {
        ("29500", "CONNECTED"),
        ("32768", "TIMED_OUT"),
        ("46884", "TIMED_OUT"),
        ("60999", "TIMED_OUT"),
    }


def test_a_member_that_never_comes_is_told_at_the_deadline(tmp_path: Path) -> None:
    """Two of three came: no PASS, and peer-missing is the cause that is named."""
    arguments = by_directory(tmp_path, 3, "--no-collective", "--timeout-s", "6")[:2]
    ended = run_cluster(tmp_path, arguments)
    assert {item.answer["verdict"] for item in ended} <= {"FAIL", "UNKNOWN"}
    assert {cause for item in ended for cause, _ in causes(item)} <= {"peer-missing"}
    assert "2 of 3 members" in " ".join(ended[0].answer["unanswered"])
    assert max(item.seconds for item in ended) < 15


def test_a_probe_killed_half_way_is_never_a_pass(tmp_path: Path) -> None:
    """A member killed after it registered leaves its row open: the others judge without it."""
    arguments = by_directory(tmp_path, 3, "--no-collective", "--timeout-s", "9")
    ended = run_cluster(tmp_path, arguments, kill={1: "listening"})
    assert ended[1].status == -9
    others = [ended[0], ended[2]]
    assert {item.answer["verdict"] for item in others} <= {"FAIL", "UNKNOWN"}
    assert {cause for item in others for cause, _ in causes(item)} <= {"peer-missing", "peer-died"}


def test_a_duplicate_rank_is_named(tmp_path: Path) -> None:
    """Two members claim rank 1 and nobody is rank 2."""
    environments = launched(3, RANK={2: "1"})
    ended = run_cluster(
        tmp_path, [["check", "--json", "--no-collective", "--timeout-s", "20"]] * 3, environments=environments
    )
    assert [item.status for item in ended] == [1, 1, 1]
    assert {cause for cause, _ in causes(ended[0])} == {"duplicate-rank"}


def test_different_world_sizes_are_named(tmp_path: Path) -> None:
    """One of three was told to wait for four."""
    environments = launched(3, WORLD_SIZE={1: "4"})
    ended = run_cluster(
        tmp_path, [["check", "--json", "--no-collective", "--timeout-s", "20"]] * 3, environments=environments
    )
    assert [item.status for item in ended] == [1, 1, 1]
    assert {cause for cause, _ in causes(ended[0])} == {"world-size-mismatch"}


def test_a_missing_variable_is_named_at_once(tmp_path: Path) -> None:
    """RANK is not set, though the launcher's other variables are."""
    environment = launched(2)[1]
    del environment["RANK"]
    (ended,) = run_cluster(tmp_path, [["check", "--json"]], environments=[environment])
    assert (ended.status, causes(ended)) == (1, [("env-missing", "cluster")])


def test_an_earlier_verdict_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """A directory that holds a verdict is refused as usage, and the answer says what to give."""
    run_cluster(tmp_path, by_directory(tmp_path, 2, "--no-collective"))
    again = run_cluster(tmp_path, by_directory(tmp_path, 2, "--no-collective"))
    assert [item.status for item in again] == [2, 2]
    assert "holds the verdict of an earlier check" in again[0].log


def test_members_of_a_host_file_take_their_line_as_rank(tmp_path: Path) -> None:
    """Names and addresses mix, slots= and comments are ignored, and all meet on the first line's host."""
    path = tmp_path / "hosts"
    path.write_text(f"# three\nnode-2 slots=8\n{address_of(0)} slots=8\n\nnode-1\n")
    check = ["check", "--json", "--no-collective", "--hostfile", str(path)]
    ended = run_cluster(tmp_path, [check] * 3)
    assert [item.status for item in ended] == [0, 0, 0]
    answer = ended[2].answer
    assert [(node["rank"], node["name"]) for node in answer["nodes"]] == [
        (0, "node-2"),
        (1, "node-0"),
        (2, "node-1"),
    ]
    assert len(answer["pairs"]) == 6


def test_a_check_beside_a_job_leaves_the_master_port_alone(tmp_path: Path) -> None:
    """The port that a job holds on every member is neither tried nor a fault, and that is said."""
    options = ("--no-collective", "--no-master-port", "--master-port", "32768")
    ended = run_cluster(tmp_path, by_directory(tmp_path, 2, *options), holding=32768)
    assert [(item.status, item.answer["verdict"], causes(item)) for item in ended] == [(0, "PASS", [])] * 2
    assert {port for _, _, port, _ in outcomes(ended[0].answer)} == {"32769", "46884", "60999"}
    assert [item.answer["unanswered"] for item in ended] == [[], []]
    (skipped,) = ended[1].answer["skipped"]
    assert "no member listened on MASTER_PORT 32768" in skipped


def test_a_member_without_a_variable_tells_the_others(tmp_path: Path) -> None:
    """Rank 2 has no MASTER_PORT: nobody waits for it, and every member names it at its rank."""
    environments = launched(3)
    del environments[2]["MASTER_PORT"]
    arguments = ["check", "--json", "--no-collective", "--meet", f"tcp://{address_of(0)}:29600"]
    ended = run_cluster(tmp_path, [arguments] * 3, environments=environments)
    assert [item.status for item in ended] == [1, 1, 1]
    assert causes(ended[0]) == causes(ended[2]) == [("env-missing", "node:2")]
    assert max(item.seconds for item in ended) < 60
