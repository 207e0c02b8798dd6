"""What the referee concludes, and when it says nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cluster.node_config import NodeConfig
from diagnosis.report import NodeReport, StepFailure, Verdict
from stacks.runtime.decision import Evidence, LaunchFailure, Member, decide
from tests.diagnosis.builders import healthy

CONFIG = NodeConfig(
    cluster="fullmesh",
    run="run1",
    nodes=4,
    master_port=29500,
    region="us-east-1",
    bucket="rows",
    role_id="AROA",
    deadline_s=300,
)
OPENED = 1_000_000.0
NO_CAPACITY = (
    "We currently do not have sufficient c7i.xlarge capacity in the Availability Zone you requested. "
    "Launching EC2 instance failed."
)
NO_QUOTA = (
    "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance "
    "bucket. Launching EC2 instance failed."
)


def members(count: int, *, reported: int = 0) -> tuple[Member, ...]:
    return tuple(Member(f"i-{n}", OPENED + 10, reported=n < reported) for n in range(count))


def seen(after_s: float, **values: Any) -> Evidence:
    return Evidence(config=CONFIG, now_s=OPENED + after_s, opened_at_s=OPENED, timeout_s=1800, **values)


def failed(reason: str) -> dict[str, Any]:
    return {"failures": (LaunchFailure(OPENED + 20, reason),), "auto_scaling_group": "asg"}


@pytest.mark.parametrize(
    "reason",
    [
        NO_QUOTA,
        "The image id '[ami-0123456789abcdef0]' does not exist. Launching EC2 instance failed.",
        "Client.InternalError: Client error on launch",
        "The capacity reservation 'cr-0123456789abcdef0' is not a Capacity Block. Launch failed.",
        "You are not authorized to perform this operation.",
        "The requested configuration is currently not supported. Please check the documentation.",
    ],
)
def test_a_reason_that_will_not_change_is_told_at_once(reason: str) -> None:
    """FAIL with launch-failed in EC2's own words, seconds after the refusal."""
    verdict = decide(seen(25, members=members(3), **failed(reason)))
    assert verdict is not None
    (cause,) = verdict.causes
    assert (verdict.verdict, cause.id, cause.subject) == (Verdict.FAIL, "launch-failed", "cluster")
    assert cause.evidence == (reason,)
    assert cause.summary == f"3 of 4 instances run; EC2 refused a launch: {reason}"
    assert "--auto-scaling-group-name asg" in cause.commands[0]


@pytest.mark.parametrize(
    "reason",
    [
        NO_CAPACITY,
        "ReservationCapacityExceeded: no capacity left in the reservation",
        "Request limit exceeded: RequestLimitExceeded",
        "Invalid IAM Instance Profile name",
        "a reason that nobody has seen before",
    ],
)
def test_a_reason_that_may_pass_is_told_before_the_wait_ends(reason: str) -> None:
    """Auto Scaling tries again: not a word until the last call, then the reason."""
    assert decide(seen(25, members=members(3), **failed(reason))) is None
    assert decide(seen(1640, members=members(3), **failed(reason))) is None
    verdict = decide(seen(1660, members=members(3), **failed(reason)))
    assert verdict is not None
    assert [cause.id for cause in verdict.causes] == ["launch-failed"]


def test_a_refusal_that_was_overcome_is_no_cause() -> None:
    """All members run in the end: what was refused once is not why nobody judged."""
    verdict = decide(seen(1700, members=members(4, reported=4), **failed(NO_CAPACITY)))
    assert verdict is not None
    assert verdict.causes == ()


def test_silent_instances_are_undetermined_not_guessed() -> None:
    """From outside, a broken start-up and an unreachable bucket look the same: UNKNOWN with both."""
    assert decide(seen(480, members=members(4))) is None
    verdict = decide(seen(500, members=members(4)))
    assert verdict is not None
    assert (verdict.verdict, verdict.causes) == (Verdict.UNKNOWN, ())
    assert [item.id for item in verdict.candidates] == ["bootstrap-failed", "storage-unreachable"]
    assert verdict.next_command == "aws ec2 get-console-output --instance-id i-0 --latest --output text"
    assert verdict.unanswered == ("whether 4 members reach each other: no node reported",)


def test_where_one_node_reported_the_nodes_judge() -> None:
    """A peer names who is missing at its own deadline; the referee waits for that."""
    assert decide(seen(500, members=members(4, reported=1))) is None


def test_a_young_instance_is_not_silent() -> None:
    """The last instance may have been launched late: its time counts from its own launch."""
    late = (*members(3), Member("i-3", OPENED + 400, reported=False))
    assert decide(seen(600, members=late)) is None


def test_at_the_last_call_the_rows_are_judged_as_a_node_would() -> None:
    """Two nodes told of a failed start-up and died: the cause is in their rows."""
    reports = tuple(
        NodeReport(
            run="run1",
            member_id=f"i-{n}",
            address=f"10.20.0.{16 + n}",
            name=f"ip-{n}",
            failures=(StepFailure(step="python", exit_status=1, output="No space left on device"),),
        )
        for n in range(4)
    )
    verdict = decide(seen(1700, members=members(4, reported=4), reports=reports))
    assert verdict is not None
    assert verdict.verdict is Verdict.FAIL
    assert {cause.id for cause in verdict.causes} == {"bootstrap-failed"}


def test_rows_alone_never_prove_a_cluster() -> None:
    """Whether others get in is the nodes' to read: without it good rows are UNKNOWN, and it is said."""
    reports = healthy(4, collective=True)
    verdict = decide(seen(1700, members=members(4, reported=4), reports=reports))
    assert verdict is not None
    assert (verdict.verdict, verdict.causes, verdict.candidates) == (Verdict.UNKNOWN, (), ())
    assert verdict.unanswered == (
        "cluster: whether others get in is not known, the account's rules were not read: "
        "the nodes read them, and none of them judged",
    )


def test_nothing_at_all_is_unknown() -> None:
    """No instance, no activity, no row: that is what is said, with what could not be read."""
    verdict = decide(seen(1700, unread=("the scaling activities: access denied",)))
    assert verdict is not None
    assert (verdict.verdict, verdict.causes) == (Verdict.UNKNOWN, ())
    assert verdict.unanswered[-1] == "the scaling activities: access denied"
    assert verdict.next_command


def test_a_short_wait_leaves_half_of_itself_to_the_nodes() -> None:
    """With 100 s in all, the last call is not before 50 s."""
    short = dataclasses.replace(seen(49, members=members(4)), timeout_s=100)
    assert decide(short) is None
    assert decide(dataclasses.replace(short, now_s=OPENED + 51)) is not None
