"""bandwidth-below-baseline on recorded rows: the lab's kernel has no speeds of EC2."""

from __future__ import annotations

import dataclasses
from typing import Dict, Mapping, Optional, Sequence, Tuple

import pytest

from cluster.snapshot import ClusterSnapshot, Table
from diagnosis.judge import judge
from diagnosis.report import Diagnosis, PathStream, Verdict
from diagnosis.words import figures
from tests.cluster.world import cluster, from_group
from tests.diagnosis.builders import Named, Reports, all_reduce, change, expect, healthy, named

BASELINE = {"c7i.large": 0.781, "c7i.24xlarge": 37.5}
BOTH = ("mesh", "collective")


def ring(*gbit_per_s: Optional[float]) -> Reports:
    """What each rank got from the one before it."""
    rows = healthy(len(gbit_per_s))
    for node, rate in enumerate(gbit_per_s):
        rows = change(rows, node, collective=all_reduce(len(gbit_per_s), link_gbit_per_s=rate))
    return rows


def of_types(*types: str) -> ClusterSnapshot:
    """An account that lets the members reach each other and nobody else in, with instances of these types."""
    found = cluster([from_group("sg-mesh")], count=len(types)).snapshot()
    instances = {
        f"i-{node}": dataclasses.replace(found.instances.items[f"i-{node}"], instance_type=name)
        for node, name in enumerate(types)
    }
    return dataclasses.replace(found, instances=Table(instances))


def compared(
    rows: Reports, types: Sequence[str] = (), baselines: Mapping[str, float] = BASELINE
) -> Diagnosis:
    types = types or ["c7i.large"] * len(rows)
    return judge(rows, expect(len(rows), stages=BOTH, baselines=baselines), snapshot=of_types(*types))


def of(subject: str) -> Named:
    return [("bandwidth-below-baseline", subject)]


CASES: Dict[str, Tuple[Sequence[Optional[float]], Named]] = {
    "above": ((0.9, 0.8, 2.0, 0.7), []),
    "just above four fifths": ((0.63, 0.9, 0.9, 0.9), []),
    "one link": ((0.9, 0.9, 0.3, 0.9), of("pair:1>2")),
    "the last link of the ring": ((0.3, 0.9, 0.9, 0.9), of("pair:3>0")),
    "both links of a node": ((0.9, 0.9, 0.3, 0.2), of("node:2")),
    "all links": ((0.3, 0.2, 0.3, 0.2), of("cluster")),
    "two apart": ((0.3, 0.9, 0.3, 0.9), [*of("pair:1>2"), *of("pair:3>0")]),
    "both links of two nodes": ((0.2, 0.3), [*of("pair:0>1"), *of("pair:1>0")]),
    "one was not measured": ((None, 0.9, 0.9, 0.3), of("pair:2>3")),
}


@pytest.mark.parametrize("name", CASES)
def test_links_against_the_baseline(name: str) -> None:
    """Exactly there; the mesh holds and the sums are right, so the verdict is PASS all the same."""
    rates, expected = CASES[name]
    diagnosis = compared(ring(*rates))
    assert (named(diagnosis), diagnosis.verdict) == (expected, Verdict.PASS)


def test_a_figure_without_a_baseline_is_shown_and_says_nothing() -> None:
    """EC2 did not tell it (or may not be asked): no finding, and the report says so."""
    diagnosis = compared(ring(0.01, 0.9, 0.9, 0.9), baselines={})
    assert named(diagnosis) == []
    assert "slowest link of 4: 0.01 Gbit/s, from rank 3 to 0 (no baseline is known)" in figures(diagnosis)
    assert {pair.baseline_gbit_per_s for pair in diagnosis.pairs} == {None}


def test_the_smaller_end_counts_and_one_flow_gets_five() -> None:
    """Between a small and a large instance the small one's; between large ones what one flow gets."""
    types = ["c7i.24xlarge", "c7i.24xlarge", "c7i.large", "c7i.24xlarge"]
    diagnosis = compared(ring(3.0, 4.1, 0.7, 0.7), types)
    assert named(diagnosis) == of("pair:3>0")
    assert diagnosis.causes[0].evidence[0] == "pair:3>0 3.00 Gbit/s of 5 Gbit/s"
    by_pair = {(pair.source, pair.destination): pair for pair in diagnosis.pairs}
    assert (by_pair[0, 1].gbit_per_s, by_pair[0, 1].baseline_gbit_per_s) == (4.1, 5.0)
    assert (by_pair[1, 2].gbit_per_s, by_pair[1, 2].baseline_gbit_per_s) == (0.7, 0.781)
    assert (by_pair[1, 0].gbit_per_s, by_pair[1, 0].baseline_gbit_per_s) == (None, None)


def test_a_lossy_way_explains_its_slow_link() -> None:
    """The loss is the cause, the bandwidth its consequence."""
    rows = ring(0.9, 0.9, 0.3, 0.9)
    lossy = PathStream(destination="i-2", segments=1000, lost=60, complete=True, time_s=0.1)
    rows = change(rows, 1, streams=(lossy,))
    diagnosis = compared(rows)
    assert named(diagnosis) == [("packet-loss", "pair:1>2")]
    assert [(echo.id, echo.subject) for echo in diagnosis.consequences] == of("pair:1>2")


def test_the_command_asks_for_the_type() -> None:
    """The instance type stands in the command that shows its baseline."""
    (found,) = compared(ring(0.9, 0.9, 0.3, 0.9)).causes
    assert "--instance-types c7i.large " in found.commands[0]
