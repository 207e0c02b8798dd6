"""Reviewed exceptions: what they let be, and when they are findings themselves."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from audit import baseline
from audit.baseline import BaselineError
from audit.difference import Deviation, Difference, Meaning

TODAY = datetime.date(2026, 12, 1)
RULE = {"resource": "MemberGroup", "attribute": "ingress rule", "reason": "bastion", "expires": "2026-12-31"}


def difference(
    attribute: str = "ingress rule", actual: Any = "tcp 22 from 10.0.0.0/8 (sgr-0a1)"
) -> Difference:
    told = Deviation(
        resource="sg-1",
        logical_id="MemberGroup",
        attribute=attribute,
        expected=None,
        actual=actual,
        why="w",
    )
    return Difference(deviation=told, meaning=Meaning.OPENS_CLUSTER, detail="d")


def written(path: Path, *entries: dict[str, Any]) -> Path:
    file = path / "exceptions.json"
    file.write_text(json.dumps({"exceptions": list(entries)}))
    return file


@pytest.mark.parametrize(
    ("entry", "accepted"),
    [
        (RULE, True),
        ({**RULE, "resource": "sg-1"}, True),
        ({**RULE, "actual": "tcp 22 from 10.0.0.0/8"}, True),
        ({**RULE, "actual": "tcp 23 from 10.0.0.0/8"}, False),
        ({**RULE, "attribute": "egress rule"}, False),
        ({**RULE, "resource": "sg-2"}, False),
        ({**RULE, "expires": "2026-12-01"}, True),
    ],
)
def test_an_exception_lets_be_what_it_describes(
    tmp_path: Path, entry: dict[str, Any], accepted: bool
) -> None:
    """By logical or physical id, attribute, and value where it is told, whatever the rule's own id."""
    found = baseline.apply(baseline.read(written(tmp_path, entry)), [difference()], TODAY)
    assert (len(found.accepted), len(found.remaining)) == ((1, 0) if accepted else (0, 1))
    assert bool(found.problems) is not accepted


def test_an_exception_that_expired_accepts_nothing_and_is_told(tmp_path: Path) -> None:
    """The difference counts again, and the file is to be looked at."""
    file = written(tmp_path, {**RULE, "expires": "2026-11-30"})
    found = baseline.apply(baseline.read(file), [difference()], TODAY)
    assert (found.accepted, len(found.remaining)) == ((), 1)
    assert found.problems[0].startswith("the exception for MemberGroup, ingress rule expired on 2026-11-30")


def test_an_exception_for_what_is_no_more_is_stale(tmp_path: Path) -> None:
    """Or it would silently accept the same change when somebody makes it again."""
    found = baseline.apply(baseline.read(written(tmp_path, RULE)), [], TODAY)
    assert [text.partition(": there is")[0] for text in found.problems] == [
        "the exception for MemberGroup, ingress rule is stale"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "has no list 'exceptions'"),
        ("{", "is not JSON"),
        (json.dumps({"exceptions": ["all"]}), "exception 1: expected an object"),
        (json.dumps({"exceptions": [{**RULE, "reason": " "}]}), "exception 1: reason is ' '"),
        (json.dumps({"exceptions": [RULE, {**RULE, "expires": "soon"}]}), "exception 2: expires is 'soon'"),
        (json.dumps({"exceptions": [{**RULE, "until": "2027"}]}), "'until' is none of resource, attribute"),
        (json.dumps({"exceptions": [{"resource": "sg-1"}]}), "attribute is None"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """An exception without a reason or an end is none."""
    file = tmp_path / "exceptions.json"
    file.write_text(text)
    with pytest.raises(BaselineError, match=r"exception|JSON") as raised:
        baseline.read(file)
    assert says in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A mistyped name must not mean that there are no exceptions."""
    with pytest.raises(BaselineError, match="cannot be read"):
        baseline.read(tmp_path / "none.json")


def test_what_was_recorded_is_accepted(tmp_path: Path) -> None:
    """Each difference once, beside what the file held; again is nothing new."""
    file = written(tmp_path, RULE)
    both = [difference(), difference("tags", {"a": "b"})]
    expires = datetime.date(2027, 1, 31)
    assert baseline.record(file, both, reason="reviewed", expires=expires) == 1
    assert baseline.record(file, both, reason="reviewed", expires=expires) == 0
    found = baseline.apply(baseline.read(file), both, TODAY)
    assert (len(found.accepted), found.remaining, found.problems) == (2, (), ())
