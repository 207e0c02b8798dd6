"""`fullmesh report`: the verdict of a run that is over, from what its members left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.keys import MESH_ROW, registration
from diagnosis.report import Diagnosis, NodeVerdict, Verdict
from probe import cli
from probe.board import BoardContentError, DirectoryBoard
from probe.evidence import read_evidence
from probe.place import DiscoverError
from probe.rows import dump
from tests.diagnosis.builders import healthy, named, on_host


def left(folder: Path, member: str, name: str, value: object = None) -> Path:
    DirectoryBoard(str(folder), member).post(name, dump(value) if value is not None else b"")
    return folder / member / name


def verdict(verdict: Verdict, nodes: int) -> Diagnosis:
    members = tuple(
        NodeVerdict(
            rank=rank, member_id=f"i-{rank}", name=f"n{rank}", address=f"10.0.0.{rank}", verdict=verdict
        )
        for rank in range(nodes)
    )
    return Diagnosis(verdict=verdict, nodes=members)


def test_the_verdict_of_the_later_stage_is_shown(tmp_path: Path) -> None:
    """The mesh's is not the run's where an all_reduce came after it."""
    left(tmp_path, "i-0", "verdict-mesh.json", verdict(Verdict.PASS, 2))
    left(tmp_path, "i-0", "verdict-collective.json", verdict(Verdict.FAIL, 2))
    assert read_evidence(str(tmp_path), print).verdict is Verdict.FAIL


def test_of_two_verdicts_the_one_that_knows_more_members_is_shown(tmp_path: Path) -> None:
    """A member that was left out gave the verdict again, with itself."""
    left(tmp_path, "i-0", "verdict-mesh.json", verdict(Verdict.PASS, 2))
    left(tmp_path, "i-2", "verdict-mesh.json", verdict(Verdict.FAIL, 3))
    assert len(read_evidence(str(tmp_path), print).nodes) == 3


def test_any_object_of_the_run_names_it(tmp_path: Path) -> None:
    """As the stack's event names the verdict, and not the folder."""
    named_in_event = left(tmp_path, "i-0", "verdict-mesh.json", verdict(Verdict.FAIL, 2))
    assert read_evidence(str(named_in_event), print).verdict is Verdict.FAIL


def test_without_a_verdict_the_rows_are_judged(tmp_path: Path) -> None:
    """Nodes that were ended before they judged left rows that tell the cause."""
    for row in on_host(healthy(3), [1], hostname_addresses=("127.0.1.1",)):
        left(tmp_path, row.member_id, MESH_ROW, row)
    assert named(read_evidence(str(tmp_path), print)) == [("hostname-loopback", "node:1")]


def test_a_row_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    """What a member would have said is not made up."""
    for row in healthy(3)[:2]:
        left(tmp_path, row.member_id, MESH_ROW, row)
    found = read_evidence(str(tmp_path), print)
    assert (found.verdict, found.causes) == (Verdict.UNKNOWN, ())


def test_registrations_alone_are_no_evidence(tmp_path: Path) -> None:
    """Nothing was looked at, and that is said with what to give."""
    left(tmp_path, "i-0", registration("10.0.0.1", 29500, (40000,)))
    with pytest.raises(BoardContentError, match=r"neither a verdict .* nor a member's row"):
        read_evidence(str(tmp_path), print)


@pytest.mark.parametrize(
    "where", ["s3://bucket", "s3://bucket/rows", "s3://bucket/rows/", "/nonexistent/run"]
)
def test_what_names_no_run_is_refused(where: str) -> None:
    """Before anything is asked of AWS."""
    with pytest.raises(DiscoverError, match=r"s3://BUCKET/rows/RUN"):
        read_evidence(where, print)


def test_the_command_prints_writes_a_page_and_exits_by_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `check` would have."""
    left(tmp_path / "run", "i-0", "verdict-mesh.json", verdict(Verdict.FAIL, 2))
    page = tmp_path / "page.html"
    assert cli.main(["report", "--json", "--html", str(page), str(tmp_path / "run")]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "FAIL"
    assert page.read_text().startswith("<!doctype html>")
    assert "FAIL" in page.read_text()


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the path, and without a traceback."""
    left(tmp_path / "run", "i-0", "verdict-mesh.json", verdict(Verdict.FAIL, 2))
    assert cli.main(["report", "--html", str(tmp_path / "no" / "page.html"), str(tmp_path / "run")]) == 2
    assert "No such file" in capsys.readouterr().err
