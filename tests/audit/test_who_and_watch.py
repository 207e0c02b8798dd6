"""Who made a difference, by the account's own log; and saying only what changed."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.answer import Audit, audit_stack
from audit.drift import our_stack
from audit.live import read_stack
from audit.watch import watch
from audit.who import LATE, who_did_it
from bench.changes.hands import Hands
from bench.changes.table import CHANGES
from tests.audit.deployed import Account, refusing, running_account
from tests.interrupt import hear_ctrl_c
from tests.probe.aws_server import Answer
from tests.stacks.conftest import SHAPES

CHECKOUT = Path(__file__).resolve().parents[2]
NAME = "spread"
BY_ID = {change.id: change for change in CHANGES}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """A cluster in two subnets; the control plane logs every call that changes something."""
    with running_account(tmp_path_factory.mktemp("who")) as running:
        running.deploy(NAME, **SHAPES["spread-two-subnets"])
        yield running


def audited(account: Account) -> Audit:
    documents = read_stack(account.session, NAME)
    return audit_stack(documents, our_stack(documents, NAME))


@pytest.mark.parametrize(
    ("change", "event"),
    [
        ("rule-world-ssh", "AuthorizeSecurityGroupIngress"),
        ("group-swapped", "ModifyNetworkInterfaceAttribute"),
        ("acl-deny-in", "CreateNetworkAclEntry"),
        ("dns-off", "ModifyVpcAttribute"),
        ("metadata-v1", "ModifyInstanceMetadataOptions"),
        ("fleet-may-grow", "UpdateAutoScalingGroup"),
        ("tag-added", "CreateTags"),
    ],
)
def test_the_call_that_made_a_difference_is_found(stack: Account, change: str, event: str) -> None:
    """Its name, when, and by whom; a call on another resource does not count."""
    hands = Hands(stack.client, NAME)
    assert hands.members
    begun = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    with BY_ID[change].make(hands):
        found = audited(stack).differences
        told, notes = who_did_it(stack.session, found, begun, pause=lambda _: None)
        (calls,) = told.values()
        assert calls[0]["event"] == event
        assert calls[0]["user"].startswith("arn:aws:iam::")
        assert (notes, bool(calls[0]["at"])) == ((LATE,), True)


def test_calls_before_the_deploy_do_not_count(stack: Account) -> None:
    """Whoever changed the same thing earlier was undone by the deploy."""
    hands = Hands(stack.client, NAME)
    with BY_ID["rule-world-ssh"].make(hands):
        found = audited(stack).differences
        later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=5)
        told, _ = who_did_it(stack.session, found, later, pause=lambda _: None)
        assert list(told.values()) == [[]]


def test_a_missing_permission_is_told(stack: Account) -> None:
    """Who is then unknown, not nobody."""
    hands = Hands(stack.client, NAME)
    body = json.dumps({"__type": "AccessDeniedException", "message": "no"}).encode()
    refused = Answer(status=400, body=body, headers={"Content-Type": "application/x-amz-json-1.1"})
    with BY_ID["rule-world-ssh"].make(hands):
        found = audited(stack).differences
        with refusing(stack, lambda asked, _: refused if asked == "LookupEvents" else None) as session:
            told, notes = who_did_it(session, found, None, pause=lambda _: None)
    assert (told, notes) == (
        {},
        ("who made the differences cannot be told: not permitted: cloudtrail:LookupEvents",),
    )


def test_the_command_shows_who(stack: Account) -> None:
    """In JSON, beside the difference; that the log is late is said."""
    hands = Hands(stack.client, NAME)
    with BY_ID["rule-world-ssh"].make(hands):
        done = subprocess.run(
            [sys.executable, "-m", "cli", "audit", "-c", f"cluster.name={NAME}", "--who", "--json"],
            cwd=CHECKOUT,
            env={**os.environ, **stack.plane.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    document: dict[str, Any] = json.loads(done.stdout)
    assert [item["who"][0]["event"] for item in document["drift"]] == ["AuthorizeSecurityGroupIngress"]
    assert document["skipped"] == [LATE]


def test_only_what_changed_is_said(stack: Account) -> None:
    """The verdict at first and when it changes; each difference once when it comes, once when it goes."""
    hands = Hands(stack.client, NAME)
    said: list[str] = []
    with contextlib.ExitStack() as made:

        def sleep(_: float) -> None:
            said.append("--")
            if said.count("--") == 2:
                made.enter_context(BY_ID["tag-added"].make(hands))
            if said.count("--") == 4:
                made.close()

        watch(lambda: audited(stack), said.append, interval_s=60, sleep=sleep, clock=lambda: 0.0, rounds=5)
    moment = "1970-01-01T00:00:00Z"
    group = hands.group
    text = f"cosmetic: {group}, tags: a tag says something else; no packet and no guarantee depends on it"
    assert said == [
        f"{moment} = PASS\n",
        "--",
        "--",
        f"{moment} = FAIL\n",
        f"{moment} + {text}\n",
        "--",
        "--",
        f"{moment} = PASS\n",
        f"{moment} - {text}\n",
    ]


def test_an_interruption_ends_watching_cleanly(stack: Account) -> None:
    """Ctrl-C: no traceback, and the status of the last audit."""
    with subprocess.Popen(
        [sys.executable, "-m", "cli", "audit", "-c", f"cluster.name={NAME}", "--watch", "--json"],
        cwd=CHECKOUT,
        env={**os.environ, **stack.plane.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - no thread here holds a lock
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
    assert (first["kind"], first["text"], rest, errors, process.returncode) == ("verdict", "PASS", "", "", 0)
