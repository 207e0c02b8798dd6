"""nc's words beside the probe's, and the demand that both ways agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import nc_loop
from bench.mesh_stage import MeshRun
from bench.nc_loop import demand_nc, demand_same, mesh_answers, nc_answer, parse_nc
from bench.record import BenchError
from diagnosis.report import ConnectOutcome, NodeReport, PairProbe, PortKind


@pytest.mark.parametrize(
    ("status", "said", "answer"),
    [
        (0, "Connection to 10.42.0.5 29500 port [tcp/*] succeeded!", "open"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) timed out: Operation now in progress", "timed out"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) failed: Connection refused", "refused"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) failed: No route to host", "unreachable"),
        (1, "nc: connect to 10.42.0.5 port 32768 (tcp) failed: Network is unreachable", "unreachable"),
        (0, "localhost [127.0.0.1] 9000 (?) open", "open"),
        (1, "localhost [127.0.0.1] 9001 (?) : Connection refused", "refused"),
        (1, "10.8.0.1: inverse host lookup failed: (UNKNOWN) [10.8.0.1] 9 : No route to host", "unreachable"),
        (1, "localhost [127.0.0.1] 7 (echo) : Connection timed out", "timed out"),
        (0, "Ncat: Version 7.93 ( https://nmap.org/ncat ) Ncat: Connected to 127.0.0.1:9000.", "open"),
        (1, "Ncat: Version 7.93 ( https://nmap.org/ncat ) Ncat: TIMEOUT.", "timed out"),
        (1, "Ncat: Version 7.93 ( https://nmap.org/ncat ) Ncat: Connection refused.", "refused"),
        (127, "nc: not found", "exit 127: nc: not found"),
    ],
)
def test_answer_is_read_from_status_and_words(status: int, said: str, answer: str) -> None:
    """Every way nc ends is one answer, and one that is not known is shown whole."""
    assert nc_answer(status, said) == answer


def test_lines_of_the_loop_become_answers_by_source_destination_and_port() -> None:
    """The loop prints one line a target; words with spaces stay whole."""
    text = "10.42.0.5 29500 0 Connection to 10.42.0.5 29500 port [tcp/*] succeeded!\n10.42.0.6 32768 2\n"
    assert parse_nc("10.42.0.4", text) == {
        ("10.42.0.4", "10.42.0.5", 29500): "open",
        ("10.42.0.4", "10.42.0.6", 32768): "exit 2: ",
    }


def search_path(folder: Path, script: str) -> str:
    """A PATH on which nc is this shell script."""
    nc = folder / "nc"
    nc.write_text(f"#!/bin/sh\n{script}\n")
    nc.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_loop_tries_every_line_of_its_input(tmp_path: Path) -> None:
    """nc runs once for each target, in order, does not eat the list, and its lines are joined."""
    path = search_path(tmp_path, 'cat >/dev/null\nprintf "asked for\\n$*\\n" >&2\n[ "$5" = 1 ]')
    done = subprocess.run(
        ["sh", str(nc_loop.LOOP)],
        input="10.0.0.1 1\n10.0.0.2 2\n",
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "10.0.0.1 1 0 asked for -zv -w 2 10.0.0.1 1\n10.0.0.2 2 1 asked for -zv -w 2 10.0.0.2 2\n"
    )


def test_without_nc_nothing_is_started(tmp_path: Path) -> None:
    """What is measured must be there: the error names it and the command that installs it."""
    with pytest.raises(BenchError, match=f"no nc in {tmp_path}, .*; run: apt-get install netcat-openbsd"):
        demand_nc(str(tmp_path))


def test_an_nc_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """busybox's nc has no -z and would answer the same for every port."""
    path = search_path(tmp_path, "echo \"nc: invalid option -- 'z'\" >&2; exit 1")
    with pytest.raises(BenchError, match=r"to a port that is open answered .*invalid option.*netcat-openbsd"):
        demand_nc(path)


def test_an_nc_that_tells_open_from_closed_will_do(tmp_path: Path) -> None:
    """The words of nmap's, over two lines, from real connects."""
    connect = (
        f"exec {sys.executable} -c 'import socket, sys\n"
        'print("Ncat: Version 7.93")\n'
        "s = socket.socket()\n"
        "refused = s.connect_ex((sys.argv[1], int(sys.argv[2])))\n"
        'print("Ncat: Connection refused." if refused else "Ncat: Connected.")\n'
        "sys.exit(bool(refused))' $4 $5"
    )
    demand_nc(search_path(tmp_path, connect))


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
