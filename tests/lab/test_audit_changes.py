"""The changes of the table on a running cluster: what the audit says, and what the nodes find.

One lab and one deployment serve all of them; whatever one left behind would show in the next.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from audit.answer import Audit, audit_stack
from audit.difference import Meaning
from audit.drift import our_stack
from audit.live import read_selected, read_stack
from audit.members import Selection
from audit.question import Question
from bench.changes.change import Change
from bench.changes.hands import Hands
from bench.changes.table import CHANGES
from cluster.keys import CLUSTER_TAG
from cluster.ports import DEFAULT_EPHEMERAL_PORTS
from diagnosis.report import ConnectOutcome, Diagnosis
from diagnosis.rule_commands import rule_command, rule_line
from diagnosis.suggest_rules import Profile
from diagnosis.what_if_words import parse_change
from lab import demo, deploy, supervisor, toolchain
from lab.check import run_check
from lab.fault_scene import Scene
from lab.progress import Progress

TWO_SUBNETS = {"cluster.nodes": "4", "cluster.subnets": "2", "cluster.placement": "spread"}
HERE = [change for change in CHANGES if not change.needs and not change.lasts]
BROKEN = [change for change in HERE if change.causes]


@dataclass(frozen=True)
class Stage:
    """A running lab with a deployed cluster of four."""

    scene: Scene
    session: boto3.Session

    def audited(self) -> Audit:
        documents = read_stack(self.session, self.scene.cluster)
        return audit_stack(documents, our_stack(documents, self.scene.cluster))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("changes")
    log, context = folder / "cdk.log", pytest.MonkeyPatch()
    with demo.running_lab(demo.DemoOptions(state_dir=folder), Progress(quiet=True)) as started:
        assert deploy.bootstrap(started, log)
        assert deploy.deploy(started, log, TWO_SUBNETS).complete
        running = supervisor.read_state(folder)
        assert running is not None
        for key, value in toolchain.environment(running.endpoint_url, running.region).items():
            context.setenv(key, value)
        yield Stage(scene=Scene(lab=running), session=boto3.Session(region_name=running.region))
    context.undo()


def ranks_of(stage: Stage) -> dict[str, int]:
    return {node.instance_id: node.rank for node in stage.scene.lab.nodes}


def pairs(stage: Stage, found: Audit) -> list[tuple[str, str, frozenset[tuple[int, int]]]]:
    """(resource, meaning, pairs of ranks) of every difference."""
    ranks = ranks_of(stage)
    return sorted(
        (
            item.deviation.resource,
            item.meaning.value,
            frozenset((ranks[source], ranks[destination]) for source, destination, _ in item.pairs),
        )
        for item in found.differences
    )


def parted(proven: Diagnosis) -> set[tuple[int, int]]:
    """Pairs of ranks that the probe found broken."""
    return {
        (pair.source, pair.destination)
        for pair in proven.pairs
        if set(pair.outcomes.values()) != {ConnectOutcome.CONNECTED}
    }


@pytest.mark.lab
def test_a_cluster_that_nodes_have_proven_has_no_drift(stage: Stage) -> None:
    """After a real deploy, with the nodes' own rows: nothing differs, and everything was read."""
    found = stage.audited()
    assert (found.differences, found.unanswered, found.verdict.value) == ((), (), "PASS")


@pytest.mark.lab
@pytest.mark.parametrize("change", HERE, ids=lambda change: change.id)
def test_a_change_is_found_and_gone_when_undone(stage: Stage, change: Change) -> None:
    """Exactly these resources, meanings and pairs; afterwards the audit is clean again."""
    hands = Hands(stage.scene.client, stage.scene.cluster)
    assert len(hands.members) == 4
    with change.make(hands):
        expected = [
            (hands.resource(item.resource), item.meaning.value, item.pairs) for item in change.expected
        ]
        found = stage.audited()
        assert pairs(stage, found) == sorted(expected)
        assert (found.unanswered, bool(found.findings.exposed)) == ((), change.exposes)
    after = stage.audited()
    assert (after.differences, after.verdict.value) == ((), "PASS")


@pytest.mark.lab
@pytest.mark.parametrize("change", BROKEN, ids=lambda change: change.id)
def test_what_breaks_the_mesh_is_seen_by_the_nodes_too(stage: Stage, change: Change) -> None:
    """The probe of every pair and the audit name the same cause, and part the same pairs."""
    scene = stage.scene
    hands = Hands(scene.client, scene.cluster)
    assert len(hands.members) == 4
    with contextlib.ExitStack() as made:
        with scene.firewall_follows():
            made.enter_context(change.make(hands))
        found, proven = stage.audited(), run_check(scene.lab, collective=False)
        assert [(item.id, item.subject) for item in found.findings.causes] == list(change.causes)
        assert [(item.id, item.subject) for item in proven.causes] == list(change.causes)
        (expected,) = change.expected
        assert parted(proven) == expected.pairs
        with scene.firewall_follows():
            made.close()
    healed = run_check(scene.lab, collective=False)
    assert (healed.verdict.value, healed.exposed) == ("PASS", ())


def by_hand(commands: Sequence[str]) -> None:
    """Printed commands, by the real AWS CLI."""
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "aws"
        aws = str(Path(sys.executable).with_name("aws"))
        subprocess.run([aws, *words], capture_output=True, timeout=60, check=True)


@contextlib.contextmanager
def all_comes_back(stage: Stage, hands: Hands) -> Iterator[None]:
    """The group's rules with descriptions, the members' groups, the ACL's entries: whatever was done."""
    ec2, acl = stage.scene.client("ec2"), hands.acl["NetworkAclId"]

    def rules() -> dict[str, list[Any]]:
        (found,) = ec2.describe_security_groups(GroupIds=[hands.group])["SecurityGroups"]
        return {"ingress": found["IpPermissions"], "egress": found["IpPermissionsEgress"]}

    before = rules()
    try:
        yield
    finally:
        with stage.scene.firewall_follows():
            for way, now in rules().items():
                gone = [item for item in before[way] if item not in now]
                new = [item for item in now if item not in before[way]]
                for verb, some in (("revoke", new), ("authorize", gone)):
                    if some:
                        change = getattr(ec2, f"{verb}_security_group_{way}")
                        change(GroupId=hands.group, IpPermissions=some)
            for rank in range(len(hands.members)):
                ec2.modify_network_interface_attribute(
                    NetworkInterfaceId=hands.interface(rank), Groups=[hands.group]
                )
            with contextlib.suppress(ClientError):  # where it is not there (any more)
                ec2.delete_network_acl_entry(NetworkAclId=acl, RuleNumber=50, Egress=False)


def broken_and_open(group: str) -> list[str]:
    """Instead of the members' inbound rule the one port of the documentation, for everybody."""
    takes = f"aws ec2 revoke-security-group-ingress --group-id {group}"
    gives = f"aws ec2 authorize-security-group-ingress --group-id {group}"
    return [
        f"{takes} --protocol tcp --port 0-65535 --source-group {group}",
        f"{gives} --protocol tcp --port 29500 --cidr 0.0.0.0/0",
    ]


def without_rule_ids(found: Audit) -> str:
    """The public answer without the ids of rules: EC2 gives a new rule its own."""
    document = found.document()
    document.pop("what_if", None)
    return re.sub("sgr-[0-9a-z-]+", "sgr", json.dumps(document))


FORETOLD = [
    "authorize {group} tcp 22 from 0.0.0.0/0",
    "attach {other} to {member}",
    "detach {other} from {member}",
    "deny {acl} 50 tcp 29500 from 10.20.0.0/16",
    "delete {acl} 50 ingress",
    "revoke {group} tcp 0-65535 from self",
]


@pytest.mark.lab
def test_what_is_foretold_is_what_comes(stage: Stage) -> None:
    """Each printed command, really made: the audit is the one foretold, and the nodes part the same pairs."""
    scene, name = stage.scene, stage.scene.cluster
    hands = Hands(scene.client, name)
    values = {
        "group": hands.group,
        "other": hands.default_group,
        "member": hands.members[1]["InstanceId"],
        "acl": hands.acl["NetworkAclId"],
    }
    with all_comes_back(stage, hands):
        for change in FORETOLD:
            documents = read_stack(stage.session, name)
            question = Question.of_stack(documents, our_stack(documents, name), fail_on=Meaning.COSMETIC)
            foretold = question.answer(documents, [parse_change(change.format(**values))], ())
            assert foretold.what_if is not None
            with scene.firewall_follows():
                by_hand([item.applied.command for item in foretold.what_if.steps])
            assert without_rule_ids(stage.audited()) == without_rule_ids(foretold), change
        proven = run_check(scene.lab, collective=False)
        ranks = ranks_of(stage)
        told = {(ranks[run["source"]], ranks[run["destination"]]) for run in foretold.findings.blocked()}
        assert told == parted(proven) != set()
        assert [item.id for item in foretold.findings.causes] == [item.id for item in proven.causes]


@pytest.mark.lab
def test_suggested_commands_make_the_mesh_possible(stage: Stage) -> None:
    """From a broken and open cluster to the profile's rules, by hand: nobody else gets in, all pairs pass."""
    scene = stage.scene
    hands = Hands(scene.client, scene.cluster)
    chosen = Selection(tags=((CLUSTER_TAG, scene.cluster),))

    def asked() -> Audit:
        documents = read_selected(stage.session, chosen)
        question = Question.of_selection(
            documents,
            chosen,
            master_port=29500,
            ephemeral=DEFAULT_EPHEMERAL_PORTS,
            fail_on=Meaning.COSMETIC,
        )
        return question.answer(documents, (), [Profile.PINNED])

    with all_comes_back(stage, hands):
        with scene.firewall_follows():
            by_hand(broken_and_open(hands.group))
        before = asked()
        assert before.findings.mesh_possible is False
        assert before.suggestions is not None
        (found,) = before.suggestions
        with scene.firewall_follows():
            by_hand([rule_command(rule, authorize=True) for rule in found.authorize])
            by_hand([rule_command(item.rule, authorize=False) for item in found.revoke])
        after = asked()
        assert (after.verdict.value, after.findings.exposed) == ("PASS", ())
        assert after.suggestions is not None
        assert (after.suggestions[0].authorize, after.suggestions[0].revoke) == ((), ())
        assert {rule_line(rule) for rule in after.suggestions[0].kept} == {
            rule_line(rule) for rule in (*found.kept, *found.authorize)
        }
        proven = run_check(scene.lab, collective=False)
        assert (proven.verdict.value, proven.causes) == ("PASS", ())
