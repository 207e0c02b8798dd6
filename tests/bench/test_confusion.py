"""The confusion matrix: what counts as right, and what every wrong answer looks like."""

from __future__ import annotations

from typing import Any

import pytest

from bench import confusion, faults
from bench.confusion import NOTHING, Trial
from diagnosis.report import Diagnosis, Verdict
from lab.fault_scene import FaultError
from lab.faults import FAULTS


def trial(**given: Any) -> Trial:
    """Exact, unless something else is given."""
    found = (("nacl-deny", "cluster"),)
    usual = {"id": "one", "expected": found, "named": found, "expected_verdict": "FAIL", "verdict": "FAIL"}
    return Trial(**{**usual, **given})


ELSEWHERE = {"expected": (("packet-loss", "pair:0>3"),), "named": (("packet-loss", "pair:3>0"),)}


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        ({}, True),
        ({"named": ()}, False),
        ({"named": (("nacl-deny", "cluster"), ("pair-blocked", "pair:0>1"))}, False),
        (ELSEWHERE, False),
        ({"candidates": ("pair-blocked",)}, False),
        ({"verdict": "UNKNOWN"}, False),
        ({"expected": (), "named": (), "error": "it could not be provoked"}, False),
    ],
)
def test_only_these_findings_with_their_verdict_are_exact(given: dict[str, Any], exact: bool) -> None:
    """One missed, one too many, another subject, a candidate or another verdict is not exact."""
    assert trial(**given).exact is exact


def test_each_cell_pairs_what_was_missed_with_what_was_named_instead() -> None:
    """What has no counterpart stands beside nothing, on either side."""
    found = confusion.cells(
        [
            trial(),
            trial(named=(("pair-blocked", "pair:0>1"), ("one-way-block", "pair:0>2"))),
            trial(named=()),
        ]
    )
    assert found == {
        ("nacl-deny", "nacl-deny"): 1,
        ("nacl-deny", "pair-blocked"): 1,
        (NOTHING, "one-way-block"): 1,
        ("nacl-deny", NOTHING): 1,
    }


def test_the_matrix_of_groups_tells_right_from_wrong_inside_a_group() -> None:
    """A cause at another subject is no right one, although the cause is the same."""
    lines = confusion.by_group([trial(), trial(**ELSEWHERE), trial(named=())]).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["expected"] == [
        "filter",
        "address",
        "rendezv",
        "runtime",
        "path",
        "node",
        "config",
        "nothing",
    ]
    assert rows["filter"] == ["1", *["."] * 6, "1"]
    assert rows["path"] == [*["."] * 4, "0+1", *["."] * 3]


def test_the_listing_names_what_was_wrong_in_80_columns() -> None:
    """How often each cause was right, then each trial that was not exact, and why."""
    trials = [trial(), trial(named=(), id="of-two-subnets"), trial(**ELSEWHERE, id="lossy-pair")]
    broken = trial(id="broken", named=(), error="on node 2: 'ip link add' ended with 2: busy\nmore")
    lines = list(confusion.listing([*trials, broken]))
    assert lines == [
        "named rightly: nacl-deny 1 of 3, packet-loss 0 of 1",
        "not exact: 3",
        "of-two-subnets: missed nacl-deny at cluster",
        "lossy-pair: missed packet-loss at pair:0>3; named packet-loss at pair:3>0",
        "broken: on node 2: 'ip link add' ended with 2: busy",
    ]
    assert all(len(line) <= 78 for line in lines)


def test_a_fault_that_could_not_be_provoked_is_an_error_not_a_miss_of_the_judge() -> None:
    """The bench goes on, and the figures count it as not exact."""

    def fails() -> Diagnosis:
        raise FaultError("nft is gone")

    found = faults.tried("nacl-deny", FAULTS["nacl-deny"], fails)
    assert (found.exact, found.error, found.expected) == (False, "nft is gone", (("nacl-deny", "cluster"),))


def test_the_figures_count_faults_pairs_and_what_nobody_provoked() -> None:
    """A healthy check that names something is a finding too much, and no fault."""
    healthy = faults.tried(faults.HEALTHY[0], None, lambda: Diagnosis(verdict=Verdict.PASS))
    alarm = trial(id=faults.HEALTHY[1], expected=(), expected_verdict="PASS")
    both = trial(id="nacl-deny+packet-loss")
    found = faults.result([healthy, trial(), trial(named=()), both, alarm])
    figures = [(item.ours.value, item.ours.unit, item.met) for item in found.comparisons]
    assert healthy.exact
    assert figures == [(1, "of 2", False), (1, "of 1", True), (1, "findings", False)]
