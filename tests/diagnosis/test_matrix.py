"""The matrix of pairs that an answer shows."""

from __future__ import annotations

import dataclasses

from diagnosis.report import PortKind, Verdict
from tests.diagnosis.builders import MASTER_PORT, diagnose, healthy, moved


def test_a_master_port_that_ranks_of_one_host_share_is_not_an_untried_one() -> None:
    """The second rank's listener could not open beside the first's: nobody is to try it there."""
    first, second = moved(healthy(2), ["10.20.1.10"] * 2)
    listeners = tuple(
        dataclasses.replace(item, opened=False, errno=98) if item.kind is PortKind.MASTER else item
        for item in second.listeners or ()
    )
    second = dataclasses.replace(second, listeners=listeners)
    tried = tuple(item for item in first.probes or () if item.port != MASTER_PORT)
    first = dataclasses.replace(first, probes=tried)
    found = diagnose((first, second))
    assert (found.verdict, found.causes) == (Verdict.PASS, ())
    assert all(outcome is not None for pair in found.pairs for outcome in pair.outcomes.values())
