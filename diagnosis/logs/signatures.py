"""Messages of torch, Gloo and launchers, and what they mean: one row each, in the modules beside this one.

Patterns are compiled when their trigger first occurs: most logs need few of them.
"""

from __future__ import annotations

import functools
import re
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from diagnosis.logs import signatures_gloo as gloo
from diagnosis.logs import signatures_launch as launch
from diagnosis.logs import signatures_notes as notes
from diagnosis.logs import signatures_process as process
from diagnosis.logs import signatures_store as store
from diagnosis.logs.facts import compiled
from diagnosis.logs.kinds import FAILURES, Kind
from diagnosis.logs.signature import Signature

# Lines are compared without these first: lines that differ in numbers, addresses and ids alone are
# one line. Needles lose them too, so that nothing is missed; the line itself then decides.
DELETED = b"0123456789abcdefABCDEF"

# Work that can only go on when the ranks have met.
_PROGRESS = (
    r"(?i)\b(?:epoch|step|iter(?:ation)?)s?\b\W{0,4}\d+.{0,80}\b(?:loss|acc|it/s|s/it|lr|ppl|time)\b"
    r"|\b(?:train|test|valid)\w*\W{1,3}epoch\W{0,4}\d"
    r"|\b(?:epoch|step|iteration)\W{1,4}\d+\s*(?:/|of|:|$|-)"
    r"|\bloss\W{1,4}\d"
    r"|\btraining (?:\w+ )?(?:has )?started\b|\bstart(?:ed|ing) training\b"
    r"|\bRank \d+ is connected to (?P<peers>[1-9]\d*)\b(?!.{1,60} is ?: (?!(?P=peers)\b)\d)"
    r"|\ball distributed processes registered\b"
    r"|\b(?:process group|distributed|init_process_group|nccl|gloo)\b.{0,60}\b(?:initialized|initialised"
    r"|done|complete|ready|ok|succeeded)\b"
    r"|\binit complete\b|\binit\w* (?:is )?(?:done|ok|complete|succeeded)\b"
    r"|\bapplication startup complete\b|\bfired up and ready to roll\b|\bapi server\b.{0,40}\bstart"
    r"|\ball_?reduce\W{1,12}(?:ok|result|done|passed|=)"
    r"|\bsuccessfully (?:connected|initialized|initialised|joined)\b"
    r"|\ball (?:ranks|workers|nodes|peers)\b.{0,30}\b(?:ready|joined|connected|initialized|done|finished)\b"
)
_FINAL = (
    r"(?i)\b(?:training|job|run|fit|test|finetuning|script|program) (?:is |was |has )?"
    r"(?:complete|completed|finished|done|succeeded|successful)\b"
    r"|\b(?:finished|completed) (?:the )?(?:training|job|run|fit|finetuning)\b"
    r"|\b(?:finished|completed|exited) successfully\b|\bsuccessfully (?:finished|completed)\b"
    r"|\bjob\b.{0,40}\bsucceeded\b|`?Trainer\.fit`? stopped: `?max_|\btrain_runtime\b"
)
_DENIES = r"(?i)\b(?:not|fail\w*|error|errors|unable|cannot|never|without|before|wait\w*|until)\b"
PROGRESS_TRIGGERS: Tuple[bytes, ...] = (
    *(b"poch", b"POCH", b"step", b"Step", b"iter", b"Iter", b"loss", b"Loss", b"raining"),
    *(b"connected to", b"rocesses registered", b"init", b"istributed", b"rocess group", b"startup complete"),
    *(
        b"fired up",
        b"all_reduce",
        b"allreduce",
        b"uccessful",
        b"ucceeded",
        b"inished",
        b"ompleted",
        b"API server",
    ),
    *(b"all ranks", b"all workers", b"all nodes", b"all peers", b"ll ranks", b"run done", b"job done"),
    *(b"job complete", b"run complete", b"stopped: ", b"train_runtime"),
)

# An exception that no row knows: something failed, so that nothing may be called harmless.
ERROR_TRIGGERS: Tuple[bytes, ...] = (b"Error", b"Exception", b"Interrupt", b"Exit")
_OTHER_ERROR = (
    r"(?:^|[\s\]|:>])(?P<name>(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt"
    r"|Exit))\b(?::\s*(?P<text>\S.{0,200})|\s*$)"
)
# Of a line that says one of these the exception's name adds nothing.
_SAYS_ALL = (Kind.NOTE, Kind.NOISE, Kind.LOOPBACK_FALLBACK, Kind.BACKLOG)
_NOT_AN_ERROR = r"\b(?:Warning|FutureWarning|UserWarning)\b|^\s*(?:except|raise|File)\b"


def all_signatures() -> Tuple[Signature, ...]:
    """Every row."""
    return (*gloo.SIGNATURES, *store.SIGNATURES, *launch.SIGNATURES, *process.SIGNATURES, *notes.SIGNATURES)


def needle(literal: bytes) -> bytes:
    """A literal as it stands in a line of which `DELETED` was taken away."""
    return literal.translate(None, DELETED)


class Trigger(NamedTuple):
    """A literal, its needle, and what is read where it stands: rows, or progress, or another error."""

    literal: bytes
    needle: bytes
    rows: Tuple[Signature, ...]


@functools.lru_cache(maxsize=1)
def all_triggers() -> Tuple[Trigger, ...]:
    """Each literal once, with all rows that it stands for."""
    rows: Dict[bytes, List[Signature]] = {}
    for signature in all_signatures():
        rows.setdefault(signature.trigger.encode(), []).append(signature)
    for literal in (*PROGRESS_TRIGGERS, *ERROR_TRIGGERS):
        rows.setdefault(literal, [])
    return tuple(Trigger(literal, needle(literal), tuple(found)) for literal, found in rows.items())


_SHORTLY_BEFORE = 300
# Blanks around these are part of what was set wrongly.
_AS_PRINTED = ("host", "name")
Match = Tuple[Kind, Dict[str, str], int, int]


def read_text(text: str, signatures: Sequence[Signature]) -> List[Match]:
    """(kind, values, start, end) of everything that a message says."""
    found = _fullest(list(_known(text, signatures))) if signatures else []
    failed = any(match[0] in FAILURES for match in found)
    if not failed and any(word in text for word in ("Error", "Exception", "Interrupt", "Exit")):
        other = compiled(_OTHER_ERROR).search(text)
        known = any(match[0] in _SAYS_ALL for match in found)
        if other and not known and not compiled(_NOT_AN_ERROR).search(text):
            found.append((Kind.OTHER_ERROR, _values(other), other.start("name"), other.end()))
            failed = True
    if not failed:
        final = compiled(_FINAL).search(text)
        done = final or compiled(_PROGRESS).search(text)
        if done and not compiled(_DENIES).search(text):
            found.append((Kind.PROGRESS, {"final": "yes"} if final else {}, *done.span()))
    return found


def _fullest(matches: List[Match]) -> List[Match]:
    """Of two readings of one message the one that got more out of it."""
    if len(matches) < 2:
        return matches
    return [
        match
        for match in matches
        if not any(
            other[0] is match[0] and other[1] != match[1] and match[1].items() <= other[1].items()
            for other in matches
        )
    ]


def shows_progress(text: str) -> bool:
    """Whether a line is about work that needs the ranks to have met, and does not deny it."""
    return any(match[0] is Kind.PROGRESS for match in read_text(text, ()))


def _known(text: str, signatures: Sequence[Signature]) -> Iterator[Match]:
    taken = set()
    for signature in signatures:
        if signature.trigger not in text:
            continue
        for match in compiled(signature.pattern).finditer(text):
            near = text[max(0, match.start() - _SHORTLY_BEFORE) : match.end()]
            if signature.unless and compiled(signature.unless).search(near):
                continue
            values = {**signature.fixed, **_values(match)}
            if signature.says:
                values["says"] = signature.says
            key = (signature.kind, match.start() // 400, tuple(sorted(values.items())))
            if key not in taken:
                taken.add(key)
                yield signature.kind, values, match.start(), match.end()
            if not signature.every:
                break


def _values(match: re.Match[str]) -> Dict[str, str]:
    return {
        name: value.strip() if name not in _AS_PRINTED else value
        for name, value in match.groupdict().items()
        if value is not None
    }
