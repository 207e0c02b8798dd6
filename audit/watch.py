"""Audit again and again, and say only what changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from audit.answer import Audit
from audit.difference import Difference, Key

LEAST_S = 10
"""An audit is some twenty calls; more often would take its share of the account's request rate."""


def watch(
    look: Callable[[], Audit],
    say: Callable[[str], None],
    *,
    interval_s: float,
    as_json: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
    rounds: int | None = None,
) -> Audit:
    """Look every `interval_s` seconds until interrupted, and say each change in a line.

    rounds: how often to look; None = until KeyboardInterrupt. Returns the last audit.

    Raises:
        KeyboardInterrupt: before the first audit was whole.
    """
    last: Audit | None = None
    seen: dict[Key, str] = {}
    number = 0
    while True:
        try:
            found = look()
            now = lines(found)
            for text in _changes(last, found, seen, now, clock(), as_json=as_json):
                say(text)
            last, seen, number = found, now, number + 1
            if number == rounds:
                return found
            sleep(interval_s)
        except KeyboardInterrupt:
            if last is None:
                raise
            return last


def lines(found: Audit) -> dict[Key, str]:
    """Everything there is to say, by what makes it the same the next time."""
    said = {item.deviation.key: _words(item) for item in found.differences}
    said.update({("exposed", line, ""): f"exposed: {line}" for line in found.exposed_lines})
    said.update({("unanswered", line, ""): f"not answered: {line}" for line in found.unanswered})
    said.update({("baseline", line, ""): line for line in found.baseline_problems})
    for item in found.findings.causes:
        said["cause", item.id, item.subject] = f"{item.id} ({item.subject}): {item.summary}"
    return said


def _words(item: Difference) -> str:
    told = item.deviation
    return f"{item.meaning.value}: {told.resource}, {told.attribute}: {item.detail}"


def _changes(
    last: Audit | None,
    found: Audit,
    before: dict[Key, str],
    now: dict[Key, str],
    at_s: float,
    *,
    as_json: bool,
) -> list[str]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
    events = [("+", text) for key, text in now.items() if before.get(key) != text]
    events += [("-", text) for key, text in before.items() if key not in now]
    if last is None or last.verdict is not found.verdict:
        events.insert(0, ("=", found.verdict.value))
    if as_json:
        words = {"+": "appeared", "-": "gone", "=": "verdict"}
        return [json.dumps({"at": moment, "kind": words[sign], "text": text}) + "\n" for sign, text in events]
    return [f"{moment} {sign} {text}\n" for sign, text in events]
