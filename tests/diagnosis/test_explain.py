"""Explaining logs: the first cause by its id and subject, the line that shows it, and no more than that."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from diagnosis.causes import CATALOGUE
from diagnosis.explain import explain, explain_files
from diagnosis.logs.claims import real_port
from diagnosis.logs.decide import Explanation, Outcome
from diagnosis.logs.show import exit_code, to_json, to_terminal
from tools.build_pyz import build

CHECKOUT = Path(__file__).resolve().parents[2]
OWN = Path(__file__).resolve().parent / "explain_cases"
SHARED = CHECKOUT.parent / "shared" / "cases" / "explain"


def rows(folder: Path) -> List[Dict[str, str]]:
    path = folder / "expected.tsv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def told(*logs: str) -> Explanation:
    return explain([(f"log{place}", io.BytesIO(text.encode())) for place, text in enumerate(logs)])


def causes(explanation: Explanation) -> List[Tuple[str, str]]:
    return [(item.id, item.subject) for item in explanation.causes]


@pytest.mark.parametrize("row", rows(OWN), ids=lambda row: row["case"])
def test_own_cases(row: Dict[str, str]) -> None:
    """Each log of ours has exactly its verdict, causes with subjects, and first candidate."""
    answer = explain_files([str(OWN / row["case"])])
    found = " ".join(f"{name}@{subject}" for name, subject in causes(answer)) or "-"
    first = answer.candidates[0].id if answer.candidates else "-"
    assert (answer.verdict.value, found, first) == (row["verdict"], row["causes"], row["first candidate"])


@pytest.mark.skipif(not SHARED.exists(), reason="no collection of public logs stands beside the checkout")
@pytest.mark.parametrize("row", rows(SHARED), ids=lambda row: row["case"])
def test_public_cases(row: Dict[str, str]) -> None:
    """Logs from public reports give one of the right answers; `undetermined` forbids to name a cause."""
    answer = explain_files([str(SHARED / f"{row['case']}.log")])
    right = row["first cause (| = either)"].split("|")
    found = "undetermined" if answer.verdict is Outcome.UNDETERMINED else answer.causes[0].id
    assert found in right
    assert (answer.verdict is Outcome.NO_FAULT) == found.startswith("benign")


def test_every_own_case_is_expected() -> None:
    """A log without a row would prove nothing."""
    names = {path.name for path in OWN.iterdir()} - {"expected.tsv"}
    assert names == {row["case"] for row in rows(OWN)}


def test_evidence_is_the_line() -> None:
    """Evidence names the file, the line counted from 1, and the line's text."""
    answer = told(
        "fine\nfine\n\x1b[31mRuntimeError: ifa != nullptr. Unable to find address for: ib0\x1b[0m\n"
    )
    assert [place._asdict() for place in answer.causes[0].evidence] == [
        {
            "file": "log0",
            "line": 3,
            "text": "RuntimeError: ifa != nullptr. Unable to find address for: ib0",
        }
    ]


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("3210", "35340 (printed with its bytes swapped, 3210)"),
        ("39001", "39001"),
        ("0", "unknown"),
        ("70000", "unknown"),
        ("", "unknown"),
    ],
)
def test_ports_of_gloo_are_unswapped(printed: str, words: str) -> None:
    """A port outside of the ephemeral range is swapped back into it; one inside stays, unless both are."""
    assert real_port(printed) == words


def test_a_late_member_is_late_and_not_missing() -> None:
    """A member whose first line is younger than the others' time-out came too late."""
    waited = (
        "[rank0]:[E0501 12:05:01.1 x.cpp:1] Timed out after 301 seconds waiting for clients. 1/2 clients "
        "joined.\n"
    )
    late = (
        "[rank1]:[E0501 12:09:00.5 x.cpp:1] [c10d] recvValue failed on SocketImpl(fd=3): Failed to recv, got "
        "0 bytes. Connection was likely closed.\n"
    )
    assert causes(told(waited, late)) == [("peer-late", "node:1")]
    early = late.replace("12:09", "12:03")
    assert causes(told(waited, early)) == [("peer-missing", "cluster")]


def test_the_interface_that_some_nodes_lack() -> None:
    """One value for all, and another rank got past it: the name exists on some nodes only."""
    log = (
        "GLOO_SOCKET_IFNAME=ens5\n"
        "[rank1]: RuntimeError: ifa != nullptr. Unable to find address for: ens5\n"
        "[rank0]: DistStoreError: wait timeout after 15000ms, keys: /default_pg/0//cpu//0/1\n"
    )
    answer = told(log)
    assert causes(answer) == [("ifname-heterogeneous", "node:1")]
    assert [item.id for item in answer.consequences] == ["peer-missing"]
    assert causes(told(log.split("\n", 1)[1])) == [("ifname-missing", "node:1")]


def test_two_causes_are_both_named() -> None:
    """Faults that do not explain each other stand side by side, the first one first."""
    answer = told(
        "[rank2]:[E0501 12:00:02.0 a.cpp:1] ifa != nullptr. Unable to find address for: ib0\n"
        "[rank1]:[E0501 12:00:01.0 a.cpp:1] socket: Too many open files\n"
    )
    assert causes(answer) == [("fd-limit", "node:1"), ("ifname-missing", "node:2")]


def test_a_success_behind_a_failure_does_not_excuse_it() -> None:
    """Only messages of attempts are forgiven by later work."""
    ifname = "RuntimeError: ifa != nullptr. Unable to find address for: ib0\n"
    assert causes(told(ifname + "Epoch 1/10: loss=2.3\n")) == [("ifname-missing", "cluster")]


def test_an_attempt_behind_the_success_counts() -> None:
    """A refused connection after the work is not an early retry, however often it was printed before."""
    refused = "[W] The client socket has failed to connect to [a]:1 (errno: 111 - Connection refused).\n"
    work = "epoch 1/10: loss=2.3\n"
    assert told(refused * 500 + work).verdict is Outcome.NO_FAULT
    assert told(refused * 500 + work + refused).verdict is Outcome.UNDETERMINED


@pytest.mark.parametrize(
    "value", ["10.0.0.4", "node-a", "node-a.example", "ip-10-0-0-4", "$(hostname)", "<address>"]
)
def test_a_good_master_addr_is_not_blamed(value: str) -> None:
    """A well-formed host, a script's text and a value blanked out are no malformed MASTER_ADDR."""
    log = f"export MASTER_ADDR={value},MASTER_PORT=29500\nconnect() timed out. Original timeout was 9 ms.\n"
    assert told(log).verdict is Outcome.UNDETERMINED


def test_other_libraries_interface_syntax_is_left_alone() -> None:
    """NCCL's variable may exclude; Gloo's may not."""
    assert told("NCCL_SOCKET_IFNAME=^lo,docker0\n").verdict is Outcome.UNDETERMINED
    assert causes(told("GLOO_SOCKET_IFNAME=^lo,docker0\n")) == [("ifname-syntax", "cluster")]


def test_the_hidden_error_is_said_to_be_hidden() -> None:
    """torch before 2.8: no cause is named, the release is, and the live check is the next command."""
    answer = told("Gloo connectFullMesh failed with [x/pair.cc:144] no error\nMASTER_ADDR=10.0.0.4\n")
    assert answer.verdict is Outcome.UNDETERMINED
    assert "before 2.8" in answer.candidates[0].summary
    assert answer.next_command == (
        "RANK=RANK WORLD_SIZE=WORLD_SIZE MASTER_ADDR=10.0.0.4 MASTER_PORT=MASTER_PORT fullmesh check "
        "--no-collective"
    )


def test_every_named_cause_of_the_rules_is_in_the_catalogue() -> None:
    """An id in the rules' source that no catalogue knows would be dropped silently."""
    named = set()
    for path in (CHECKOUT / "diagnosis" / "logs").glob("*.py"):
        named |= set(re.findall(r'\bid="([a-z0-9-]+)"', path.read_text(encoding="utf-8")))
    assert len(named) > 20
    assert named <= set(CATALOGUE)


@pytest.mark.parametrize("case", ["interface_missing_on_one.log", "error_is_hidden.log", "no_ipv6.log"])
def test_json_has_its_shape(case: str) -> None:
    """The keys that programs read are there in every verdict, and the exit code follows the verdict."""
    answer = explain_files([str(OWN / case)])
    document = json.loads(to_json(answer))
    assert document["schema_version"] == 1
    assert document["verdict"] in ("determined", "undetermined", "no-fault")
    assert set(document) >= {"causes", "candidates", "consequences", "next_command"}
    for item in [*document["causes"], *document["candidates"]]:
        assert set(item) == {"id", "subject", "summary", "evidence", "remediation", "commands"}
    assert (document["next_command"] is None) == (document["verdict"] != "undetermined")
    assert (
        exit_code(answer.verdict) == {"no-fault": 0, "determined": 1, "undetermined": 3}[document["verdict"]]
    )


def test_the_terminal_shows_cause_line_and_remedy() -> None:
    """A person reads the id, the place of the line and a command."""
    shown = to_terminal(told("ifa != nullptr. Unable to find address for: ib0\n"))
    assert shown.startswith("ifname-missing: ")
    assert "log0:1: ifa != nullptr" in shown
    assert "export GLOO_SOCKET_IFNAME=INTERFACE" in shown


def command(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "cli", "explain", *arguments],
        cwd=CHECKOUT,
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_command_reads_standard_input() -> None:
    """`-` is standard input, of whatever encoding, and the answer is JSON with status 1."""
    answer = command("-", "--json", given=b"\xff\xfe socket: Too many open files \xe9\n")
    assert (answer.returncode, json.loads(answer.stdout)["causes"][0]["id"]) == (1, "fd-limit")


def test_command_without_logs_shows_an_example() -> None:
    """Three lines, status 2."""
    answer = command()
    assert (answer.returncode, len(answer.stdout.splitlines()), answer.stderr) == (2, 3, b"")


def test_command_names_what_it_cannot_read() -> None:
    """A missing file alone is bad usage, told on standard error."""
    answer = command("no-such.log")
    assert (answer.returncode, answer.stdout) == (2, b"")
    assert b"no-such.log cannot be opened: No such file or directory" in answer.stderr


def test_what_cannot_be_read_stops_no_other_log(tmp_path: Path) -> None:
    """The others are judged and the gap is named; with a gap nothing is called free of faults."""
    (tmp_path / "fine.log").write_text("Epoch 1/3: loss=2.3\nTraining completed\n")
    (tmp_path / "bad.log").write_text("socket: Too many open files\n")
    gone = str(tmp_path / "gone.log")
    answer = command("--json", gone, str(tmp_path / "bad.log"))
    document = json.loads(answer.stdout)
    assert (answer.returncode, document["causes"][0]["id"]) == (1, "fd-limit")
    assert document["unread"] == [{"file": gone, "reason": "cannot be opened: No such file or directory"}]
    assert gone.encode() in answer.stderr
    assert command(str(tmp_path / "fine.log")).returncode == 0
    assert command(gone, str(tmp_path / "fine.log")).returncode == 3


def test_a_folder_is_every_file_below_it(tmp_path: Path) -> None:
    """torchrun's log folder is one argument; names and lines are those of the files."""
    (tmp_path / "attempt_0" / "1").mkdir(parents=True)
    (tmp_path / "attempt_0" / "1" / "stderr.log").write_text("x\nsocket: Too many open files\n")
    (tmp_path / "attempt_0" / "0.log").write_text("nothing\n")
    answer = explain_files([str(tmp_path)])
    (place,) = answer.causes[0].evidence
    assert (place.file, place.line) == (str(tmp_path / "attempt_0" / "1" / "stderr.log"), 2)
    assert len(answer.files) == 2


def test_zip_members_are_logs_of_their_own(tmp_path: Path) -> None:
    """A downloaded archive of logs is read without unpacking it."""
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("a/rank0.log", "fine\n")
        archive.writestr("rank1.log", "socket: Too many open files\n")
    answer = explain_files([str(tmp_path / "logs.zip")])
    assert answer.causes[0].evidence[0].file == str(tmp_path / "logs.zip") + "/rank1.log"


HEAVY = (
    *("asyncio", "torch", "boto3", "subprocess", "socket", "gzip", "json", "dataclasses", "inspect"),
    *("pathlib", "traceback", "logging", "diagnosis.judge", "cluster.spec", "lab.cli", "audit.cli"),
)


@pytest.mark.parametrize("entry", [("-m", "cli"), ("fullmesh.pyz",)], ids=["cli", "one-file"])
def test_nothing_heavy_is_imported(entry: Tuple[str, ...], tmp_path: Path) -> None:
    """Start-up: a log is explained without a module that costs milliseconds and says nothing about it."""
    if entry[0] != "-m":
        entry = (str(tmp_path / entry[0]),)
        build(Path(entry[0]))
    log = str(OWN / "files_exhausted.log")
    answer = subprocess.run(
        [sys.executable, "-S", "-X", "importtime", *entry, "explain", log],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    imported = {line.split("|")[-1].strip() for line in answer.stderr.splitlines()}
    assert "diagnosis.logs.decide" in imported
    assert imported & set(HEAVY) == set()
