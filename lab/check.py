"""`fullmesh lab check`: the nodes' own probe again, on all nodes at once, judged by themselves."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from dataclasses import dataclass

from cluster.serial import decode
from diagnosis.report import Diagnosis, Verdict
from lab import enter
from lab.state import LabState

PROBE = "/opt/fullmesh/fullmesh.pyz"
# bootstrap.sh leaves the path of the Python that has torch here; a node without it proves the mesh only.
CHECK_SCRIPT = (
    'python="$(cat /run/fullmesh/torch-python 2>/dev/null || echo python3)"; '
    'exec "$python" "$0" check --json "$@"'
)
PROBE_DEADLINE_S = 60  # per stage, for a member that does not come; a loaded laptop needs 15 s at 64 nodes
PATIENCE_S = 2 * PROBE_DEADLINE_S + 30


@dataclass(frozen=True)
class NodeAnswer:
    """What one node's `check --json` came to. diagnosis None: it printed no answer."""

    rank: int
    diagnosis: Diagnosis | None
    errors: str


class CheckError(RuntimeError):
    """There is nothing to check; says what to run first."""


def run_check(state: LabState, collective: bool = True) -> Diagnosis:
    """Probe on every node at once; returns the cluster's verdict.

    The answer is that of the lowest rank whose view is the fullest: every node can judge, and a
    node that was cut off knows less than the others.

    Raises:
        CheckError: no node is running.
    """
    if not state.nodes:
        raise CheckError("no node is running in this lab; run: fullmesh demo --keep, or cdk deploy --all")
    arguments = ["--run", f"check-{time.time_ns()}", "--timeout-s", str(PROBE_DEADLINE_S)]
    if not collective:
        arguments.append("--no-collective")
    started = time.monotonic()
    processes = [
        subprocess.Popen(
            enter.command(state, node, ["bash", "-c", CHECK_SCRIPT, PROBE, *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in state.nodes
    ]
    answers = []
    try:
        for node, process in zip(state.nodes, processes, strict=True):
            left_s = max(1.0, PATIENCE_S - (time.monotonic() - started))
            answers.append(_answer(node.rank, process, left_s))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return _fullest(answers)


def _answer(rank: int, process: subprocess.Popen[str], timeout_s: float) -> NodeAnswer:
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        errors += f"\nthe probe did not end within {PATIENCE_S} s"
    try:
        diagnosis = decode(Diagnosis, json.loads(output))
    except ValueError:  # DecodeError is one, too
        diagnosis = None
    return NodeAnswer(rank=rank, diagnosis=diagnosis, errors=errors.strip())


def _fullest(answers: list[NodeAnswer]) -> Diagnosis:
    silent = tuple(
        f"node {answer.rank} gave no answer: {answer.errors[-300:]}"
        for answer in answers
        if answer.diagnosis is None
    )
    given = [(answer.rank, answer.diagnosis) for answer in answers if answer.diagnosis is not None]
    if not given:
        return Diagnosis(
            verdict=Verdict.UNKNOWN,
            unanswered=silent,
            next_command="fullmesh lab exec 0 -- tail -n 40 /var/log/cloud-init-output.log",
        )

    def fullness(item: tuple[int, Diagnosis]) -> tuple[int, int]:
        rank, diagnosis = item
        return sum(node.verdict is not Verdict.UNKNOWN for node in diagnosis.nodes), -rank

    best = max(given, key=fullness)[1]
    return dataclasses.replace(best, unanswered=(*best.unanswered, *silent))
