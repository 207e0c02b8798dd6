"""Bringing back what the stack was told: the plan, the question, the calls, and another look."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from audit import revert
from audit.answer import Audit, audit_stack
from audit.difference import Change as Call
from audit.difference import Deviation, Difference, Meaning
from audit.drift import our_stack
from audit.live import read_stack
from bench.changes.change import Change
from bench.changes.hands import Hands
from bench.changes.table import CHANGES
from tests.audit.deployed import Account, ec2_error, refusing, running_account
from tests.stacks.conftest import SHAPES

CHECKOUT = Path(__file__).resolve().parents[2]
NAME = "spread"
NOT_REVERTED = {
    "template-version": "no single call brings it back",
    "launches-other": "no single call brings it back",
    "stranger-with-our-group": "it is no resource of the stack",
    "out-of-placement": "no single call brings it back",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with running_account(tmp_path_factory.mktemp("revert")) as running:
        running.deploy(NAME, **SHAPES["spread-two-subnets"])
        yield running


def audited(account: Account) -> Audit:
    documents = read_stack(account.session, NAME)
    return audit_stack(documents, our_stack(documents, NAME))


class Kept:
    """A change that is made and not taken back: the revert is to do that."""

    def __init__(self, change: Change, hands: Hands) -> None:
        self._made = change.make(hands)

    def __enter__(self) -> None:
        self._made.__enter__()

    def __exit__(self, *_: object) -> None:
        """Remove what was made for the change; that the change itself is undone already is no failure."""
        with contextlib.suppress(ClientError):
            self._made.__exit__(None, None, None)


REVERTED = [
    change for change in CHANGES if not change.lasts and not change.needs and change.id not in NOT_REVERTED
]


@pytest.mark.parametrize("change", REVERTED, ids=lambda change: change.id)
def test_a_change_is_reverted_exactly(stack: Account, change: Change) -> None:
    """After the plan's calls the audit is clean, and so it is in the plan's own words."""
    hands = Hands(stack.client, NAME)
    assert hands.members
    with Kept(change, hands):
        found = revert.plan(audited(stack).differences)
        assert (len(found.steps), found.left) == (len(change.expected), ())
        outcomes = revert.carry_out(stack.session, found)
        assert [outcome.problem for outcome in outcomes] == [""] * len(outcomes)
        after = audited(stack)
        assert (after.differences, after.verdict.value) == ((), "PASS")


@pytest.mark.parametrize("change", [c for c in CHANGES if c.id in NOT_REVERTED], ids=lambda change: change.id)
def test_what_is_not_certain_is_left_alone(stack: Account, change: Change) -> None:
    """It is listed with the reason, and no call is planned for it."""
    hands = Hands(stack.client, NAME)
    assert hands.members
    with change.make(hands):
        found = revert.plan(audited(stack).differences)
        assert found.steps == ()
        assert [why.partition(":")[0] for _, why in found.left] == [NOT_REVERTED[change.id]]


def difference(meaning: Meaning, *calls: str, logical_id: str = "MemberGroup") -> Difference:
    told = Deviation(
        resource="sg-1",
        logical_id=logical_id,
        attribute=" ".join(calls),
        expected=None,
        actual=None,
        why="w",
        revert=tuple(Call("ec2", name, {}) for name in calls),
    )
    return Difference(deviation=told, meaning=meaning, detail="d")


def test_what_lets_members_pass_comes_first() -> None:
    """Members are never without both rules; the gravest comes before the others."""
    found = revert.plan(
        [
            difference(Meaning.OPENS_CLUSTER, "revoke_security_group_ingress"),
            difference(Meaning.COSMETIC, "create_tags"),
            difference(Meaning.BREAKS_MESH, "authorize_security_group_ingress"),
        ]
    )
    assert [step.changes[0].operation for step in found.steps] == [
        "authorize_security_group_ingress",
        "create_tags",
        "revoke_security_group_ingress",
    ]
    assert revert.actions(found) == (
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:CreateTags",
        "ec2:RevokeSecurityGroupIngress",
    )


def test_what_cannot_be_told_is_not_touched() -> None:
    """A difference whose meaning is undetermined has a call, and it is not made."""
    found = revert.plan([difference(Meaning.UNDETERMINED, "revoke_security_group_ingress")])
    assert (found.steps, [why for _, why in found.left]) == (
        (),
        ["what it does cannot be told, so it is not touched"],
    )


def test_a_refused_call_is_told_and_the_others_are_made(stack: Account) -> None:
    """The missing permission is named; a step is not continued behind a failure."""
    changes = {change.id: change for change in CHANGES}
    hands = Hands(stack.client, NAME)
    assert hands.members
    with changes["dns-off"].make(hands), Kept(changes["tag-added"], hands):
        found = revert.plan(audited(stack).differences)
        refused = ec2_error("UnauthorizedOperation")
        with refusing(stack, lambda asked, _: refused if asked == "ModifyVpcAttribute" else None) as session:
            outcomes = revert.carry_out(session, found)
        told = {outcome.change.operation: outcome.problem for outcome in outcomes}
        assert told == {"modify_vpc_attribute": "not permitted: ec2:ModifyVpcAttribute", "delete_tags": ""}
        assert len(audited(stack).differences) == 1
    assert audited(stack).differences == ()


def command(
    stack: Account, *arguments: str, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", "audit", "-c", f"cluster.name={NAME}", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **stack.plane.environment},
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def typed(stack: Account, answer: str) -> subprocess.CompletedProcess[str]:
    """The command on a terminal on which somebody types."""
    master, slave = pty.openpty()
    try:
        os.write(master, answer.encode())
        return command(stack, "--revert", "--json", stdin=slave)
    finally:
        os.close(master)
        os.close(slave)


def test_the_command_asks_before_it_changes_anything(stack: Account) -> None:
    """Without a terminal it refuses, on "no" it changes nothing, on "yes" it does and looks again."""
    (change,) = (change for change in CHANGES if change.id == "rule-world-ssh")
    hands = Hands(stack.client, NAME)
    assert hands.members
    with Kept(change, hands):
        nobody = command(stack, "--revert")
        assert (nobody.returncode, nobody.stdout) == (2, "")
        assert "aws ec2 revoke-security-group-ingress" in nobody.stderr
        assert "add --yes" in nobody.stderr
        refused = typed(stack, "no\n")
        assert (refused.returncode, "nothing was changed" in refused.stderr) == (1, True)
        assert len(audited(stack).differences) == 1
        agreed = typed(stack, "yes\n")
        document: dict[str, Any] = json.loads(agreed.stdout)
        assert (agreed.returncode, document["verdict"], document["drift"]) == (0, "PASS", [])
        assert "done: revoke_security_group_ingress" in agreed.stderr


def test_yes_needs_no_terminal(stack: Account) -> None:
    """For a pipeline that has shown the plan before."""
    (change,) = (change for change in CHANGES if change.id == "self-in-master-only")
    hands = Hands(stack.client, NAME)
    assert hands.members
    with Kept(change, hands):
        done = command(stack, "--revert", "--yes", "--json")
        assert (done.returncode, json.loads(done.stdout)["mesh_possible"]) == (0, True)


def test_nothing_to_revert_is_no_failure(stack: Account) -> None:
    """A clean stack stays as it is."""
    done = command(stack, "--revert", "--yes", "--json")
    assert (done.returncode, "nothing that can be reverted" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--yes",), "--yes answers --revert's question"),
        (("--revert", "--tag", "a=b"), "--revert goes with the deployed stack"),
        (("--revert", "--snapshot", "."), "look at an account"),
        (("--who", "--snapshot", "."), "look at an account"),
        (("--record", "x.json"), "needs --reason and --expires"),
        (("--master-port", "29500"), "go with --tag"),
        (("--watch", "1"), "10 to 86400"),
        (("--watch", "--sarif"), "--watch goes with --json"),
        (("--expires", "soon"), "not a day"),
        (("--fail-on", "little"), "invalid choice"),
        (("--baseline", "none.json"), "cannot be read"),
        (("--json", "--sarif"), "not allowed with"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    stack: Account, arguments: tuple[str, ...], says: str
) -> None:
    """Status 2, and which of them."""
    done = command(stack, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
