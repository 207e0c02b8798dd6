"""Every known message of torch, Gloo and torchrun, in the surroundings in which people paste it.

`explain_messages.tsv` holds each message with values filled in, the first cause that it shows alone (or
`undetermined`), the first candidate then, and why. So it also says which messages are decisive.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from diagnosis.explain import explain
from diagnosis.logs.decide import Outcome

TABLE = Path(__file__).resolve().parent / "explain_messages.tsv"


def rows() -> List[Dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def ray(lines: List[str]) -> str:
    frame = '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 81, in f'
    prefix = "(RayWorkerWrapper pid=911, ip=10.0.3.9) "
    return "\n".join(prefix + line for line in ["Traceback (most recent call last):", frame, *lines])


def torchrun(lines: List[str]) -> str:
    greeting = [
        "W0101 10:00:00.000 torch/distributed/run.py:876] *****************************************",
        "[rank1]: loading the data set from /data (cached)",
    ]
    return "\n".join([*greeting, *("[default1]:[rank1]: " + line for line in lines)])


def collector(lines: List[str]) -> str:
    event = {"timestamp": 1767225600123, "message": "\n".join(lines), "ingestionTime": 1767225601000}
    return json.dumps({"events": [event]})


def compose(lines: List[str]) -> str:
    return "".join(f"\x1b[36mtrainer-1  |\x1b[0m {line}\r\n" for line in lines)


def kubectl(lines: List[str]) -> str:
    return "\n".join("2026-01-01T10:00:00.120334512Z " + line for line in lines)


def quoted(lines: List[str]) -> str:
    text = "\n".join(["I get this:", "```", *lines, "```"])
    return "\n".join("&gt; " + line.replace("<", "&lt;").replace('"', "&quot;") for line in text.splitlines())


SURROUNDINGS: List[Callable[[List[str]], str]] = [
    "\n".join,
    ray,
    torchrun,
    collector,
    compose,
    kubectl,
    quoted,
]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["message"][:60])
def test_a_message_leads_to_its_cause(row: Dict[str, str]) -> None:
    """The same first cause, or the same honest candidates, whoever carried the message."""
    lines = row["message"].replace("\\n", "\n").replace("\\t", "\t").split("\n")
    for surround in SURROUNDINGS:
        answer = explain([("log", io.BytesIO(surround(lines).encode()))])
        found = "undetermined" if answer.verdict is Outcome.UNDETERMINED else answer.causes[0].id
        first = answer.candidates[0].id if answer.candidates else ""
        assert found in row["expected"].split("|"), surround
        assert found != "undetermined" or first == row["first candidate"], surround
        assert found.startswith("benign") == (answer.verdict is Outcome.NO_FAULT)


def test_the_table_is_whole() -> None:
    """151 messages, each with a reason, and no message twice."""
    table = rows()
    assert len({row["message"] for row in table}) == len(table) == 151
    assert all(row["why"] for row in table)
