"""The changes of the table on a running cluster: what the audit says, and what the nodes find.

One lab and one deployment serve all of them; whatever one left behind would show in the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import boto3
import pytest

from audit.answer import Audit, audit_stack
from audit.drift import our_stack
from audit.live import read_stack
from bench.changes.change import Change
from bench.changes.hands import Hands
from bench.changes.table import CHANGES
from diagnosis.report import ConnectOutcome
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
        parted = {
            (pair.source, pair.destination)
            for pair in proven.pairs
            if set(pair.outcomes.values()) != {ConnectOutcome.CONNECTED}
        }
        (expected,) = change.expected
        assert parted == expected.pairs
        with scene.firewall_follows():
            made.close()
    healed = run_check(scene.lab, collective=False)
    assert (healed.verdict.value, healed.exposed) == ("PASS", ())
