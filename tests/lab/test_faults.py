"""Every fault of the table, provoked for real: exactly its causes, exactly there, and nothing else.

One lab and one deployment serve all faults that come into a running cluster; whatever one of them
left behind would show in the next, and in the healthy checks at the end.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from diagnosis.causes import CATALOGUE, Group, SeenIn
from diagnosis.report import Diagnosis, Verdict
from lab import demo, demo_answer, deploy, supervisor, toolchain
from lab.check import run_check
from lab.fault_host import Launch
from lab.fault_scene import Scene
from lab.faults import FAULTS, TABLES, Fault, Way
from lab.progress import Progress
from stacks.security import UNSAFE_RULES
from tests.lab.training import training

DEPLOYED_WITH = FAULTS["nacl-deny"]  # two subnets, which the other faults do not mind
BOOTED_WITH = FAULTS["peer-missing"]  # on a node of a second cluster in the same lab
# A second cluster in one lab needs addresses of its own.
SECOND = {"cluster.nodes": "4", "cluster.vpc_cidr": "10.30.0.0/16"}
LIVE = [fault for fault in FAULTS.values() if fault is not BOOTED_WITH]


@dataclass(frozen=True)
class Stage:
    """The running lab and what deploying the first cluster came to."""

    scene: Scene
    deployed: demo.DemoResult
    log: Path


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A lab with a deployed cluster in two subnets, which one fault has visited already."""
    folder = tmp_path_factory.mktemp("faults")
    second = demo.DemoOptions(fault=BOOTED_WITH.id, cluster="late", state_dir=folder)
    first = demo.DemoOptions(fault=DEPLOYED_WITH.id, state_dir=folder)
    progress = Progress(quiet=True)
    with demo.running_lab(second, progress) as started:
        deployed = demo.run(first, started, progress)
        running = supervisor.read_state(folder)
        assert running is not None
        yield Stage(scene=Scene(lab=running), deployed=deployed, log=folder / "second.log")


def named(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return sorted((found.id, found.subject) for found in diagnosis.causes)


def run_printed(scene: Scene, diagnosis: Diagnosis) -> None:
    """Every command of every cause, as it was printed: on the node that it is of, or with the AWS CLI."""
    on_nodes = [
        (int(found.subject.rpartition(":")[2]), command.removeprefix("sudo "))
        for found in diagnosis.causes
        for command in found.commands
        if command.startswith("sudo ")
    ]
    for rank, command in on_nodes:
        scene.on_node(rank, command)
    if not on_nodes:
        with scene.firewall_follows():
            run_with_aws_cli(scene, diagnosis)


def run_with_aws_cli(scene: Scene, diagnosis: Diagnosis) -> None:
    environment = toolchain.process_environment(
        toolchain.environment(scene.lab.endpoint_url, scene.lab.region)
    )
    for command in [command for found in diagnosis.causes for command in found.commands]:
        done = subprocess.run(
            shlex.split(command), env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


# --- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_after_its_first_cause(fault: Fault) -> None:
    """The id begins with the first expected cause's, all causes are in the catalogue, subjects are."""
    first = fault.expected[0][0]
    assert fault.id == first or fault.id.startswith(f"{first}-")
    for cause, subject in fault.expected:
        assert cause in CATALOGUE
        assert re.fullmatch(r"cluster|node:\d|pair:\d>\d", subject)


def test_no_two_faults_have_one_id() -> None:
    """A second entry of an id would silently replace the first."""
    ids = [fault.id for table in TABLES for fault in table]
    assert len(ids) == len(set(ids)) == len(FAULTS)


def test_every_filter_between_nodes_has_a_fault() -> None:
    """Of the group "filtering" only EFA, which the lab has no device for, goes unprovoked."""
    wanted = {
        cause.id
        for cause in CATALOGUE.values()
        if cause.group is Group.FILTERING and SeenIn.LIVE in cause.seen_in
    }
    assert wanted - {cause for fault in FAULTS.values() for cause, _ in fault.expected} == set()


def test_the_stacks_and_the_table_agree_on_what_can_be_deployed() -> None:
    """A fault in the stack is a value of fullmesh:unsafe-rules, and each value is a fault."""
    assert {fault.id for fault in FAULTS.values() if fault.way is Way.STACK} == set(UNSAFE_RULES)


def test_the_list_of_faults_names_each_once() -> None:
    """What `demo --list-faults` prints."""
    listed = re.findall(r"^  (\S+) ", demo_answer.faults_text(), re.MULTILINE)
    assert sorted(listed) == sorted(FAULTS)


# --- in a running cluster ------------------------------------------------------------------------


@pytest.mark.lab
def test_the_demo_deploys_then_breaks_then_names(stage: Stage) -> None:
    """A fault of a running cluster: the deploy is complete, and the verdict is the check's."""
    assert stage.deployed.complete
    assert stage.deployed.broken_by is DEPLOYED_WITH
    assert stage.deployed.diagnosis is not None
    assert named(stage.deployed.diagnosis) == sorted(DEPLOYED_WITH.expected)
    assert demo.exit_status(stage.deployed) == 1


@pytest.mark.lab
@pytest.mark.parametrize("fault", LIVE, ids=[fault.id for fault in LIVE])
def test_a_fault_raises_exactly_its_causes(stage: Stage, fault: Fault) -> None:
    """These causes at these subjects and no candidates; its own commands mend what they can."""
    scene = stage.scene
    with fault.provoked(scene):
        found = fault.check(scene)
        assert named(found) == sorted(fault.expected)
        assert (found.verdict, found.candidates, found.exposed) == (fault.verdict, (), ())
        if fault.commands_mend:
            run_printed(scene, found)
            mended = fault.check(scene)
            assert (mended.verdict, mended.causes, mended.unanswered) == (Verdict.PASS, (), ())


@pytest.mark.lab
def test_nothing_of_a_fault_stays(stage: Stage) -> None:
    """After all of them the deployed cluster passes, and so does a job that is started rightly."""
    deployed = run_check(stage.scene.lab)
    assert (deployed.verdict, deployed.unanswered, deployed.exposed) == (Verdict.PASS, (), ())
    assert deployed.collective is not None
    job = run_check(stage.scene.lab, collective=False, environments=Launch().environments(stage.scene.lab))
    assert (job.verdict, job.unanswered) == (Verdict.PASS, ())


# --- beside a job ----------------------------------------------------------------------------------


LEFT_TO_A_JOB = re.compile(
    r"node:(\d): pid \d+ \(.+\) has torch loaded and \d+ connections? to other hosts; "
)


@pytest.mark.lab
def test_a_check_beside_a_job_that_trains_finds_no_fault_and_does_no_harm(stage: Stage) -> None:
    """PASS with the reason for what is left out, as deployed and under a launcher; the job goes on.

    Asked for MASTER_PORT all the same, the check says that a new job would meet at this one's store, and
    even that harms nobody.
    """
    lab = stage.scene.lab
    with training(lab) as job:
        before = job.steps()
        for environments in (None, Launch().environments(lab)):
            found = run_check(lab, environments=environments)
            assert (found.verdict, found.causes, found.unanswered) == (Verdict.PASS, (), ())
            assert found.collective is not None
            assert found.collective.outcome is Verdict.SKIPPED
            seen = [LEFT_TO_A_JOB.match(line) for line in found.skipped]
            assert [match and int(match[1]) for match in seen] == [node.rank for node in lab.nodes]
        asked = run_check(lab, options=("--collective",))
        assert named(asked) == [("stale-store", "node:0")]
        assert job.steps() > before
        ended = job.end()
    steps = ended[0][1][0]
    assert ended == [(0, [steps, 0])] * len(lab.nodes)


# --- from the start ------------------------------------------------------------------------------


def deploy_second(stage: Stage, name: str, fault: Fault) -> tuple[deploy.Deployment, Diagnosis]:
    context = {**SECOND, "cluster.name": name, **fault.deploy_context}
    deployment = deploy.deploy(stage.scene.lab, stage.log, context)
    verdict = deploy.newest_verdict(stage.scene.lab, name)
    assert verdict is not None, deployment.output[-3000:]
    return deployment, verdict[0]


@pytest.mark.lab
def test_a_fault_in_the_stack_fails_the_deploy(stage: Stage) -> None:
    """The famous failure, from the template to the event in the terminal."""
    fault = FAULTS["sg-only-master-port"]
    deployment, found = deploy_second(stage, "famous", fault)
    assert named(found) == sorted(fault.expected)
    assert not deployment.complete
    assert deployment.event.startswith(
        "sg-only-master-port: members reach each other on 29500 but not on ports 32768-60999 "
        "(12 of 12 pairs, silent drop); security group sg-"
    )
    assert "aws ec2 authorize-security-group-ingress" in deployment.event


@pytest.mark.lab
def test_a_fault_at_boot_fails_the_deploy(stage: Stage) -> None:
    """A node whose first boot hangs: the others wait for it, judge without it, and the deploy says so."""
    deployment, found = deploy_second(stage, "late", BOOTED_WITH)
    assert named(found) == sorted(BOOTED_WITH.expected)
    assert not deployment.complete
    assert deployment.event.startswith("peer-missing: 3 of 4 members came")
