"""`-c live=true`: the CDK CLI itself says at which construct the account has left the stack."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.notes import Level, live_notes
from tests.audit.deployed import Account, ec2_error, refusing, running_account
from tests.stacks.synthesis import AMI, CHECKOUT

CDK = CHECKOUT / ".venv" / "bin" / "cdk"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with running_account(tmp_path_factory.mktemp("notes")) as running:
        running.deploy()
        yield running


@pytest.fixture
def revoked(account: Account) -> Iterator[str]:
    """The group whose self rule is gone while the test runs."""
    ec2, group = account.client("ec2"), account.outputs()["MemberGroupId"]
    (standing,) = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    permission = [item for item in standing["IpPermissions"] if item["UserIdGroupPairs"]]
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=permission)
    yield group
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=permission)


def cdk(account: Account, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real CLI against the control plane, with an image that needs no look-up."""
    command = [str(CDK), *arguments, "-c", f"cluster.ami_id={AMI}", "--output", str(folder / "out")]
    path = f"{CDK.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **account.plane.environment, "PATH": path}
    return subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_without_the_flag_a_synthesis_says_that_it_did_not_look(account: Account, tmp_path: Path) -> None:
    """One line, and exit status 0."""
    done = cdk(account, tmp_path, "synth", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (
        "live state was not looked at (a diff compares templates): -c live=true" in done.stderr + done.stdout
    )


def test_a_revoked_self_rule_fails_the_diff_at_its_construct(
    account: Account, revoked: str, tmp_path: Path
) -> None:
    """`cdk diff --fail` exits 1, with the meaning and the path of the rule's construct."""
    done = cdk(account, tmp_path, "diff", "--fail", "-c", "live=true", "fullmesh")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"live: breaks-new-connections-only: {revoked} ingress rule: 12 of 12 ordered pairs" in said
    assert "fullmesh/Members/In0To65535" in said


def test_an_untouched_account_is_said_to_be_in_sync(account: Account, tmp_path: Path) -> None:
    """No warning, no error."""
    done = cdk(account, tmp_path, "synth", "--quiet", "-c", "live=true")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "live: what stands is what the stack was told" in said
    assert "not looked at" not in said


def test_a_stack_that_is_not_there_is_no_fault(account: Account) -> None:
    """Before the first deploy there is nothing to look at: a note, no error."""
    (note,) = live_notes(account.session, "never-deployed")
    assert (note.level, note.logical_id) == (Level.INFO, "")
    assert note.text.startswith("live: there is no stack never-deployed in us-east-1")


def test_another_account_is_not_looked_at(account: Account) -> None:
    """What stands elsewhere says nothing: an error that names both accounts."""
    (note,) = live_notes(account.session, "fullmesh", account="999999999999")
    assert note.level is Level.ERROR
    assert "not looked at: the credentials are account 000000000000's, not 999999999999's" in note.text


def test_what_could_not_be_read_is_an_error(account: Account) -> None:
    """A gap never looks like a clean diff."""
    denied = ec2_error("UnauthorizedOperation")
    with refusing(
        account, lambda action, _: denied if action == "DescribeSecurityGroups" else None
    ) as session:
        found = live_notes(session, "fullmesh")
    gaps = [note for note in found if "ec2:DescribeSecurityGroups" in note.text]
    assert gaps
    assert {note.level for note in gaps} == {Level.ERROR}
