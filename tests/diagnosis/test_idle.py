"""Connections that idled: dead with a new one alive is forgetting; anything else is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import pytest

from diagnosis.report import ConnectOutcome, IdleConnection, Verdict
from tests.diagnosis.builders import PORTS, STARTED_AT, Reports, change, diagnose, healthy, named

ALIVE, SILENT, RESET = ConnectOutcome.CONNECTED, ConnectOutcome.SILENT, ConnectOutcome.RESET


def idled(
    dead: Callable[[int, int], bool],
    kept: ConnectOutcome = SILENT,
    unacknowledged: Optional[bool] = True,
    fresh: Optional[ConnectOutcome] = ALIVE,
) -> Reports:
    """Four healthy nodes that left a connection of every pair alone; those of `dead` pairs ended so."""
    rows = healthy()
    for node in range(4):
        found = tuple(
            IdleConnection(
                destination=f"i-{peer}",
                port=PORTS[0],
                idle_s=5.0,
                at_s=STARTED_AT + 9,
                kept=kept if dead(node, peer) else ALIVE,
                unacknowledged=unacknowledged if dead(node, peer) else None,
                fresh=fresh if dead(node, peer) else None,
            )
            for peer in range(4)
            if peer != node
        )
        rows = change(rows, node, idle=found)
    return rows


@pytest.mark.parametrize(
    ("dead", "subject"),
    [
        pytest.param(lambda s, d: {s, d} == {1, 3}, "pair:1>3", id="a pair, both ways"),
        pytest.param(lambda s, d: (s, d) == (3, 1), "pair:3>1", id="a pair, one way"),
        pytest.param(lambda s, d: 2 in (s, d), "node:2", id="one node with everybody"),
        pytest.param(lambda s, d: True, "cluster", id="all of them"),
    ],
)
@pytest.mark.parametrize("kept", [SILENT, RESET])
def test_a_dead_connection_beside_a_new_one_that_works(
    dead: Callable[[int, int], bool], subject: str, kept: ConnectOutcome
) -> None:
    """Named once where they lie; a reset of what was forgotten counts like silence."""
    diagnosis = diagnose(idled(dead, kept))
    assert named(diagnosis) == [("idle-connection-dropped", subject)]
    assert f"{kept.value} after 5 s idle, a new connection CONNECTED" in diagnosis.causes[0].evidence[0]


@pytest.mark.parametrize(
    ("unacknowledged", "fresh"),
    [(True, ConnectOutcome.TIMED_OUT), (False, ALIVE), (None, ALIVE)],
    ids=["a new one dies, too", "the peer's kernel took the data", "not looked at"],
)
def test_what_does_not_prove_it_stays_open(unacknowledged: Optional[bool], fresh: ConnectOutcome) -> None:
    """A cut link, a starved peer and a look that was not taken are no forgetting, and no PASS."""
    diagnosis = diagnose(idled(lambda s, d: {s, d} == {1, 3}, SILENT, unacknowledged, fresh))
    assert (named(diagnosis), diagnosis.verdict) == ([], Verdict.UNKNOWN)


def test_idle_connections_that_live_are_fine_and_not_asked_is_not_asked() -> None:
    """PASS both with living ones and where nobody asked; UNKNOWN where one member did not look."""
    rows = idled(lambda s, d: False)
    assert diagnose(rows).verdict is Verdict.PASS
    assert diagnose(healthy()).verdict is Verdict.PASS
    assert diagnose(change(rows, 2, idle=None)).verdict is Verdict.UNKNOWN
