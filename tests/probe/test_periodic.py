"""The periodic check's clock: all members name the same run, and none meets an earlier one."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.node_config import NodeConfig
from probe.periodic import Due, due_at, next_after

CONFIG = NodeConfig(
    cluster="demo", run="r1", nodes=2, master_port=29500, region="eu-central-1", bucket="b", role_id="AROA"
)


def every(minutes: int) -> NodeConfig:
    return dataclasses.replace(CONFIG, check_interval_min=minutes)


def test_members_that_begin_in_one_minute_meet() -> None:
    """A second or a half minute late makes no other run; the default is every five minutes."""
    due = Due(run="r1-check-1700000100", at_s=1700000100, timeout_s=120)
    assert [due_at(CONFIG, 1700000100 + late) for late in (0, 0.9, 59.9)] == [due] * 3
    assert due_at(CONFIG, 1700000099.9) is None
    assert due_at(CONFIG, 1700000160) is None


@pytest.mark.parametrize("minutes", [1, 5, 7, 50, 60])
def test_no_two_checks_share_a_run(minutes: int) -> None:
    """Over a day every check has a name of its own, also where no hour is a multiple of the interval."""
    config = every(minutes)
    found = [due for minute in range(1440) if (due := due_at(config, 1700006400 + 60 * minute))]
    assert len({due.run for due in found}) == len(found)
    assert {b.at_s - a.at_s for a, b in zip(found, found[1:], strict=False)} == {60 * minutes}


@pytest.mark.parametrize("minutes", [1, 5, 7, 60])
def test_a_new_node_waits_for_the_check_that_the_others_begin(minutes: int) -> None:
    """The next check after any moment is one that is due then, and within one interval."""
    config = every(minutes)
    for now in range(1700000000, 1700010000, 37):
        following = next_after(config, now)
        assert now < following.at_s <= now + 60 * minutes
        assert due_at(config, following.at_s) == following


def test_a_check_is_over_before_the_next() -> None:
    """A minute's interval leaves 50 s; longer ones leave two minutes."""
    assert [next_after(every(minutes), 0).timeout_s for minutes in (1, 2, 5)] == [50, 110, 120]
