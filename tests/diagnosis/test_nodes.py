"""What a node says of itself, and where to read on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from diagnosis.collective import COLLECTIVE_LOG
from diagnosis.report import Verdict
from tests.diagnosis.builders import all_reduce, change, diagnose, healthy, suspected

BOOTSTRAP = Path(__file__).resolve().parents[2] / "userdata" / "bootstrap.sh"


def test_a_failed_all_reduce_points_to_the_log_that_exists() -> None:
    """The deciding command reads bootstrap.sh's log of the step, on the node that failed."""
    failed = all_reduce(4, outcome=Verdict.FAIL, error="something new")
    rows = change(healthy(collective=True), 2, collective=failed)
    diagnosis = diagnose(rows, stages=("mesh", "collective"))
    assert suspected(diagnosis)[0] == ("peer-not-in-collective", "node:2")
    assert diagnosis.next_command == (
        "fullmesh explain /var/log/fullmesh/collective.log  # on node 2 (n2, 10.20.1.12)"
    )
    text = BOOTSTRAP.read_text()
    assert "LOG_DIR=/var/log/fullmesh\n" in text
    assert "output=$LOG_DIR/$step.log" in text
    assert "step_collective()" in text
    assert COLLECTIVE_LOG == "/var/log/fullmesh/collective.log"


def test_elsewhere_the_job_runs_again_into_a_log() -> None:
    """Under a launcher nobody keeps the output, so it is made first."""
    rows = tuple(
        dataclasses.replace(
            item,
            member_id=f"rank-{place}",
            members={f"rank-{key[2:]}": value for key, value in item.members.items()},
            probes=tuple(
                dataclasses.replace(one, destination=f"rank-{one.destination[2:]}")
                for one in item.probes or ()
            ),
            collective=all_reduce(2, outcome=Verdict.FAIL, error="something new"),
        )
        for place, item in enumerate(healthy(2))
    )
    assert diagnose(rows, stages=("mesh", "collective")).next_command == (
        "fullmesh check 2>check.log; fullmesh explain check.log  # on node 0 (n0, 10.20.1.10), as a job again"
    )
