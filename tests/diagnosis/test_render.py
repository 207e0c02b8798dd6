"""Renderings: short, plain, escaped, and with the command whole."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from html.parser import HTMLParser
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis import render
from diagnosis.causes import CAUSES, Cause, fill, finding
from diagnosis.judge import judge
from diagnosis.prose import shell_lines
from diagnosis.report import Diagnosis, NodeVerdict, PairVerdict, Verdict
from tests.cluster.world import cluster, from_group
from tests.diagnosis.builders import MASTER_PORT, diagnose, drops, expect, healthy, unread_firewalls

FAMOUS = judge(
    drops(healthy(), lambda s, d, p: p != MASTER_PORT),
    expect(),
    cluster([from_group("sg-mesh", MASTER_PORT, MASTER_PORT)]).snapshot(),
)
UNSURE = diagnose(unread_firewalls(drops(healthy(), lambda s, d, p: p != MASTER_PORT)))
COMMAND = (
    "aws ec2 authorize-security-group-ingress --group-id sg-mesh --protocol tcp --port 0-65535 "
    "--source-group sg-mesh"
)


@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict.PASS, 0), (Verdict.FAIL, 1), (Verdict.UNKNOWN, 3), (Verdict.SKIPPED, 3)]
)
def test_exit_codes(verdict: Verdict, code: int) -> None:
    """What was not looked at never ends with 0."""
    assert render.exit_code(verdict) == code


def test_the_signal_of_the_famous_failure() -> None:
    """The line that the terminal shows when the deploy fails."""
    assert render.signal_reason(FAMOUS, "s3://b/rows/r/") == (
        "sg-only-master-port: members reach each other on 29500 but not on ports 32768-60999 "
        '(12 of 12 pairs, silent drop); security group sg-mesh lacks "all TCP from itself": '
        f"run {COMMAND}; see s3://b/rows/r/"
    )


@pytest.mark.parametrize(("nodes", "pairs"), [(4, "12 of 12"), (16, "240 of 240")])
def test_the_signal_of_the_famous_failure_is_whole_at_real_lengths(nodes: int, pairs: str) -> None:
    """A group's id, a bucket's name and a run as AWS and the stack make them leave nothing cut."""
    group, bucket, run = "sg-0123456789abcdef0", "b" * 50, "7aa8fba7ea2a"
    rows = drops(healthy(nodes), lambda s, d, p: p != MASTER_PORT)
    diagnosis = judge(
        rows,
        expect(nodes),
        cluster([from_group("sg-mesh", MASTER_PORT, MASTER_PORT)], count=nodes).snapshot(),
    )
    (cause,) = diagnosis.causes
    real = dataclasses.replace(
        cause,
        summary=cause.summary.replace("sg-mesh", group),
        commands=tuple(command.replace("sg-mesh", group) for command in cause.commands),
    )
    diagnosis = dataclasses.replace(diagnosis, causes=(real,))
    whole = (
        "sg-only-master-port: members reach each other on 29500 but not on ports 32768-60999 "
        f'({pairs} pairs, silent drop); security group {group} lacks "all TCP from itself": '
        f"run aws ec2 authorize-security-group-ingress --group-id {group} --protocol tcp --port 0-65535 "
        f"--source-group {group}"
    )
    reason = render.signal_reason(diagnosis, f"s3://{bucket}/rows/{run}/")
    assert reason == f"{whole}; s3://{bucket}/rows/{run}/"
    assert len(reason) <= 400
    assert render.signal_reason(diagnosis, f"s3://{bucket}longer/rows/{run}/") == whole


def test_the_signal_of_an_undetermined_failure_names_candidates_and_the_deciding_command() -> None:
    """No cause is claimed."""
    reason = render.signal_reason(UNSURE)
    assert reason.startswith("undetermined: ")
    assert "(sg-only-master-port or os-firewall-drop)" in reason
    assert reason.endswith("run sudo nft list ruleset # on n0 (10.20.1.10)")


def test_the_signal_of_an_unknown_says_what_is_missing() -> None:
    """The first open question and how many more there are."""
    diagnosis = diagnose(healthy()[:3], 4, registered={"i-3": "10.20.1.13"})
    assert render.signal_reason(diagnosis).startswith(
        "UNKNOWN: node:3: i-3 (10.20.1.13) sent no row: run aws "
    )


def test_a_long_command_costs_the_pointer_before_the_cause() -> None:
    """Room for the cause's first words is kept; where the rest stands is told elsewhere too."""
    command = "fix " + "x" * 280
    cause = finding("pair-blocked", "pair:0>1", summary="s" * 200, evidence=[], commands=[command])
    reason = render.signal_reason(Diagnosis(verdict=Verdict.FAIL, causes=(cause,)), "s3://bucket/" + "k" * 40)
    assert reason == f"pair-blocked: {'s' * 93}...: run {command}"


@given(summary=st.text(max_size=900), command=st.text(max_size=330), evidence=st.text(max_size=200))
def test_a_signal_is_short_plain_and_keeps_its_command(summary: str, command: str, evidence: str) -> None:
    """At most 400 printable ASCII characters whatever comes in; a command that fits is whole."""
    cause = finding("one-way-block", "pair:0>1", summary=summary, evidence=[], commands=[f"fix {command}"])
    reason = render.signal_reason(Diagnosis(verdict=Verdict.FAIL, causes=(cause,)), evidence)
    assert len(reason) <= 400
    assert re.fullmatch(r"[ -~]*", reason)
    assert reason.startswith("one-way-block: ")
    plain = " ".join(
        "".join(c if " " <= c <= "~" else "?" for c in " ".join(f"fix {command}".split())).split()
    )
    if len(plain) < 310:
        assert f"run {plain}" in reason


def test_json_is_the_public_schema() -> None:
    """Keys and data of the document; prose may change."""
    document = json.loads(render.to_json(FAMOUS))
    assert list(document) == [
        *("schema_version", "verdict", "causes", "consequences", "candidates", "next_command", "unanswered"),
        *("skipped", "differences", "exposed", "nodes", "pairs", "collective", "timings_s"),
    ]
    assert document["verdict"] == "FAIL"
    (cause,) = document["causes"]
    assert {"id", "subject", "summary", "evidence", "remediation", "commands"} <= set(cause)
    assert cause["commands"] == [COMMAND]
    assert document["pairs"][0] == {
        "source": 0,
        "destination": 1,
        "outcomes": {"29500": "CONNECTED", "32768": "TIMED_OUT", "46884": "TIMED_OUT", "60999": "TIMED_OUT"},
        "round_trip_s": 0.0001,
        "lost_share": None,
        "gbit_per_s": None,
        "baseline_gbit_per_s": None,
    }
    assert document["nodes"][0] == {
        "rank": 0,
        "name": "n0",
        "address": "10.20.1.10",
        "verdict": "FAIL",
        "member_id": "i-0",
        "note": "sg-only-master-port",
        "clock_offset_s": None,
    }


def test_the_terminal_report_fits_80_columns() -> None:
    """Wide words (a nested command) may stick out, prose and tables may not."""
    for diagnosis in (FAMOUS, diagnose(healthy(16)), UNSURE):
        text = render.to_terminal(diagnosis)
        assert [line for line in text.splitlines() if len(line) > 80] == []


def test_the_terminal_report_shows_matrix_cause_and_command() -> None:
    """A letter a pair, its legend, the cause, and a command that pastes as one."""
    text = render.to_terminal(FAMOUS)
    assert text.startswith("FAIL  sg-only-master-port\n")
    assert "      0    -   t   t   t\n" in text
    assert "  t timed out (silent drop) on some ports\n" in text
    assert "1. sg-only-master-port  (cluster)\n" in text
    pasted = text[text.index("     aws ec2 authorize") :].split("\n\n")[0]
    assert _words(pasted.replace(" \\\n", " ")) == _words(COMMAND)


def test_large_clusters_have_no_matrix() -> None:
    """Above 16 nodes only the counts, and only the nodes that do not pass."""
    text = render.to_terminal(diagnose(healthy(17)))
    assert "from\\to" not in text
    assert "272 of 272 ordered pairs work" in text


@pytest.mark.parametrize("item", CAUSES, ids=lambda item: item.id)
def test_wrapped_commands_read_as_one(item: Cause) -> None:
    """Lines break between words only, so a shell joins them to the same words."""
    for command in fill(item.commands, {}):
        *most, last = shell_lines(command, indent=4)
        assert all(line.endswith(" \\") for line in most)
        words = [word for line in (*(line[:-2] for line in most), last) for word in _words(line)]
        assert words == _words(command)


def _words(line: str) -> List[str]:
    """Words of a line; a quote that is not closed in it is an error."""
    return shlex.split(line, comments=True)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: List[str] = []
        self.attributes: List[str] = []

    def handle_starttag(self, tag: str, attrs: List[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


ALLOWED_TAGS = {"div", "h3", "h4", "span", "p", "ul", "li", "pre", "code", "table", "tr", "th", "td"}
HOSTILE = '```<script>alert(1)</script><img src=x onerror="a"> & \'"\x1b[31m'


def test_html_escapes_everything() -> None:
    """Text from nodes, programs and people never becomes markup, in any field."""
    hostile = finding("pair-blocked", HOSTILE, summary=HOSTILE, evidence=[HOSTILE], commands=[HOSTILE])
    diagnosis = Diagnosis(
        verdict=Verdict.FAIL,
        causes=(dataclasses.replace(hostile, id=HOSTILE, remediation=HOSTILE),),
        consequences=(hostile,),
        candidates=(hostile,),
        next_command=HOSTILE,
        unanswered=(HOSTILE,),
        exposed=(HOSTILE,),
        nodes=(NodeVerdict(rank=0, name=HOSTILE, address=HOSTILE, verdict=Verdict.FAIL, note=HOSTILE),),
        pairs=(
            PairVerdict(source=0, destination=1, outcomes={HOSTILE: None}),
            PairVerdict(source=1, destination=0, outcomes={}),
        ),
    )
    page = render.html_report(diagnosis)
    tags = _Tags()
    tags.feed(page)
    assert set(tags.tags) <= ALLOWED_TAGS
    assert set(tags.attributes) <= {"style", "title"}
    assert "\x1b" not in page
    assert "\x1b" not in render.to_terminal(diagnosis)


def test_the_catalogue_reads_in_a_terminal() -> None:
    """`fullmesh causes` lists each once, `fullmesh causes ID` shows it in full."""
    listing = render.causes_text(CAUSES)
    assert all(f"  {item.id} " in listing for item in CAUSES)
    text = render.cause_text(CAUSES[0])
    assert text.startswith("sg-only-master-port\n")
    assert "Decided by: " in text


def test_what_was_left_out_on_purpose_is_said_everywhere() -> None:
    """A skipped question changes no verdict, and stands in each form of the answer."""
    passed = Diagnosis(verdict=Verdict.PASS, skipped=("cluster: no listener on MASTER_PORT",))
    assert json.loads(render.to_json(passed))["skipped"] == ["cluster: no listener on MASTER_PORT"]
    assert "Left out on purpose:\n  - cluster: no listener on MASTER_PORT" in render.to_terminal(passed)
    assert "Left out on purpose" in render.html_report(passed)
