"""Messages of torch, Gloo and launchers, and what they mean: one declaration each.

A signature has a trigger (a literal that the message always holds), and a pattern that takes
the values out. Patterns are compiled when their trigger first occurs: most logs need few of
them. `GATES` are the few literals looked for in each chunk of a log; every trigger holds one.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Pattern, Tuple

from diagnosis.explain_facts import FAILURES, Kind


@dataclass(frozen=True)
class Signature:
    """One message. Patterns must be linear: whoever wrote the log chose the text.

    every: all matches of a line count, not the first alone.
    fixed: values that the wording implies.
    """

    kind: Kind
    trigger: str
    pattern: str
    every: bool = False
    fixed: Dict[str, str] = field(default_factory=dict)


@functools.cache
def _compiled(pattern: str) -> Pattern[str]:
    return re.compile(pattern)


# A chunk without any of these is skipped, a line too: every trigger holds one (a test sees to it).
GATES: Tuple[bytes, ...] = (
    b"rror",
    b"xcept",
    b"ailed",
    b"Gloo",
    b"gloo",
    b"GLOO",
    b"imed out",
    b"imeout",
    b"nable to",
    b"onnect",
    b"listening",
    b"already",
    b"emory",
    b"MASTER",
    b"master",
    b"WORLD_SIZE",
    b"nnodes",
    b"rdzv",
    b"run_id",
    b"endezvous",
    b"--dist",
    b"srun",
    b"ignal",
    b"SIG",
    b"SO_ERROR",
    b"rrno",
    b"exitcode",
    b"GLOBAL_RANK",
    b", in ",
    b"new_group",
    b"rank",
    b"host ",
    b"time ",
    b"pipe",
    b"The node",
    b"nodes seen",
    b"DUE TO",
    b"open files",
    b"fault",
    b"Transport",
    b"ddress",
    b"shut",
    b"hostname",
    b"cannot be",
    b"EADDRINUSE",
    b"heartbeat",
    b"members to join",
    b"ss_family",
    b"sizeof",
    b"Remaining",
    b"rv == 0",
    b"op.preamble",
    b"Received data",
    b"ollectives",
    b"aiting",
    b"monitoredBarrier",
    b"expects same",
    b"transport",
    b"bind(2)",
    b"interface for",
    b"to self",
    b"store ",
    b"is corrupt",
    b"command",
    b"libuv",
    b"oom",
    b"OOM",
    b"expected, but",
)

PROGRESS_WORDS: Tuple[bytes, ...] = (
    b"poch",
    b"step",
    b"iter",
    b"loss",
    b"connected to",
    b"omplete",
    b"inished",
    b"ucce",
    b"startup",
    b"done",
    b"egistered",
    b"nitialized",
    b"ready",
    b"all_reduce",
    b"started",
)
# Work that can only go on when the ranks have met.
PROGRESS = (
    r"(?i)\b(?:epoch|step|iter(?:ation)?)s?\b\W{0,4}\d+.{0,80}\b(?:loss|acc|it/s|s/it|lr|ppl|time)\b"
    r"|\b(?:train|test|valid)\w*\W{1,3}epoch\W{0,4}\d"
    r"|\b(?:epoch|step|iteration)\W{1,4}\d+\s*(?:/|of|:|$|-)"
    r"|\bloss\W{1,4}\d"
    r"|\btraining (?:\w+ )?(?:has )?(?:started|complete|completed|finished|done)\b|\bstart(?:ed|ing) training\b"
    r"|\b(?:training|job|run|test) (?:completed|finished|succeeded|successful)"
    r"|\b(?:finished|completed) successfully\b"
    r"|\bRank \d+ is connected to [1-9]\d* peer|\bRank \d+ is connected to [1-9]"
    r"|\ball distributed processes registered\b"
    r"|\b(?:process group|distributed|init_process_group|nccl|gloo)\b.{0,60}\b(?:initialized|initialised|done|"
    r"complete|ready|ok|succeeded)\b"
    r"|\binit complete\b|\binit\w* (?:is )?(?:done|ok|complete|succeeded)\b"
    r"|\bapplication startup complete\b|\bfired up and ready to roll\b|\bapi server\b.{0,40}\bstart"
    r"|\ball_?reduce\W{1,12}(?:ok|result|done|passed|=)"
    r"|\bjob\b.{0,40}\bsucceeded\b|\bsuccessfully (?:connected|initialized|initialised|joined|finished)\b"
    r"|\ball (?:ranks|workers|nodes|peers)\b.{0,30}\b(?:ready|joined|connected|initialized|done|finished)\b"
)
_DENIES = r"(?i)\b(?:not|fail\w*|error\w*|unable|cannot|never|without|before)\b"

# An exception that no signature knows: something failed, so that nothing may be called harmless.
_OTHER_ERROR = r"(?:^|[\s\]|:>])(?P<name>(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit))\b(?::\s*(?P<text>\S.{0,200})|\s*$)"
_NOT_AN_ERROR = r"\b(?:Warning|FutureWarning|UserWarning)\b|^\s*(?:except|raise|File)\b"


@functools.lru_cache(maxsize=1)
def _signatures() -> Tuple[Signature, ...]:
    # At the first line and not at import: help and usage need none of them.
    from diagnosis.signatures_gloo import SIGNATURES as gloo  # noqa: PLC0415
    from diagnosis.signatures_launch import SIGNATURES as launch  # noqa: PLC0415
    from diagnosis.signatures_store import SIGNATURES as store  # noqa: PLC0415

    return (*gloo, *store, *launch)


Match = Tuple[Kind, Dict[str, str], int, int]


def read_line(text: str) -> List[Match]:
    """(kind, values, start, end) of everything that a line says."""
    found: List[Match] = list(_known(text))
    if not any(match[0] in FAILURES for match in found) and ("Error" in text or "xception" in text):
        other = _compiled(_OTHER_ERROR).search(text)
        if other and not _compiled(_NOT_AN_ERROR).search(text):
            found.append((Kind.OTHER_ERROR, _values(other), other.start("name"), other.end()))
    return found


def shows_progress(text: str) -> bool:
    """Whether a line is about work that needs the ranks to have met, and does not deny it."""
    return bool(_compiled(PROGRESS).search(text)) and not _compiled(_DENIES).search(text)


def _known(text: str) -> Iterator[Match]:
    taken = set()
    for signature in _signatures():
        if signature.trigger not in text:
            continue
        for match in _compiled(signature.pattern).finditer(text):
            values = {**signature.fixed, **_values(match)}
            key = (signature.kind, match.start() // 400, tuple(sorted(values.items())))
            if key not in taken:
                taken.add(key)
                yield signature.kind, values, match.start(), match.end()
            if not signature.every:
                break


def _values(match: re.Match[str]) -> Dict[str, str]:
    return {
        name: value.strip() if name != "host" else value
        for name, value in match.groupdict().items()
        if value is not None
    }
