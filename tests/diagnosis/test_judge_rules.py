"""Whether anybody else gets in is a question of its own: unread rules are never "nobody"."""

from __future__ import annotations

import dataclasses

from cluster.snapshot import Table
from diagnosis.judge import judge
from diagnosis.report import Verdict
from diagnosis.words import headline
from tests.cluster.world import cluster, from_group
from tests.diagnosis.builders import diagnose, drops, expect, healthy, named, on_host

DENIED = "ec2 DescribeInstances failed with UnauthorizedOperation: no; allow ec2:DescribeInstances"
DROPS = """\
table inet filter {
	chain input {
		type filter hook input priority 0; policy drop;
	}
}"""
WORLD = cluster([from_group("sg-mesh")])


def test_rules_that_were_to_be_read_and_were_not_are_unknown() -> None:
    """A mesh that holds is not PASS while nobody knows who else gets in; the verdict says why."""
    diagnosis = judge(healthy(), expect(rules_expected=True, rules_problem=DENIED))
    assert (diagnosis.verdict, diagnosis.causes, diagnosis.candidates) == (Verdict.UNKNOWN, (), ())
    assert diagnosis.unanswered == (
        "cluster: whether others get in is not known, the account's rules were not read: " + DENIED,
    )
    assert diagnosis.next_command == "aws ec2 describe-instances --instance-ids i-0 --output json"
    assert headline(diagnosis) == "1 question without an answer"
    assert {node.verdict for node in diagnosis.nodes} == {Verdict.UNKNOWN}


def test_rules_that_were_read_answer_it() -> None:
    """With the whole account in hand the same rows are PASS."""
    diagnosis = judge(healthy(), expect(rules_expected=True), WORLD.snapshot())
    assert (diagnosis.verdict, diagnosis.unanswered) == (Verdict.PASS, ())


def test_away_from_a_deployment_nobody_asks() -> None:
    """A check under a launcher has no rules to read: the mesh alone is its question."""
    assert diagnose(healthy()).verdict is Verdict.PASS


def test_a_table_that_was_not_read_keeps_it_open() -> None:
    """One missing permission leaves the exposure open, and is named with the command that reads it."""
    snapshot = dataclasses.replace(
        WORLD.snapshot(), interfaces=Table(problem="allow ec2:DescribeNetworkInterfaces in this node's role")
    )
    diagnosis = judge(healthy(), expect(rules_expected=True), snapshot)
    assert (diagnosis.verdict, diagnosis.causes) == (Verdict.UNKNOWN, ())
    assert diagnosis.unanswered
    for line in diagnosis.unanswered:
        assert line.startswith("cluster: whether others get in is not known: ")
    assert any("allow ec2:DescribeNetworkInterfaces" in line for line in diagnosis.unanswered)
    assert diagnosis.next_command is not None
    assert diagnosis.next_command.startswith("aws ec2 describe-network-interfaces")


def test_a_named_cause_stands_beside_the_open_question() -> None:
    """What is broken is FAIL all the same."""
    rows = drops(healthy(), lambda s, d, p: d == 2)
    rows = on_host(
        rows,
        [2],
        firewall_rules=DROPS,
    )
    diagnosis = judge(rows, expect(rules_expected=True, rules_problem="no answer"))
    assert (diagnosis.verdict, named(diagnosis)) == (Verdict.FAIL, [("os-firewall-drop", "node:2")])
    assert (len(diagnosis.unanswered), diagnosis.next_command) == (1, None)
