"""Clocks of the members: who is off, who may be, and causes in their true order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from diagnosis.case import Case
from diagnosis.membership import take_roll
from diagnosis.report import Verdict
from diagnosis.words import figures
from tests.diagnosis.builders import (
    STARTED_AT,
    Reports,
    change,
    diagnose,
    drops,
    expect,
    healthy,
    named,
    on_host,
)


def clocked(rows: Reports, clocks: Sequence[float], error_s: float = 0.0002, **known: object) -> Reports:
    """The rows as nodes with these clocks write them: readings of each other, and all their times.

    only: pairs (source, destination) that could read a clock; left out, all did.
    """
    only = known.get("only")
    found = []
    for source, item in enumerate(rows):
        probes = []
        for probe in item.probes or ():
            peer = int(probe.destination[2:])
            reads = only is None or (source, peer) in only  # type: ignore[operator]
            probes.append(
                dataclasses.replace(
                    probe,
                    started_at=(probe.started_at or 0.0) + clocks[source],
                    clock_offset_s=clocks[peer] - clocks[source] if reads else None,
                    clock_error_s=error_s if reads else None,
                )
            )
        times = {
            name: getattr(item, name) + clocks[source]
            for name in ("started_at", "finished_at", "booted_at", "listens_until")
            if getattr(item, name) is not None
        }
        found.append(dataclasses.replace(item, probes=tuple(probes), **times))
    return tuple(found)


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [
        pytest.param((0, 0, 2.0, 0), [("clock-skew", "node:2")], id="one ahead"),
        pytest.param((0, -0.12, 0, 0), [("clock-skew", "node:1")], id="one behind, just over"),
        pytest.param((0, 0.09, 0, 0), [], id="just under"),
        pytest.param((5.0, 0, 0, 0), [("clock-skew", "node:0")], id="rank 0 is not always right"),
        pytest.param(
            (0, 3.0, 0, -3.0, 0), [("clock-skew", "node:1"), ("clock-skew", "node:3")], id="two of five"
        ),
        pytest.param((0, 0, 2.0, 2.0), [("clock-skew", "cluster")], id="two against two"),
        pytest.param((0, 2.0), [("clock-skew", "cluster")], id="one against one"),
        pytest.param((0, 0.2, 0.4, 0.6), [("clock-skew", "cluster")], id="nobody agrees"),
    ],
)
def test_clocks_that_are_off(clocks: Sequence[float], expected: list[tuple[str, str]]) -> None:
    """A node where most clocks agree, the cluster where they do not; the verdict stays PASS."""
    diagnosis = diagnose(clocked(healthy(len(clocks)), clocks))
    assert (named(diagnosis), diagnosis.verdict) == (expected, Verdict.PASS)


def test_the_summary_says_how_far_and_which_way() -> None:
    """Seconds, direction, and how exact the readings are."""
    (found,) = diagnose(clocked(healthy(), (0, 0, -2.5, 0))).causes
    assert found.summary == "the clock of node 2 (n2, 10.20.1.12) is 2.500 s behind the others"
    assert found.evidence[0] == "node:2 clock minus that of node:0: -2.500 s (within 0.2 ms)"


def test_a_reading_that_is_not_exact_enough_accuses_nobody() -> None:
    """On a starved machine an exchange takes long: 150 ms apart, read to within 80 ms, may be 70."""
    assert diagnose(clocked(healthy(), (0, 0, 0.15, 0), error_s=0.08)).causes == ()
    assert named(diagnose(clocked(healthy(), (0, 0, 0.15, 0), error_s=0.02))) == [("clock-skew", "node:2")]


def test_two_clocks_and_a_time_service() -> None:
    """Of two clocks chrony tells which one is wrong, where it tells it of both."""
    rows = clocked(healthy(2), (0, 2.0))
    rows = on_host(rows, [0], clock_offset_s=0.0001)
    assert named(diagnose(rows)) == [("clock-skew", "cluster")]
    rows = on_host(rows, [1], clock_offset_s=2.0)
    assert named(diagnose(rows)) == [("clock-skew", "node:1")]


@pytest.mark.parametrize(
    "only",
    [
        pytest.param({(0, 1), (1, 2), (2, 3)}, id="a chain"),
        pytest.param({(1, 0), (2, 1), (3, 2)}, id="the other way"),
        pytest.param({(2, 0), (2, 1), (2, 3)}, id="read by the one that is off"),
    ],
)
def test_readings_of_a_part_of_the_pairs_are_enough(only: set[tuple[int, int]]) -> None:
    """Clocks are tied together over third ones."""
    rows = clocked(healthy(), (0, 0, 2.0, 0), only=only)
    assert named(diagnose(rows)) == [("clock-skew", "node:2")]


def test_clocks_that_nobody_read_are_not_judged() -> None:
    """Rows of another release hold no readings: nothing is said, and no time is moved."""
    rows = clocked(healthy(), (0, 0, 2.0, 0), only=set())
    assert diagnose(rows).causes == ()
    case = Case(take_roll(rows, expect()), expect())
    assert [member.report.started_at for member in case.members if member.report] == [
        STARTED_AT,
        STARTED_AT,
        STARTED_AT + 2.0,
        STARTED_AT,
    ]


def test_all_times_are_on_one_line() -> None:
    """Start, end and each probe of a node whose clock is off, by the clock of the others."""
    rows = change(healthy(), 2, booted_at=STARTED_AT - 60, listens_until=STARTED_AT + 40)
    case = Case(take_roll(clocked(rows, (0, 0, 30.0, 0)), expect()), expect())
    moved, right = case.members[2].report, rows[2]
    assert moved is not None
    for name in ("booted_at", "started_at", "finished_at", "listens_until"):
        assert getattr(moved, name) == pytest.approx(getattr(right, name))
    assert moved.probes is not None
    assert right.probes is not None
    assert [p.started_at for p in moved.probes] == pytest.approx([p.started_at for p in right.probes])


CLOCKS: Mapping[str, Sequence[float]] = {
    "all right": (0, 0, 0, 0),
    "the first to fail is ahead": (0, 30.0, 0, 0),
    "the last to fail is behind": (0, 0, 0, -30.0),
}


@pytest.mark.parametrize("clocks", CLOCKS.values(), ids=CLOCKS)
def test_the_first_cause_comes_first_whatever_the_clocks_say(clocks: Sequence[float]) -> None:
    """Node 1's trouble began 10 s before node 3's; a clock that is off does not turn them round."""
    rows = healthy()
    rows = on_host(rows, [1, 3], hostname_addresses=("127.0.1.1",))
    rows = change(rows, 3, started_at=STARTED_AT + 10)
    found = [cause for cause in named(diagnose(clocked(rows, clocks))) if cause[0] != "clock-skew"]
    assert found == [("hostname-loopback", "node:1"), ("hostname-loopback", "node:3")]


def test_a_probe_by_a_clock_that_is_ahead_was_not_late() -> None:
    """Silence towards a node that still listened counts, whatever the prober's clock says."""
    rows = tuple(dataclasses.replace(row, listens_until=STARTED_AT + 40) for row in healthy())
    rows = on_host(drops(rows, lambda s, d, p: {s, d} == {1, 3}), [], mtu=9001)
    readable = {(s, d) for s in range(4) for d in range(4) if {s, d} != {1, 3}}
    found = diagnose(clocked(rows, (0, 300.0, 0, 0), only=readable))
    assert named(found) == [("pair-blocked", "pair:1>3"), ("clock-skew", "node:1")]


def test_the_answer_shows_how_far_clocks_are_apart() -> None:
    """A figure of the report, and each node's offset in JSON; nothing where no clock was read."""
    diagnosis = diagnose(clocked(healthy(), (0, 0.004, 0, 0)))
    assert "clocks: within 4.0 ms of each other" in figures(diagnosis)
    assert [node.clock_offset_s for node in diagnosis.nodes] == [0.0, 0.004, 0.0, 0.0]
    assert not any("clocks" in line for line in figures(diagnose(healthy())))
    part = diagnose(clocked(healthy(), (0, 0, 0, 0), only={(0, 1)}))
    assert "clocks: within 0.0 ms of each other (2 of 4 read)" in figures(part)
