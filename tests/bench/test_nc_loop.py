"""nc's words beside the probe's, and the demand that both ways agree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import nc_loop
from bench.mesh_stage import MeshRun
from bench.nc_loop import demand_same, mesh_answers, nc_answer, parse_nc
from bench.record import BenchError
from diagnosis.report import ConnectOutcome, NodeReport, PairProbe, PortKind

LOOP = Path(nc_loop.__file__).with_name("nc_all.sh")


@pytest.mark.parametrize(
    ("status", "said", "answer"),
    [
        (0, "Connection to 10.42.0.5 29500 port [tcp/*] succeeded!", "open"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) timed out: Operation now in progress", "timed out"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) failed: Connection refused", "refused"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) failed: No route to host", "unreachable"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) failed: Network is unreachable", "unreachable"),
        (127, "nc: not found", "exit 127: nc: not found"),
    ],
)
def test_answer_is_read_from_status_and_words(status: int, said: str, answer: str) -> None:
    """Every way nc ends is one answer, and one that is not known is shown whole."""
    assert nc_answer(status, said) == answer


def test_lines_of_the_loop_become_answers_by_source_destination_and_port() -> None:
    """The loop prints one line a target; words with spaces stay whole."""
    text = "10.42.0.5 29500 0 Connection to 10.42.0.5 29500 port [tcp/*] succeeded!\n10.42.0.6 32768 2 \n"
    assert parse_nc("10.42.0.4", text) == {
        ("10.42.0.4", "10.42.0.5", 29500): "open",
        ("10.42.0.4", "10.42.0.6", 32768): "exit 2: ",
    }


def test_loop_tries_every_line_of_its_input(tmp_path: Path) -> None:
    """The shell loop runs nc once for each target, in order, and does not let nc eat the list."""
    nc = tmp_path / "nc"
    nc.write_text('#!/bin/sh\ncat >/dev/null\necho "asked for $*" >&2\n[ "$5" = 1 ]\n')
    nc.chmod(0o755)
    done = subprocess.run(
        ["sh", str(LOOP)],
        input="10.0.0.1 1\n10.0.0.2 2\n",
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "10.0.0.1 1 0 asked for -zv -w 2 10.0.0.1 1\n10.0.0.2 2 1 asked for -zv -w 2 10.0.0.2 2\n"
    )


def test_outcomes_of_the_probe_are_said_in_words_that_nc_has() -> None:
    """A row's probes become answers; an outcome nc cannot tell keeps its own name and so never agrees."""

    def probe(port: int, outcome: ConnectOutcome) -> PairProbe:
        return PairProbe(
            destination="i-1", address="10.42.0.5", port=port, kind=PortKind.MASTER, outcome=outcome
        )

    row = NodeReport(
        run="bench",
        member_id="i-0",
        address="10.42.0.4",
        name="ip-10-42-0-4",
        probes=(
            probe(1, ConnectOutcome.CONNECTED),
            probe(2, ConnectOutcome.TIMED_OUT),
            probe(3, ConnectOutcome.SILENT),
        ),
    )
    assert mesh_answers(MeshRun(reports=(row,), stage_s=1.0)) == {
        ("10.42.0.4", "10.42.0.5", 1): "open",
        ("10.42.0.4", "10.42.0.5", 2): "timed out",
        ("10.42.0.4", "10.42.0.5", 3): "SILENT",
    }


def test_two_ways_that_agree_pass() -> None:
    """The same answers for the same targets are no error."""
    answers = {("a", "b", 1): "open"}
    demand_same(answers, dict(answers))


@pytest.mark.parametrize(
    ("theirs", "shown"),
    [
        ({("a", "b", 1): "refused"}, "a > b:1: probe open, nc refused"),
        ({}, "a > b:1: probe open, nc None"),
        ({("a", "b", 1): "open", ("a", "b", 2): "open"}, "a > b:2: probe None, nc open"),
    ],
)
def test_two_ways_that_disagree_are_an_error(theirs: nc_loop.Answers, shown: str) -> None:
    """Another answer, or a target that only one of them tried, makes the figures worthless."""
    with pytest.raises(BenchError, match="disagree on 1 of 1 targets: ") as caught:
        demand_same({("a", "b", 1): "open"}, theirs)
    assert str(caught.value).endswith(shown)
