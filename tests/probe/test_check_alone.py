"""Members that cannot meet: what each says alone, and what their rows say together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnosis.report import Verdict
from probe.merge import merge
from tests.probe.cluster_in_namespace import address_of, run_cluster
from tests.probe.test_check import DROP_EPHEMERAL, launched

pytestmark = pytest.mark.lab

TWELVE_SECONDS = ["check", "--json", "--no-collective", "--timeout-s", "12"]
# Where members of a launcher meet: rank 0 listens on the second, and its listener on the first hands on.
DROP_BOTH_WAYS = DROP_EPHEMERAL.replace("32768-60999", "{ 29500, 29501 }")


def hostfile(folder: Path, count: int) -> list[str]:
    path = folder / "hosts"
    path.write_text("".join(f"node-{rank}\n" for rank in range(count)))
    return [*TWELVE_SECONDS, "--hostfile", str(path)]


def test_members_that_cannot_meet_try_known_hosts_all_the_same(tmp_path: Path) -> None:
    """MASTER_PORT and the one behind it are dropped: each is UNKNOWN alone, and the rows show it."""
    rows = tmp_path / "rows"
    rows.mkdir()
    ended = run_cluster(tmp_path, [[*hostfile(tmp_path, 3), "--row", str(rows)]] * 3, rules=DROP_BOTH_WAYS)
    # Rank 0 has seen its own probes to MASTER_PORT of the others die, and they cannot tell it theirs.
    assert [item.status for item in ended] == [1, 3, 3], [item.log for item in ended]
    assert ended[0].answer["causes"] == []
    for rank in (1, 2):
        answer = ended[rank].answer
        assert (answer["verdict"], answer["causes"]) == ("UNKNOWN", [])
        candidates = [item["id"] for item in answer["candidates"]]
        assert candidates[:2] == ["master-unreachable", "peer-missing"]
        assert f"node-{rank} ({address_of(rank)}) met nobody" in answer["unanswered"][0]
    found = merge([str(path) for path in sorted(rows.iterdir())])
    assert (found.verdict, len(found.pairs)) == (Verdict.FAIL, 6)
    assert {pair.outcomes["29500"] for pair in found.pairs} == {"TIMED_OUT"}
    assert {pair.outcomes["46884"] for pair in found.pairs} == {"CONNECTED"}


def test_a_host_where_nobody_listens_is_still_missing(tmp_path: Path) -> None:
    """The second host of the file is up and runs no check: that is peer-missing, as before."""
    ended = run_cluster(tmp_path, [hostfile(tmp_path, 2), ["explain"]])
    assert (ended[0].status, ended[0].answer["verdict"]) == (1, "FAIL")
    assert [(item["id"], item["subject"]) for item in ended[0].answer["causes"]] == [
        ("peer-missing", "node:1")
    ]


def test_a_member_behind_a_filter_is_not_missing(tmp_path: Path) -> None:
    """Rank 1 is there and cannot come to the meeting: rank 0 finds it, and does not say it never came."""
    ended = run_cluster(tmp_path, [hostfile(tmp_path, 2)] * 2, rules=DROP_BOTH_WAYS)
    assert [item.status for item in ended] == [1, 3], [item.log for item in ended]
    answer = ended[0].answer
    assert answer["causes"] == []
    assert "peer-missing" not in [item["id"] for item in answer["candidates"]]
    assert f"node:1: rank-1 ({address_of(1)}) sent no row" in answer["unanswered"]


@pytest.mark.parametrize(
    ("master", "candidate"),
    [
        ("no-such-host", "master-addr-unresolvable"),
        ("10.77.0.99", "master-addr-not-a-member"),
        ("1.1.1.1", "public-address"),
    ],
)
def test_a_master_that_is_not_rank_0_is_a_candidate_at_rank_0(
    tmp_path: Path, master: str, candidate: str
) -> None:
    """Rank 0 cannot serve at an address that is not its own, and says what that may be."""
    environment = launched(2, MASTER_ADDR={0: master})[0]
    (ended,) = run_cluster(tmp_path, [TWELVE_SECONDS], environments=[environment])
    assert (ended.status, ended.answer["verdict"]) == (3, "UNKNOWN")
    assert [(item["id"], item["subject"]) for item in ended.answer["candidates"]] == [(candidate, "node:0")]


def test_what_a_member_sees_of_itself_comes_first(tmp_path: Path) -> None:
    """A bad interface name is this node's own fault, whatever else keeps it from the others."""
    environment = launched(2)[1] | {"GLOO_SOCKET_IFNAME": "ens5", "GLOO_COMPRESSION": "1"}
    (ended,) = run_cluster(tmp_path, [TWELVE_SECONDS], environments=[environment])
    assert (ended.status, ended.answer["verdict"]) == (3, "UNKNOWN")
    candidates = [(item["id"], item["subject"]) for item in ended.answer["candidates"]]
    assert candidates[0] == ("ifname-missing", "node:1")
    assert [item["id"] for item in ended.answer["consequences"]] == ["env-no-effect"]
    assert ended.answer["row"]["host"]["environment"]["GLOO_SOCKET_IFNAME"] == "ens5"


def test_mpi_without_any_place_keeps_its_row(tmp_path: Path) -> None:
    """No address of rank 0 is told: the row is written, and the answer says what to set."""
    environment = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    row = tmp_path / "row.json"
    (ended,) = run_cluster(tmp_path, [[*TWELVE_SECONDS, "--row", str(row)]], environments=[environment])
    assert (ended.status, ended.answer["verdict"]) == (3, "UNKNOWN")
    assert "mpirun -x MASTER_ADDR=HOST" in ended.answer["unanswered"][0]
    assert ended.seconds < 10
    assert json.loads(row.read_text())["rank"] == 1


def test_a_directory_that_cannot_be_written_leaves_each_alone(tmp_path: Path) -> None:
    """The error names the folder; it is not a fault of the cluster."""
    check = [*TWELVE_SECONDS, "--meet", "/proc/no-such-place", "--nodes", "2"]
    (ended,) = run_cluster(tmp_path, [check])
    assert (ended.status, ended.answer["verdict"], ended.answer["causes"]) == (3, "UNKNOWN", [])
    assert "met nobody: cannot write" in ended.answer["unanswered"][0]
    assert ended.answer["row"]["listeners"]
