"""A node that replaces another one is proven anew, and its files follow the latest verdict."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from pathlib import Path

import pytest

from cluster.node_config import NodeConfig
from cluster.ports import PortRange
from diagnosis.report import Diagnosis, Finding, NodeVerdict, Verdict
from probe import check
from probe.alone import without_meeting
from probe.board import BoardContentError, BoardError, DirectoryBoard
from probe.join import stands_for
from probe.node_files import keep_node_files
from probe.periodic import Due
from probe.place import Place, Wish, left_out
from probe.rows import dump
from probe.run import bench_for, prove_mesh
from probe.transport import AwsError

CONFIG = NodeConfig(
    cluster="demo", run="r1", nodes=2, master_port=29500, region="eu-central-1", bucket="b", role_id="AROA"
)
ADDRESSES = {"i-0": "127.0.0.51", "i-1": "127.0.0.52", "i-2": "127.0.0.53"}
CAUSE = Finding(id="route-missing", subject="node:1", summary="", evidence=(), remediation="")


def node(rank: int, member_id: str) -> NodeVerdict:
    return NodeVerdict(
        rank=rank,
        name=f"n{rank}",
        address=ADDRESSES[member_id],
        verdict=Verdict.PASS,
        member_id=member_id,
    )


OLD = Diagnosis(verdict=Verdict.PASS, nodes=(node(0, "i-0"), node(1, "i-1")))


class World:
    """A bucket's rows as a directory, and places of members in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env, self.hosts = folder / "cluster.env", folder / "hostfile"
        self.said: list[str] = []

    def place(self, member_id: str, wish: Wish, config: NodeConfig | None = CONFIG) -> Place:
        run = wish.run or CONFIG.run
        return Place(
            run=run,
            member_id=member_id,
            address=ADDRESSES[member_id],
            name=member_id,
            nodes=2,
            board=DirectoryBoard(str(self.folder / "rows" / run), member_id),
            master_port=29500,
            ephemeral_ports=PortRange(41000, 41999),
            deadline_s=wish.deadline_s or 10,
            config=config,
            listens_on_master=wish.listens_on_master,
            skipped=left_out(wish, 29500),
        )

    def other_member(self, due: Due) -> None:
        """The periodic check of the member that stayed."""
        wish = Wish(run=due.run, deadline_s=due.timeout_s, listens_on_master=False)
        bench = bench_for(self.place("i-0", wish, config=None), self.said.append, signals=False)
        prove_mesh(bench, {})

    def keep(self, diagnosis: Diagnosis, *, member_id: str = "i-1") -> Diagnosis:
        return keep_node_files(
            self.place(member_id, Wish()),
            diagnosis,
            self.said.append,
            env_path=str(self.env),
            hostfile_path=str(self.hosts),
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The deployed node i-2, in a cluster whose run r1 has passed with i-0 and i-1."""
    made = World(tmp_path)
    own = functools.partial(made.place, "i-2")
    for name in ("probe.check.place_on_ec2", "probe.join.by_ec2"):
        monkeypatch.setattr(name, own)
    monkeypatch.setattr("probe.check.read_config", lambda: CONFIG)
    files = functools.partial(keep_node_files, env_path=str(made.env), hostfile_path=str(made.hosts))
    monkeypatch.setattr("probe.check.keep_node_files", files)
    for stage in ("mesh", "collective"):
        made.place("i-0", Wish()).board.post(f"verdict-{stage}.json", dump(OLD))
    return made


def test_a_replaced_node_is_proven_in_the_next_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not inherit the PASS of the run it was not in: it joins the others' next check."""
    due = Due(run="r1-check-1700000100", at_s=int(time.time()) + 1, timeout_s=15)
    monkeypatch.setattr("probe.join.next_after", lambda *_: due)
    other = threading.Thread(target=world.other_member, args=(due,))
    other.start()
    mesh = check.node_stage("mesh", world.said.append).diagnosis
    other.join()
    assert (mesh.verdict, [item.member_id for item in mesh.nodes]) == (Verdict.PASS, ["i-0", "i-2"])
    assert {port for pair in mesh.pairs for port in pair.outcomes} == {"41000", "41500", "41999"}
    assert "no member listened on MASTER_PORT 29500" in mesh.skipped[0]
    assert not world.env.exists()

    both = check.node_stage("collective", world.said.append).diagnosis
    assert both.verdict is Verdict.PASS
    assert both.collective is not None
    assert both.collective.outcome is Verdict.SKIPPED
    assert "MASTER_ADDR=127.0.0.51\n" in world.env.read_text()
    assert "NODE_RANK=1\n" in world.env.read_text()
    assert world.hosts.read_text() == "127.0.0.51\n127.0.0.53\n"


def test_a_replaced_node_that_nobody_meets_does_not_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the others run no check, the new node is not proven, and no file says it was."""
    due = Due(run="r1-check-1700000400", at_s=int(time.time()), timeout_s=3)
    monkeypatch.setattr("probe.join.next_after", lambda *_: due)
    assert check.node_stage("mesh", world.said.append).diagnosis.verdict is Verdict.FAIL
    after = check.node_stage("collective", world.said.append).diagnosis
    assert (after.verdict, world.env.exists()) == (Verdict.UNKNOWN, False)
    assert "came after run r1 was judged" in after.unanswered[-1]


def test_a_member_of_the_verdict_reads_it_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was proven and starts again is not proven twice."""
    monkeypatch.setattr("probe.check.place_on_ec2", functools.partial(world.place, "i-1"))
    assert check.node_stage("mesh", world.said.append).diagnosis == OLD
    assert check.node_stage("collective", world.said.append).diagnosis == OLD
    assert "NODE_RANK=1\n" in world.env.read_text()


def test_files_follow_the_latest_verdict(world: World) -> None:
    """PASS writes them, FAIL takes cluster.env away and says so, the next PASS writes it again."""
    world.keep(OLD)
    first = world.env.read_text()
    assert (
        world.keep(Diagnosis(verdict=Verdict.FAIL, causes=(CAUSE,), nodes=OLD.nodes)).verdict is Verdict.FAIL
    )
    assert not world.env.exists()
    assert f"the mesh is broken: {world.env} is now {world.env}.failed" in world.said[-1]
    world.keep(OLD)
    assert (world.env.read_text(), Path(f"{world.env}.failed").exists()) == (first, False)
    moved = Diagnosis(verdict=Verdict.PASS, nodes=(node(0, "i-1"), node(1, "i-2")))
    world.keep(moved)
    assert "MASTER_ADDR=127.0.0.52\n" in world.env.read_text()


@pytest.mark.parametrize(
    "diagnosis",
    [
        Diagnosis(verdict=Verdict.UNKNOWN, nodes=OLD.nodes),
        Diagnosis(verdict=Verdict.FAIL, nodes=OLD.nodes, exposed=("0.0.0.0/0 may reach port 22",)),
        Diagnosis(verdict=Verdict.FAIL, causes=(CAUSE,)),
    ],
    ids=["unknown", "exposed", "of no cluster"],
)
def test_what_says_nothing_against_the_mesh_takes_nothing_away(world: World, diagnosis: Diagnosis) -> None:
    """UNKNOWN, others who can get in, and a verdict without rows leave cluster.env."""
    world.keep(OLD)
    world.keep(diagnosis)
    assert world.env.exists()


def test_an_earlier_verdict_changes_no_newer_file(world: World) -> None:
    """A stage that is run again and reads the deploy's verdict neither writes nor takes away."""
    world.env.write_text("newer")
    broken = Diagnosis(verdict=Verdict.FAIL, causes=(CAUSE,), nodes=OLD.nodes)
    for earlier in (OLD, broken):
        keep_node_files(
            world.place("i-1", Wish()),
            earlier,
            world.said.append,
            earlier=True,
            env_path=str(world.env),
            hostfile_path=str(world.hosts),
        )
    assert (world.env.read_text(), world.hosts.exists()) == ("newer", False)


def test_files_that_cannot_be_written_are_no_pass(world: World) -> None:
    """A PASS that left no cluster.env must not look like one."""
    world.env = world.folder / "no" / "such" / "folder" / "cluster.env"
    kept = world.keep(OLD)
    assert kept.verdict is Verdict.UNKNOWN
    assert "could not be written" in kept.unanswered[-1]


def test_storage_is_one_nodes_cause_and_not_posted(world: World) -> None:
    """A bucket that one node cannot reach is named at that node, and is not the cluster's verdict."""
    bench = bench_for(world.place("i-2", Wish(run="x")), world.said.append, signals=False)
    error = BoardError("s3 ListObjectsV2 failed: Unreachable")
    error.__cause__ = AwsError(
        service="s3", operation="ListObjectsV2", code="Unreachable", status=None, message="", next_step=""
    )
    found = without_meeting(bench, "mesh", error, None)
    assert [(item.id, item.subject) for item in found.causes] == [("storage-unreachable", "node:i-2")]
    assert found.causes[0].evidence == ("i-2: s3 ListObjectsV2 failed: Unreachable",)
    assert "(i-2, 127.0.0.53)" in found.causes[0].summary
    assert found.causes[0].summary.endswith(" (Unreachable)")
    assert bench.place.board.names() == ()


def test_a_registration_that_is_not_listed_is_told(world: World) -> None:
    """A place that takes what is posted and lists something else proves nothing, and is no crash."""
    place = dataclasses.replace(world.place("i-2", Wish(run="z")), member_id="i-9", nodes=1)
    found = prove_mesh(bench_for(place, world.said.append, signals=False), {})
    assert (found.verdict, found.causes, found.candidates) == (Verdict.UNKNOWN, (), ())
    assert "it lists 1 members, but not this one, which has registered" in found.unanswered[0]


def test_what_does_not_read_is_unknown_and_no_cause(world: World) -> None:
    """A registration or a verdict that does not parse says nothing of the way to the bucket."""
    place = world.place("i-2", Wish(run="y"))
    place.board.post("member~nonsense~1~2", b"")
    found = prove_mesh(bench_for(place, world.said.append, signals=False), {})
    assert (found.verdict, found.causes, found.candidates) == (Verdict.UNKNOWN, (), ())
    assert "'nonsense' is no address" in found.unanswered[0]
    other = world.place("i-2", Wish(run="z"))
    other.board.post("verdict-mesh.json", b"{")
    with pytest.raises(BoardContentError, match="is not a verdict"):
        stands_for(bench_for(other, world.said.append, signals=False), "mesh", {})


def test_a_node_that_comes_after_a_failed_verdict_tells_that_it_was_late(world: World) -> None:
    """The others judged without it; it judges again, with its own row, and is named."""
    early = world.place("i-0", Wish(run="r2", deadline_s=3), config=None)
    without = prove_mesh(bench_for(early, world.said.append, signals=False), {})
    assert "peer-missing" in [cause.id for cause in without.causes]
    bench = bench_for(world.place("i-2", Wish(run="r2"), config=None), world.said.append, signals=False)
    assert stands_for(bench, "mesh", {}) is None  # it is to run the stage, not to take the verdict over
    late = prove_mesh(bench, {})
    assert [(cause.id, cause.subject) for cause in late.causes] == [("peer-late", "node:1")]
    assert [item.member_id for item in late.nodes] == ["i-0", "i-2"]


def test_a_node_that_a_failed_verdict_knows_takes_it_over(world: World) -> None:
    """Its start-up is run again; nothing new is proven by that."""
    known = Diagnosis(verdict=Verdict.FAIL, causes=(CAUSE,), nodes=(node(0, "i-0"), node(1, "i-2")))
    world.place("i-0", Wish(run="r3")).board.post("verdict-mesh.json", dump(known))
    bench = bench_for(world.place("i-2", Wish(run="r3"), config=None), world.said.append, signals=False)
    assert stands_for(bench, "mesh", {}) == known
