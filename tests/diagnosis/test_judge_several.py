"""Two things wrong at once: both are named, first in time first."""

from __future__ import annotations

import dataclasses
from typing import Optional, Tuple

import pytest

from diagnosis.judge import judge
from diagnosis.report import ConnectOutcome
from tests.cluster.world import World, cluster
from tests.diagnosis.builders import (
    MASTER_ONLY,
    MASTER_PORT,
    Named,
    Reports,
    diagnose,
    dies,
    drops,
    expect,
    healthy,
    named,
    on_host,
)
from tests.diagnosis.rulesets import (
    DROP_ALL,
)

TWO: dict[str, Tuple[Reports, Optional[World], Named]] = {
    "master only and a dropping host": (
        on_host(drops(healthy(), lambda s, d, p: p != MASTER_PORT or d == 2), [2], firewall_rules=DROP_ALL),
        None,
        [("os-firewall-drop", "node:2"), ("sg-only-master-port", "cluster")],
    ),
    "master only by the rules and a dropping host": (
        on_host(drops(healthy(), lambda s, d, p: p != MASTER_PORT or d == 2), [2], firewall_rules=DROP_ALL),
        cluster([MASTER_ONLY]),
        [("sg-only-master-port", "cluster"), ("os-firewall-drop", "node:2")],
    ),
    "a dropping host and a blocked pair": (
        on_host(drops(healthy(), lambda s, d, p: d == 2 or {s, d} == {0, 1}), [2], firewall_rules=DROP_ALL),
        None,
        [("os-firewall-drop", "node:2"), ("pair-blocked", "pair:0>1")],
    ),
    "a sidecar and a one-way block": (
        drops(
            dies(healthy(), lambda s, d, p: d == 3, ConnectOutcome.SILENT, garbled=True),
            lambda s, d, p: (s, d) == (0, 1),
        ),
        None,
        [("one-way-block", "pair:0>1"), ("proxy-sidecar", "node:3")],
    ),
    "a host that drops one port and a one-way block on another": (
        on_host(
            drops(healthy(), lambda s, d, p: (d == 2 and p == MASTER_PORT) or (s, d, p) == (0, 2, 46884)),
            [2],
            firewall_rules=DROP_ALL.replace("{ 29500, 32768-60999 }", "29500"),
        ),
        None,
        [("os-firewall-drop", "node:2"), ("one-way-block", "pair:0>2")],
    ),
    "two dropping hosts": (
        on_host(drops(healthy(), lambda s, d, p: d in (1, 2)), [1, 2], firewall_rules=DROP_ALL),
        None,
        [("os-firewall-drop", "node:1"), ("os-firewall-drop", "node:2")],
    ),
}


@pytest.mark.parametrize("name", TWO)
def test_two_independent_causes_are_both_named(name: str) -> None:
    """One cause does not hide another that it does not explain."""
    rows, world, expected = TWO[name]
    diagnosis = judge(rows, expect(len(rows)), world.snapshot() if world else None)
    assert sorted(named(diagnosis)) == sorted(expected)
    assert diagnosis.candidates == ()


def test_the_first_cause_in_time_comes_first() -> None:
    """Causes are ordered by their earliest evidence across the cluster."""
    rows = drops(healthy(), lambda s, d, p: (s, d) == (2, 3))
    rows = dies(rows, lambda s, d, p: d == 1, ConnectOutcome.SILENT, garbled=True)
    early = tuple(
        dataclasses.replace(
            item,
            probes=tuple(
                dataclasses.replace(
                    one, started_at=(one.started_at or 0.0) - (0.5 if one.destination == "i-1" else 0)
                )
                for one in item.probes or ()
            ),
        )
        for item in rows
    )
    assert named(diagnose(rows)) == [("one-way-block", "pair:2>3"), ("proxy-sidecar", "node:1")]
    assert named(diagnose(early)) == [("proxy-sidecar", "node:1"), ("one-way-block", "pair:2>3")]
