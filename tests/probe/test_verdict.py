"""From rows to a verdict: what the judging node asks of the account, and whom it tells."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.node_config import NodeConfig
from cluster.snapshot import ClusterSnapshot
from diagnosis.report import Diagnosis, Verdict
from probe import publish, verdict
from probe.board import DirectoryBoard
from probe.credentials import CredentialChain
from probe.place import Place
from probe.rows import MESH_ROW, Waiter, dump
from probe.verdict import MESH, Bench, settle
from tests.cluster.world import cluster, from_group
from tests.diagnosis.builders import Reports, drops, healthy
from tests.probe.aws_server import Answer, answering

CONFIG = NodeConfig(
    cluster="demo", run="r", nodes=2, master_port=29500, region="eu-central-1", bucket="b", role_id="A"
)
DENIED = (
    b"<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You are not authorized"
    b"</Message></Error></Errors></Response>"
)


GOOD = healthy(2)


class Account:
    """A publisher whose account answers as the test says; it remembers what it was told."""

    def __init__(self, rules: ClusterSnapshot | Exception | None, refused: str = "") -> None:
        """refused: what publishing says."""
        self._rules, self._refused = rules, refused
        self.told: list[tuple[Diagnosis, str]] = []

    def read_rules(self, member_ids: Sequence[str]) -> ClusterSnapshot | None:
        assert list(member_ids) == ["i-0", "i-1"]
        if isinstance(self._rules, Exception):
            raise self._rules
        return self._rules

    def read_baselines(self, instance_types: Sequence[str]) -> dict[str, float]:
        return {}

    def signal(self, diagnosis: Diagnosis, evidence: str) -> tuple[str, ...]:
        self.told.append((diagnosis, evidence))
        return ()

    def publish(self, diagnosis: Diagnosis, run: str, *, alone: bool = False) -> tuple[str, ...]:
        return (self._refused,) if self._refused else ()


def judged(
    folder: Path, account: Account, config: NodeConfig | None = CONFIG, rows: Reports = GOOD
) -> Diagnosis:
    """The verdict of member 0 over rows of two in a directory."""
    for row in rows:
        board = DirectoryBoard(str(folder), row.member_id)
        board.post(f"member~{row.address}~29500~32768", b"")
        board.post(MESH_ROW, dump(row))
    board = DirectoryBoard(str(folder), "i-0")
    place = Place(
        run="r", member_id="i-0", address=rows[0].address, name="n0", nodes=2, board=board, config=config
    )
    said: list[str] = []
    bench = Bench(
        place=place, waiter=Waiter(board, 2, said.append), publisher=account, say=said.append, signals=True
    )
    return settle(bench, MESH, rows[0], 0, complete=True)


def test_a_deployed_cluster_whose_rules_are_read_passes(tmp_path: Path) -> None:
    """Rows that are good and rules that let nobody else in: PASS."""
    account = Account(cluster([from_group("sg-mesh")], count=2).snapshot())
    assert judged(tmp_path, account).verdict is Verdict.PASS
    assert account.told == []  # a mesh that passed still owes the collective


def test_a_deployed_cluster_whose_rules_are_not_read_is_unknown(tmp_path: Path) -> None:
    """The signal of a deployment says that the rules were not read, and the missing permission."""
    account = Account(publish.RulesUnreadError("allow ec2:DescribeInstances in this node's role"))
    found = judged(tmp_path, account)
    assert found.verdict is Verdict.UNKNOWN
    assert found.unanswered == (
        "cluster: whether others get in is not known, the account's rules were not read: "
        "allow ec2:DescribeInstances in this node's role",
    )
    assert [(told.verdict, where) for told, where in account.told] == [
        (Verdict.UNKNOWN, "s3://b/rows/r/")  # the run's folder: short, so that the cause stays whole
    ]


def test_rules_that_do_not_come_in_time_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EC2 that says nothing is not an EC2 that says nobody else gets in."""
    monkeypatch.setattr(verdict, "RULES_PATIENCE_S", 0.25)
    found = judged(tmp_path, Account(None))
    assert found.verdict is Verdict.UNKNOWN
    assert found.unanswered[0].endswith("were not read: no answer of ec2 within 0.25 s")


@pytest.mark.parametrize("blocked", [False, True])
def test_what_could_not_be_published_is_a_cause_that_changes_no_verdict(
    tmp_path: Path, blocked: bool
) -> None:
    """It stands last among the causes, or beside them where nothing decides; also in what is posted."""
    rows = GOOD
    if blocked:  # no rules are known, so that nothing decides between them
        rows = drops(rows, lambda source, destination, port: True)
    found = judged(tmp_path, Account(None, "PutLogEvents: no such group"), config=None, rows=rows)
    told = found.consequences if blocked else found.causes
    assert [(item.id, item.subject, item.evidence) for item in told] == [
        ("publish-failed", "cluster", ("PutLogEvents: no such group",))
    ]
    assert found.causes == (() if blocked else told)
    assert bool(found.candidates) is blocked
    assert found.verdict is (Verdict.FAIL if blocked else Verdict.PASS)
    posted = json.loads((tmp_path / "i-0" / "verdict-mesh.json").read_text())
    assert posted == json.loads(dump(found))


def test_a_check_elsewhere_has_no_rules_to_read(tmp_path: Path) -> None:
    """Without a deployment's configuration the mesh is the whole question."""
    assert judged(tmp_path, Account(None), config=None).verdict is Verdict.PASS


def test_what_the_role_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2's refusal of the first call comes out with the permission to allow."""
    for name, value in {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    with answering(lambda _, __: Answer(status=403, body=DENIED)) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        publisher = publish.AwsPublisher(dataclasses.replace(CONFIG), CredentialChain())
        with pytest.raises(publish.RulesUnreadError, match="ec2:DescribeInstances"):
            publisher.read_rules(["i-0", "i-1"])
