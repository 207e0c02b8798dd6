"""`fullmesh lab check`: the nodes' own probe again, on all nodes at once, judged by themselves."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.serial import decode
from diagnosis.causes import cause
from diagnosis.report import Diagnosis, Verdict
from lab import enter, interrupts
from lab.state import LabState, NodeState

PROBE = "/opt/fullmesh/fullmesh.pyz"
# bootstrap.sh leaves the path of the Python that has torch here; a node without it proves the mesh only.
CHECK_SCRIPT = (
    'python="$(cat /run/fullmesh/torch-python 2>/dev/null || echo python3)"; '
    'exec "$python" "$0" check --json "$@"'
)
PROBE_DEADLINE_S = 60.0  # per stage, for a member that does not come; a loaded laptop needs 15 s at 64 nodes
MEETING_PORT = 29600  # members with a launcher's variables meet here, on the node of rank 0
_SAID_ENOUGH = (0, 1)  # under a launcher only rank 0 shows the verdict; PASS and FAIL of others are known

Environments = Sequence[Mapping[str, str] | None]
"""A launcher's variables of each node by rank; None = the node is not started."""


@dataclass(frozen=True)
class NodeAnswer:
    """What one node's `check --json` came to. diagnosis None: it printed no answer."""

    rank: int
    diagnosis: Diagnosis | None
    status: int
    errors: str


class CheckError(RuntimeError):
    """There is nothing to check; says what to run first."""


def run_check(
    state: LabState,
    collective: bool = True,
    *,
    environments: Environments | None = None,
    deadline_s: float = PROBE_DEADLINE_S,
    start_after_s: Mapping[int, float] | None = None,
    options: Sequence[str] = (),
    shells: Mapping[int, str] | None = None,
) -> Diagnosis:
    """Probe on every node at once; returns the cluster's verdict.

    The answer is that of the lowest rank whose view is the fullest: every node can judge, and a
    node that was cut off knows less than the others.

    environments: run it as a job under a launcher instead, with these variables; the members then
    know of each other what the variables say, and nothing of the deployed cluster.
    deadline_s: of each stage, for members that do not come.
    start_after_s: rank -> how much later it is started than the others.
    options: more of `check`'s own.
    shells: rank -> what the shell that starts it does first.

    Raises:
        CheckError: no node is running.
    """
    if not state.nodes:
        raise CheckError("no node is running in this lab; run: fullmesh demo --keep, or cdk deploy --all")
    arguments = ["--run", f"check-{time.time_ns()}", "--timeout-s", str(deadline_s), *options]
    if not collective:
        arguments.append("--no-collective")
    if environments is not None:
        arguments += ["--meet", f"tcp://{state.node(0).address}:{MEETING_PORT}"]
    started = time.monotonic()
    late = start_after_s or {}
    given = zip(state.nodes, environments or [{}] * len(state.nodes), strict=True)
    running: list[tuple[NodeState, subprocess.Popen[str]]] = []
    answers = []
    try:
        for node, variables in sorted(given, key=lambda item: late.get(item[0].rank, 0.0)):
            time.sleep(max(0.0, late.get(node.rank, 0.0) - (time.monotonic() - started)))
            if variables is not None:
                shell = (shells or {}).get(node.rank, "")
                running.append((node, _start(state, node, variables, arguments, shell)))
        for node, process in running:
            left_s = max(
                1.0, 2 * deadline_s + 30 + max(late.values(), default=0.0) - (time.monotonic() - started)
            )
            answers.append(_answer(node.rank, process, left_s))
    finally:
        with interrupts.put_off():
            for _, process in running:
                enter.end(process)
    best = _fullest(answers, one_speaks=environments is not None)
    return _with_those_alone(best, answers, state)


def _start(
    state: LabState, node: NodeState, variables: Mapping[str, str], arguments: Sequence[str], first: str
) -> subprocess.Popen[str]:
    given = [f"{name}={value}" for name, value in variables.items()]
    return subprocess.Popen(
        enter.command(
            state, node, ["env", *given, "bash", "-c", f"{first}\n{CHECK_SCRIPT}", PROBE, *arguments]
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends the probes in order
    )


def _answer(rank: int, process: subprocess.Popen[str], timeout_s: float) -> NodeAnswer:
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        enter.end(process)
        output, errors = process.communicate()
        errors += "\nthe probe did not end in time"
    try:
        diagnosis = decode(Diagnosis, json.loads(output))
    except ValueError:  # DecodeError is one, too
        diagnosis = None
    return NodeAnswer(rank=rank, diagnosis=diagnosis, status=process.returncode, errors=errors.strip())


def _with_those_alone(best: Diagnosis, answers: list[NodeAnswer], state: LabState) -> Diagnosis:
    """The answer with what nodes say that met nobody: who looks at all sees why the others miss them."""
    ranks = {node.instance_id: node.rank for node in state.nodes}
    met = {node.member_id for node in best.nodes}
    alone = [
        dataclasses.replace(found, subject=f"node:{ranks[member]}")
        for answer in answers
        if answer.diagnosis is not None and not answer.diagnosis.nodes
        for found in answer.diagnosis.causes
        if (member := found.subject.partition(":")[2]) in ranks and member not in met
    ]
    missed = len(state.nodes) - len(best.nodes)
    if not best.nodes or len({found.subject for found in alone}) != missed:
        return best
    echoes = {echo for found in alone for echo in cause(found.id).explains}
    explained = tuple(found for found in best.causes if found.id in echoes and found.subject == "cluster")
    kept = (found for found in best.causes if found not in explained)
    return dataclasses.replace(best, causes=(*alone, *kept), consequences=(*best.consequences, *explained))


def _ending(status: int) -> str:
    if status < 0:
        return f"its probe was killed (signal {-status})"
    return f"its probe ended with status {status} and said nothing"


def _fullest(answers: list[NodeAnswer], *, one_speaks: bool) -> Diagnosis:
    """one_speaks: only the member of rank 0 prints the verdict, so silence with a status is no fault."""
    silent = tuple(
        f"node {answer.rank} gave no answer: {answer.errors[-300:] or _ending(answer.status)}"
        for answer in answers
        if answer.diagnosis is None and not (one_speaks and answer.status in _SAID_ENOUGH)
    )
    given = [(answer.rank, answer.diagnosis) for answer in answers if answer.diagnosis is not None]
    if not given:
        return Diagnosis(
            verdict=Verdict.UNKNOWN,
            unanswered=silent,
            next_command="fullmesh lab exec 0 -- tail -n 40 /var/log/cloud-init-output.log",
        )

    def fullness(item: tuple[int, Diagnosis]) -> tuple[int, int, int]:
        rank, diagnosis = item
        known = sum(node.verdict is not Verdict.UNKNOWN for node in diagnosis.nodes)
        return len(diagnosis.nodes), known, -rank

    best = max(given, key=fullness)[1]
    verdict = Verdict.UNKNOWN if silent and best.verdict is Verdict.PASS else best.verdict
    return dataclasses.replace(best, verdict=verdict, unanswered=(*best.unanswered, *silent))
