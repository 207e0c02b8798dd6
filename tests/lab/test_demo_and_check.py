"""What the demo and `lab check` make of verdicts: a failed deploy or a silent node is never PASS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.serial import encode
from diagnosis.report import Diagnosis, NodeVerdict, Verdict
from lab import check, demo, demo_answer, deploy
from lab.check import NodeAnswer
from lab.deploy import Deployment
from lab.progress import Progress
from lab.state import LabState

PROVEN = Diagnosis(
    verdict=Verdict.PASS,
    nodes=tuple(
        NodeVerdict(rank=rank, name=f"n{rank}", address=f"10.0.0.{rank}", verdict=Verdict.PASS)
        for rank in range(2)
    ),
)
LAB = LabState(
    pid=1,
    caller_pid=1,
    endpoint_url="http://127.0.0.1:1",
    region="us-east-1",
    started_at="now",
    log_dir="/nowhere",
    state_dir="/nowhere",
    rootless=False,
    search_path="/bin",
    environment={},
)


def result_of(monkeypatch: pytest.MonkeyPatch, folder: Path, complete: bool) -> demo.DemoResult:
    monkeypatch.setattr(deploy, "bootstrap", lambda *_: True)
    monkeypatch.setattr(
        deploy, "deploy", lambda *_: Deployment(complete=complete, event="it broke", output="")
    )
    monkeypatch.setattr(deploy, "newest_verdict", lambda *_: (PROVEN, "s3://bucket/rows/x"))
    monkeypatch.setattr(deploy, "outputs", lambda *_: {})
    monkeypatch.setattr(deploy, "function_name", lambda *_: None)
    monkeypatch.setattr(demo.supervisor, "read_state", lambda *_: LAB)
    return demo.run(demo.DemoOptions(state_dir=folder), LAB, Progress(quiet=True))


def test_a_failed_deploy_is_not_a_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The mesh stage's PASS does not stand where the stack failed: UNKNOWN, with the stack's event."""
    result = result_of(monkeypatch, tmp_path, complete=False)
    assert demo.exit_status(result) == 3
    document = demo_answer.document(result)
    assert document["verdict"] == "UNKNOWN"
    assert document["unanswered"] == ["cdk deploy failed although the last verdict is PASS: it broke"]


def test_a_complete_deploy_keeps_its_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CREATE_COMPLETE with a PASS is a PASS."""
    result = result_of(monkeypatch, tmp_path, complete=True)
    assert (demo.exit_status(result), demo_answer.document(result)["verdict"]) == (0, "PASS")


def test_a_silent_node_is_not_a_pass() -> None:
    """One node without an answer makes the others' PASS UNKNOWN, and is told."""
    answers = [
        NodeAnswer(rank=0, diagnosis=PROVEN, status=0, errors=""),
        NodeAnswer(rank=1, diagnosis=None, status=-9, errors=""),
    ]
    judged = check._fullest(answers, one_speaks=False)
    assert judged.verdict is Verdict.UNKNOWN
    assert judged.unanswered == ("node 1 gave no answer: its probe was killed (signal 9)",)


def test_the_answer_of_demo_has_the_public_fields(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`demo --json` holds what every answer holds, and says that it is the lab's."""
    document = json.loads(
        json.dumps(encode(demo_answer.document(result_of(monkeypatch, tmp_path, complete=True))))
    )
    assert {
        "schema_version", "verdict", "causes", "consequences", "candidates", "next_command", "nodes", "pairs",
        "timings_s",
    } <= set(document)  # fmt: skip
    assert document["lab"] is True
