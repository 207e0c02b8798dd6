"""Every fault of the table, provoked for real: exactly its causes, exactly there, and nothing else.

One lab and one deployment serve all faults that come into a running cluster; whatever one of them
left behind would show in the next, and in the healthy checks at the end.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from diagnosis.causes import CATALOGUE, Group, SeenIn
from diagnosis.report import Diagnosis, Verdict
from lab import CHECKOUT, demo, demo_answer, fault_stage, toolchain
from lab.check import run_check
from lab.fault_host import Launch
from lab.fault_pairs import PAIRS, Pair
from lab.fault_scene import Scene
from lab.fault_stage import BOOT_ONLY, DEPLOYED_WITH, LIVE, Stage
from lab.faults import FAULTS, TABLES, Fault, Way
from stacks.security import UNSAFE_RULES
from tests.lab.training import training

# Causes that evidence from nodes tells and the lab cannot make: the tests that judge recorded rows.
RECORDED = {
    # The lab has neither EC2's speeds nor its baselines.
    "bandwidth-below-baseline": "tests/diagnosis/test_bandwidth.py",
    # The allowance is EC2's, and the kernel's table is one for all namespaces of a machine.
    "conntrack-exhausted": "tests/diagnosis/test_limits.py",
}
GROUPS = [group for group in Group if group is not Group.NO_FAULT]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with fault_stage.running(tmp_path_factory.mktemp("faults")) as running:
        yield running


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


@pytest.mark.parametrize("group", GROUPS)
def test_every_cause_that_nodes_can_show_has_a_fault(group: Group) -> None:
    """Each is provoked for real; where the lab cannot, a test of recorded rows stands in its place."""
    wanted = {
        cause.id for cause in CATALOGUE.values() if cause.group is group and SeenIn.LIVE in cause.seen_in
    }
    provoked = {cause for fault in FAULTS.values() for cause, _ in fault.expected}
    missing = wanted - provoked
    assert missing <= set(RECORDED)
    for cause in missing:
        assert f'"{cause}"' in (CHECKOUT / RECORDED[cause]).read_text()


def group_of(fault: str) -> Group:
    return CATALOGUE[FAULTS[fault].expected[0][0]].group


def test_ten_pairs_of_faults_name_both() -> None:
    """Of different causes each, and across the groups; in some the first explains the second."""
    independent = [pair for pair in PAIRS if not pair.explained]
    assert len(independent) >= 10
    assert len(independent) < len(PAIRS)
    for pair in independent:
        assert set(pair.fault.expected) == {*FAULTS[pair.first].expected, *FAULTS[pair.second].expected}
    groups = {frozenset(group_of(fault) for fault in (pair.first, pair.second)) for pair in PAIRS}
    assert len([group for group in groups if len(group) == 2]) >= 5


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
@pytest.mark.parametrize("pair", PAIRS, ids=[pair.id for pair in PAIRS])
def test_two_faults_at_once_are_both_named(stage: Stage, pair: Pair) -> None:
    """Both causes at both subjects and nothing more; what one explains of the other is no cause."""
    fault = pair.fault
    with fault.provoked(stage.scene):
        found = fault.check(stage.scene)
    assert named(found) == sorted(fault.expected)
    assert (found.verdict, found.candidates, found.exposed) == (fault.verdict, (), ())


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


@pytest.mark.lab
def test_a_fault_in_the_stack_fails_the_deploy(stage: Stage) -> None:
    """The famous failure, from the template to the event in the terminal."""
    fault = FAULTS["sg-only-master-port"]
    deployment, found = stage.deploy_beside("famous", fault)
    assert named(found) == sorted(fault.expected)
    assert not deployment.complete
    assert deployment.event.startswith(
        "sg-only-master-port: members reach each other on 29500 but not on ports 32768-60999 "
        "(12 of 12 pairs, silent drop); security group sg-"
    )
    assert "aws ec2 authorize-security-group-ingress" in deployment.event


EVENTS = {"peer-missing": "peer-missing: 3 of 4 members came", "bootstrap-failed": "bootstrap-failed: step "}


@pytest.mark.lab
@pytest.mark.parametrize("name", BOOT_ONLY, ids=[fault.id for fault in BOOT_ONLY.values()])
def test_a_fault_at_boot_fails_the_deploy(stage: Stage, name: str) -> None:
    """A node that hangs, or whose start-up fails: the others judge, and the deploy says so."""
    fault = BOOT_ONLY[name]
    deployment, found = stage.deploy_beside(name, fault)
    assert named(found) == sorted(fault.expected)
    assert not deployment.complete
    assert deployment.event.startswith(EVENTS[fault.id])
