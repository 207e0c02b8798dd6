"""Before the collective: who is waited for, how long, and when nobody has torch."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import pytest

from cluster.node_config import NodeConfig
from diagnosis.report import Diagnosis, HostFacts, NodeReport, Verdict
from probe import check
from probe.board import DirectoryBoard
from probe.collective_stage import _await_ready
from probe.members import Member
from probe.place import Place
from probe.rows import COLLECTIVE_READY, FAILED_ROW, MESH_ROW, dump
from probe.run import StageClock, bench_for
from probe.verdict import Bench

CONFIG = NodeConfig(
    cluster="demo", run="r1", nodes=2, master_port=29500, region="eu-central-1", bucket="b", role_id="AROA"
)


def bench(folder: Path, *, signals: bool, config: NodeConfig | None = CONFIG) -> Bench:
    """Member `a` of two, both registered."""
    for name in ("a", "b"):
        own = Member(member_id=name, address="127.0.0.1", master_port=0, ports=())
        DirectoryBoard(str(folder), name).post(own.registration(), b"")
    place = Place(
        run="r1",
        member_id="a",
        address="127.0.0.1",
        name="a",
        nodes=2,
        board=DirectoryBoard(str(folder), "a"),
        config=config,
    )
    return bench_for(place, lambda _: None, signals=signals)


def later(folder: Path, name: str, after_s: float) -> None:
    """Member `b` posts an object after a while."""
    timer = threading.Timer(after_s, DirectoryBoard(str(folder), "b").post, (name, b""))
    timer.daemon = True
    timer.start()


@pytest.mark.parametrize(("source", "signals", "met"), [("index", True, True), ("image", True, False)])
def test_a_slow_installer_is_waited_for(tmp_path: Path, source: str, signals: bool, met: bool) -> None:
    """In a deploy a member that still installs torch may take the installers' limit, not the probe's."""
    config = dataclasses.replace(CONFIG, torch_source=source, install_limit_s=30)
    clock = StageClock(0.9)
    later(tmp_path, COLLECTIVE_READY, 1.5)
    assert _await_ready(bench(tmp_path, signals=signals, config=config), clock) is met


def test_a_check_by_hand_waits_its_own_time_only(tmp_path: Path) -> None:
    """Nobody installs anything then, so the time that was asked for holds."""
    later(tmp_path, COLLECTIVE_READY, 3.0)
    started = time.monotonic()
    assert _await_ready(bench(tmp_path, signals=False), StageClock(0.9)) is False
    assert time.monotonic() - started < 2.5


def test_an_installer_that_failed_ends_the_wait(tmp_path: Path) -> None:
    """A failed step of another member is told at once, not after the installers' limit."""
    later(tmp_path, FAILED_ROW, 0.3)
    started = time.monotonic()
    assert _await_ready(bench(tmp_path, signals=True), StageClock(0.9)) is False
    assert time.monotonic() - started < 20


def row(name: str, versions: dict[str, str]) -> bytes:
    host = HostFacts(versions=versions)
    return dump(NodeReport(run="r1", member_id=name, address="127.0.0.1", name=name, host=host))


@pytest.mark.parametrize(
    ("own", "other", "outcome"),
    [
        (row("a", {}), row("b", {}), Verdict.SKIPPED),
        (row("a", {}), b"{", None),
        (b"{", b"{", None),
    ],
    ids=["no torch anywhere", "one row unread", "no row read"],
)
def test_the_collective_is_left_out_only_where_every_row_says_so(
    tmp_path: Path, own: bytes, other: bytes, outcome: Verdict | None
) -> None:
    """A row that cannot be read does not say that its member lacks torch: then it is no PASS."""
    ours = bench(tmp_path, signals=False, config=None)
    ours.place.board.post(MESH_ROW, own)
    DirectoryBoard(str(tmp_path), "b").post(MESH_ROW, other)
    found = check._collective(ours, Diagnosis(verdict=Verdict.PASS), {})
    assert (found.collective.outcome if found.collective else None) is outcome
    assert found.verdict is (Verdict.PASS if outcome else Verdict.UNKNOWN)
