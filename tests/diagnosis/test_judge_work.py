"""A large broken cluster: few findings, and work that grows with the probes and not with their square."""

from __future__ import annotations

import errno
import random
import sys
from types import FrameType
from typing import Any

import pytest

from diagnosis.report import ConnectOutcome
from tests.diagnosis.builders import Reports, diagnose, dies, healthy, named, suspected

SMALL, LARGE = 12, 24
# As much as the calls a probe may grow while the nodes double: probes grow four-fold, so work
# that compares probes with pairs would grow as much.
GROWTH = 1.5

BROKEN: dict[str, tuple[ConnectOutcome, dict[str, Any]]] = {
    "silent": (ConnectOutcome.SILENT, {}),
    "garbled": (ConnectOutcome.SILENT, {"garbled": True}),
    "small messages pass": (ConnectOutcome.SILENT, {"round_trip_s": 0.0001, "unacknowledged": True}),
    "reset": (ConnectOutcome.RESET, {}),
    "refused": (ConnectOutcome.REFUSED, {}),
    "timed out": (ConnectOutcome.TIMED_OUT, {}),
    "no route": (ConnectOutcome.UNREACHABLE, {"errno": errno.ENETUNREACH}),
    "no descriptors": (ConnectOutcome.LOCAL_ERROR, {"errno": errno.EMFILE}),
}


def all_over(nodes: int, kind: str, percent: int) -> Reports:
    """Rows in which so many pairs are broken, of every node and in no order."""
    chance = random.Random(1)  # noqa: S311 - the same rows each time
    dead = {(s, d) for s in range(nodes) for d in range(nodes) if chance.randrange(100) < percent}
    outcome, changes = BROKEN[kind]
    return dies(healthy(nodes), lambda s, d, p: (s, d) in dead, outcome, **changes)


def calls_per_probe(rows: Reports) -> float:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        diagnose(rows)
    finally:
        sys.setprofile(before)
    return calls / sum(len(row.probes or ()) for row in rows)


@pytest.mark.parametrize("kind", BROKEN)
def test_work_grows_with_the_probes(kind: str) -> None:
    """Twice the nodes take as many calls a probe, whatever breaks nearly everything."""
    small, large = (calls_per_probe(all_over(nodes, kind, 80)) for nodes in (SMALL, LARGE))
    assert large <= GROWTH * small


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("garbled", "proxy-sidecar"),
        ("small messages pass", "mtu-black-hole"),
        ("no route", "route-missing"),
    ],
)
def test_pairs_all_over_the_place_are_one_finding(kind: str, cause: str) -> None:
    """More broken pairs than anybody reads are the cluster's, named once."""
    assert named(diagnose(all_over(LARGE, kind, 40))) == [(cause, "cluster")]


@pytest.mark.parametrize("kind", ["silent", "reset"])
def test_an_open_question_all_over_the_place_is_asked_once(kind: str) -> None:
    """What nothing decides at many members is one question of the cluster."""
    assert {subject for _, subject in suspected(diagnose(all_over(LARGE, kind, 40)))} == {"cluster"}
