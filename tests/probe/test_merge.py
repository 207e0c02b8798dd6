"""Rows gathered by hand: what is judged together, and what is refused with a reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.serial import encode
from diagnosis.report import NodeReport, Verdict
from probe import cli
from probe.merge import MergeError, merge
from probe.place import DiscoverError
from probe.row_file import check_writable, write_row
from tests.diagnosis.builders import STARTED_AT, Reports, healthy, named, on_host


def saved(folder: Path, rows: Reports) -> list[str]:
    """Each row as `check --row` writes it."""
    folder.mkdir(exist_ok=True)
    return [write_row(str(folder), row) for row in rows]


def times(row: NodeReport, *, later_s: float, member_id: str = "") -> NodeReport:
    """The same row of another attempt."""
    return dataclasses.replace(
        row,
        member_id=member_id or row.member_id,
        started_at=STARTED_AT + later_s,
        finished_at=STARTED_AT + later_s + 5,
        listens_until=None,
    )


def test_all_rows_are_judged_as_if_they_had_met(tmp_path: Path) -> None:
    """Four good rows pass; what no row holds is said to be left out."""
    found = merge(saved(tmp_path, healthy(4)))
    assert (found.verdict, len(found.pairs), len(found.nodes)) == (Verdict.PASS, 12, 4)
    assert found.skipped == ("cluster: an all_reduce; no row holds one, so the mesh alone was judged",)


def test_a_cause_is_named_from_rows(tmp_path: Path) -> None:
    """A fault that one row shows is named at its rank, as in a live check."""
    rows = on_host(healthy(3), [1], hostname_addresses=("127.0.1.1",))
    found = merge(saved(tmp_path, rows))
    assert named(found) == [("hostname-loopback", "node:1")]


def test_a_row_that_was_not_given_is_unknown(tmp_path: Path) -> None:
    """It is not said that the member never came: nobody knows."""
    found = merge(saved(tmp_path, healthy(4))[:3])
    assert (found.verdict, found.causes) == (Verdict.UNKNOWN, ())
    assert "node:3: i-3 (10.20.1.13) sent no row" in found.unanswered


def test_the_size_can_be_given(tmp_path: Path) -> None:
    """Rows that saw nobody else tell no size; with --nodes the missing ones are counted."""
    alone = dataclasses.replace(healthy(2)[0], members={}, probes=None, nodes_expected=None)
    paths = saved(tmp_path, (alone,))
    assert merge(paths).verdict is Verdict.UNKNOWN
    assert "cluster: how many members there should be is not known; give --nodes N" in merge(paths).unanswered
    assert "cluster: 1 of 4 members came" in merge(paths, nodes=4).unanswered


def test_copies_count_once(tmp_path: Path) -> None:
    """The same row in two files is one row."""
    rows = healthy(2)
    found = merge([*saved(tmp_path / "a", rows), *saved(tmp_path / "b", rows)])
    assert (found.verdict, len(found.nodes)) == (Verdict.PASS, 2)


def test_the_answer_of_a_node_that_met_nobody_is_a_row(tmp_path: Path) -> None:
    """What `check --json` prints in that case can be given as it stands."""
    first, second = healthy(2)
    (tmp_path / "answer.json").write_text(json.dumps({"verdict": "UNKNOWN", "row": encode(first)}))
    assert merge([str(tmp_path / "answer.json"), *saved(tmp_path, (second,))]).verdict is Verdict.PASS


def test_rows_of_several_runs_are_refused_or_chosen(tmp_path: Path) -> None:
    """The error tells which file is of which run; --run takes one of them."""
    old = tuple(dataclasses.replace(row, run="old") for row in healthy(2))
    paths = [*saved(tmp_path / "new", healthy(2)), *saved(tmp_path / "old", old)]
    with pytest.raises(
        MergeError, match=r"rows of 2 runs \('old': .*old/i-0.json.*choose one with --run NAME"
    ):
        merge(paths)
    assert merge(paths, run="old").verdict is Verdict.PASS
    with pytest.raises(MergeError, match="no row is of run 'x'; there are 'old', "):
        merge(paths, run="x")


def test_rows_of_different_attempts_are_refused(tmp_path: Path) -> None:
    """Rows that never stood at the same time prove nothing together."""
    first, second = healthy(2)
    paths = saved(tmp_path, (first, times(second, later_s=7200)))
    with pytest.raises(MergeError, match=r"different attempts: .*i-0.json ended at .*; give the rows of one"):
        merge(paths)


def test_two_attempts_of_one_member_are_refused(tmp_path: Path) -> None:
    """A member that was tried twice is not a rank that is claimed twice."""
    first, second = healthy(2)
    again = times(second, later_s=60, member_id="i-9")
    paths = saved(tmp_path, (times(first, later_s=0), times(second, later_s=0), again))
    with pytest.raises(MergeError, match=r"two attempts of n1 \(10.20.1.11\): .*i-1.json until"):
        merge(paths)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"verdict": "PASS"}', "holds no row of fullmesh check"),
        ("[1, 2]", "holds no row of fullmesh check"),
        ('{"member_id": "i-0"}', "has schema_version None, and this fullmesh reads up to 1"),
        ('{"member_id": "i-0", "schema_version": 2}', "has schema_version 2, .*merge with the newest one"),
        ('{"member_id": "i-0", "schema_version": 1}', r"is no whole row: NodeReport\.run: is missing"),
        ('{"member_id": 7, "schema_version": 1}', r"is no whole row: NodeReport\.member_id: expected str"),
    ],
)
def test_what_is_no_row_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """The error names the file and what it is not."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(MergeError, match=rf"x\.json {words}"):
        merge([str(path)])


def test_files_that_cannot_be_read_are_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A pattern that matched nothing reaches the command as it stands."""
    assert cli.main(["check", "--merge", str(tmp_path / "*.json")]) == 2
    assert "No such file or directory; give the files that check --row wrote" in capsys.readouterr().err


def test_the_command_prints_the_merged_verdict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit status and JSON are those of any check."""
    paths = saved(tmp_path, healthy(3))
    assert cli.main(["check", "--json", "--merge", *paths]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], len(answer["pairs"])) == ("PASS", 6)
    assert cli.main(["check", "--merge", *paths[:2]]) == 3
    assert cli.main(["check", "--merge", *paths, "--meet", "/x"]) == 2
    assert "--merge judges files and probes nothing; leave --meet out" in capsys.readouterr().err


def test_a_row_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It tells addresses and firewall rules; a second one replaces the first whole."""
    row = healthy(2)[0]
    path = Path(write_row(str(tmp_path / "own.json"), row))
    assert path.stat().st_mode & 0o777 == 0o600
    write_row(str(path), dataclasses.replace(row, name="other"))
    assert json.loads(path.read_text())["name"] == "other"
    assert [item.name for item in tmp_path.iterdir()] == ["own.json"]


def test_the_folder_for_rows_is_made(tmp_path: Path) -> None:
    """`--row rows/` works as the README has it, in a folder of its own."""
    check_writable(f"{tmp_path}/rows/")
    assert (tmp_path / "rows").is_dir()


def test_a_place_for_the_row_is_looked_at_first(tmp_path: Path) -> None:
    """A folder that is missing is told before anything is probed."""
    with pytest.raises(DiscoverError, match="there is no folder /no/such"):
        check_writable("/no/such/row.json")
    with pytest.raises(DiscoverError, match="there is no folder"):
        check_writable(f"{tmp_path}/no/rows/")
    check_writable(str(tmp_path))
