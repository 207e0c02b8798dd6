"""Texts as people paste them: written for these tests after public reports, with other names and words.

A file of `explain_texts` holds entries: `### what it is`, `= the answer`, and the text, of which each part
behind a line `--- NAME` is a log of its own. An answer is `cause@subject ...`, or `undetermined: ` and
the first candidate.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Dict, List, NamedTuple

import pytest

from diagnosis.catalogue.cause import SeenIn
from diagnosis.causes import CATALOGUE
from diagnosis.explain import explain
from diagnosis.logs.decide import Explanation, Outcome

FOLDER = Path(__file__).resolve().parent / "explain_texts"
EACH_CAUSE = 3


class Text(NamedTuple):
    name: str
    answer: str
    logs: Dict[str, bytes]


def texts() -> List[Text]:
    found: List[Text] = []
    for path in sorted(FOLDER.iterdir()):
        for entry in re.split(rb"^### ", path.read_bytes(), flags=re.MULTILINE)[1:]:
            name, answer, body = entry.split(b"\n", 2)
            parts = re.split(rb"^--- (\S+)\n", body, flags=re.MULTILINE)
            logs = dict(zip(parts[1::2], parts[2::2])) or {b"log": body}
            found.append(
                Text(
                    name=name.decode(),
                    answer=answer.decode().removeprefix("= "),
                    logs={file.decode(): log for file, log in logs.items()},
                )
            )
    return found


def answer_of(explanation: Explanation) -> str:
    if explanation.verdict is Outcome.UNDETERMINED:
        return f"undetermined: {explanation.candidates[0].id if explanation.candidates else '-'}"
    return " ".join(f"{item.id}@{item.subject}" for item in explanation.causes)


@pytest.mark.parametrize("text", texts(), ids=lambda text: text.name)
def test_a_text_has_its_answer(text: Text) -> None:
    """Exactly these causes at exactly these subjects, or the first of honest candidates."""
    answer = explain([(name, io.BytesIO(log)) for name, log in text.logs.items()])
    assert answer_of(answer) == text.answer
    assert (answer.verdict is Outcome.NO_FAULT) == text.answer.startswith("benign")


def test_names_are_not_used_twice() -> None:
    """A doubled entry would hide one of the two."""
    assert [name for name, count in Counter(text.name for text in texts()).items() if count > 1] == []


SHOWN_BY_LOGS = [
    item.id for item in CATALOGUE.values() if SeenIn.LOG in item.seen_in and item.id != "undetermined"
]


@pytest.mark.parametrize("cause", SHOWN_BY_LOGS)
def test_every_cause_that_a_log_shows_is_reached(cause: str) -> None:
    """At least three texts, worded differently, lead to each cause that is declared as seen in logs."""
    leading = [text for text in texts() if text.answer.split("@")[0] == cause]
    assert len(leading) >= EACH_CAUSE
