"""The page of what sees a change: its rows, and what is read from the CDK's output."""

from __future__ import annotations

from bench.changes.table import CHANGES
from bench.drift_page import NOTE, PAGE, Row, page, rows

SAID = """\
Including dependency stacks: spread-1-evidence
ERROR live: opens-cluster: sg-1 ingress rule: 0.0.0.0/0 reaches tcp 22 of 4 members (Annotation)
   spread-1/Members/Group (MemberGroup) aws-cdk-lib.aws_ec2.CfnSecurityGroup
   Rule Annotation::error-annotation
ERROR live: not looked at: not permitted: ec2:DescribeVolumes (Annotation)
   spread-1 aws-cdk-lib.Stack
Synthesis finished with errors
"""


def test_the_page_has_a_row_for_every_change() -> None:
    """What the tests prove of each change stands beside what the others see of it."""
    assert list(rows(PAGE.read_text(encoding="utf-8"))) == [change.title for change in CHANGES]


def test_a_written_row_is_read_back() -> None:
    """So that one column can be measured anew; what says nothing or was not compared is not counted."""
    seen: dict[str, Row] = {
        "a rule more": ("nothing", "error at Members/Group", "MemberGroup", "opens-cluster: ingress rule"),
        "a route more": (
            "nothing",
            "nothing",
            "(AWS::EC2::Route: not compared by the lab)",
            "weakens: route",
        ),
    }
    text = page(seen)
    assert rows(text) == seen
    assert "sees 0, with `-c live=true` 1, `cdk drift` 1 (the lab cannot tell of 1 more)" in text


def test_constructs_are_read_from_what_the_cdk_prints() -> None:
    """The construct of each difference; a gap is none."""
    assert NOTE.findall(SAID) == [("ERROR", "spread-1/Members/Group")]
