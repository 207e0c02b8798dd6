"""Reviewed exceptions: differences that somebody has looked at and lets be, for a reason and until a day.

An exception that has expired accepts nothing any more, and one that matches nothing is stale:
both are findings, so that the file never says less than it seems to.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from audit.difference import Difference

KEYS = ("resource", "attribute", "expected", "actual", "reason", "reviewed_by", "expires")
NEEDED = ("resource", "attribute", "reason", "expires")
_RULE_ID = re.compile(r" \(sgr-[0-9a-z]+\)$")


class BaselineError(ValueError):
    """A file of exceptions cannot be used; says which entry and why."""


@dataclass(frozen=True)
class ReviewedException:
    """One exception. resource: a physical or a logical id. expected, actual: None = whatever it is.

    expires: the last day on which it holds.
    """

    resource: str
    attribute: str
    reason: str
    expires: datetime.date
    expected: Any = None
    actual: Any = None
    reviewed_by: str = ""

    def holds_for(self, item: Difference) -> bool:
        found = item.deviation
        return (
            self.resource in (found.resource, found.logical_id)
            and self.attribute == found.attribute
            and self.expected in (None, _stable(found.expected))
            and self.actual in (None, _stable(found.actual))
        )

    def __str__(self) -> str:
        return f"{self.resource}, {self.attribute}"


def _stable(value: Any) -> Any:
    """A value without the id that EC2 gave a rule: the same rule made again has another one."""
    return _RULE_ID.sub("", value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Baseline:
    """What a file of exceptions does to an audit.

    accepted: differences that an exception lets be, with it. problems: exceptions that expired or are
    stale.
    """

    accepted: tuple[tuple[Difference, ReviewedException], ...] = ()
    problems: tuple[str, ...] = ()
    remaining: tuple[Difference, ...] = field(default=())


def read(path: Path) -> tuple[ReviewedException, ...]:
    """The exceptions of a file: {"exceptions": [{resource, attribute, reason, expires, ...}]}.

    Raises:
        BaselineError: the file cannot be read, or an entry is not whole.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BaselineError(f"{path} is not JSON ({error})") from error
    listed = document.get("exceptions") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise BaselineError(f"{path} has no list 'exceptions'")
    return tuple(_entry(entry, f"{path}, exception {number}") for number, entry in enumerate(listed, 1))


def _entry(entry: Any, where: str) -> ReviewedException:
    if not isinstance(entry, dict):
        raise BaselineError(f"{where}: expected an object, got {entry!r}")
    unknown = sorted(set(entry) - set(KEYS))
    if unknown:
        raise BaselineError(f"{where}: {unknown[0]!r} is none of {', '.join(KEYS)}")
    for key in NEEDED:
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise BaselineError(
                f"{where}: {key} is {entry.get(key)!r}; an exception needs {', '.join(NEEDED)}"
            )
    try:
        expires = datetime.date.fromisoformat(entry["expires"])
    except ValueError:
        raise BaselineError(
            f"{where}: expires is {entry['expires']!r}, not a day such as 2027-01-31"
        ) from None
    return ReviewedException(**{**entry, "expires": expires})


def apply(
    exceptions: Sequence[ReviewedException], differences: Sequence[Difference], today: datetime.date
) -> Baseline:
    """Take out the differences that an exception in force lets be."""
    accepted: list[tuple[Difference, ReviewedException]] = []
    remaining: list[Difference] = []
    problems: dict[str, None] = {}
    used: set[int] = set()
    for item in differences:
        matching = [number for number, each in enumerate(exceptions) if each.holds_for(item)]
        used.update(matching)
        holding = next((exceptions[n] for n in matching if exceptions[n].expires >= today), None)
        if holding is not None:
            accepted.append((item, holding))
            continue
        remaining.append(item)
        for number in matching:
            each = exceptions[number]
            problems[
                f"the exception for {each} expired on {each.expires}: look at it again, or undo the change"
            ] = None
    for number, each in enumerate(exceptions):
        if number not in used:
            problems[
                f"the exception for {each} is stale: there is no such difference any more; remove it"
            ] = None
    return Baseline(accepted=tuple(accepted), problems=tuple(problems), remaining=tuple(remaining))


def record(path: Path, differences: Sequence[Difference], *, reason: str, expires: datetime.date) -> int:
    """Write every difference as an exception, beside those that the file holds. Returns how many are new.

    Raises:
        BaselineError: the file there is cannot be read.
        OSError: it cannot be written.
    """
    known = read(path) if path.exists() else ()
    fresh = [
        ReviewedException(
            resource=item.deviation.logical_id or item.deviation.resource,
            attribute=item.deviation.attribute,
            expected=_stable(item.deviation.expected),
            actual=_stable(item.deviation.actual),
            reason=reason,
            expires=expires,
        )
        for item in differences
        if not any(each.holds_for(item) for each in known)
    ]
    entries = [
        {key: value for key, value in asdict(each).items() if value not in (None, "")}
        for each in (*known, *fresh)
    ]
    text = json.dumps({"exceptions": entries}, indent=2, default=str)
    path.write_text(text + "\n", encoding="utf-8")
    return len(fresh)
