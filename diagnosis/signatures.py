"""Messages of torch, Gloo and launchers, and what they mean: one declaration each.

A signature has a trigger (a literal that the message always holds), and a pattern that takes
the values out. Patterns are compiled when their trigger first occurs: most logs need few of
them. `GATES` are the few literals looked for in each chunk of a log; every trigger holds one.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Sequence, Tuple

from diagnosis.explain_facts import FAILURES, Kind, compiled


@dataclass(frozen=True)
class Signature:
    """One message. Patterns must be linear: whoever wrote the log chose the text.

    gate: a literal of GATES that such a line holds, where the trigger does not hold one itself.
    every: all matches of a line count, not the first alone.
    fixed: values that the wording implies.
    """

    kind: Kind
    trigger: str
    pattern: str
    gate: str = ""
    every: bool = False
    fixed: Dict[str, str] = field(default_factory=dict)


# A line without any of these is skipped: every trigger holds one (a test sees to it).
# No digits: lines are compared without them first.
GATES: Tuple[bytes, ...] = (
    b"rror",
    b"onnect",
    b"imed out",
    b"imeout",
    b"ailed",
    b"nable to",
    b"lready",
    b"ocket",
    b"gloo",
    b"nforce",
    b"GLOO_",
    b"MASTER_",
    b"master",
    b"rdzv",
    b"run_id",
    b"nnodes",
    b"--dist",
    b"srun",
    b"nodes seen",
    b"IP address of",
    b"WORLD_SIZE",
    b"GLOBAL_RANK",
    b"SO_ERROR",
    b"     : ",
    b"exitcode",
    b"ignal",
    b"DUE TO",
    b"egmentation",
    b"emory",
    b"OOMKilled",
    b"oom-kill",
    b"oom_kill",
    b"open files",
    b"new_group",
    b"Broken pipe",
    b"invalid command",
    b"libuv",
    b"xception",
    b"no heartbeat",
    b"ollectives",
    b"monitoredBarrier",
    b"but not set",
    b"annot resolve",
    b"is corrupt",
    b"same model",
    b"istio",
    b"envoy",
    b"<==",
)

# Parts of single words: a chunk none of whose words holds one is skipped before the gates are looked
# for. Looking at words is cheap, as a log has few different ones; every message holds one of these.
WORDS: Tuple[bytes, ...] = (
    b"rror",
    b"onnect",
    b"imed",
    b"imeout",
    b"ailed",
    b"nable",
    b"annot",
    b"lready",
    b"ocket",
    b"gloo",
    b"nforce",
    b"GLOO_",
    b"MASTER_",
    b"master",
    b"rdzv",
    b"run_id",
    b"nnodes",
    b"--dist",
    b"srun",
    b"seen:",
    b"address",
    b"WORLD_SIZE",
    b"GLOBAL_RANK",
    b"SO_ERROR",
    b"exitcode",
    b"ignal",
    b"DUE",
    b"egmentation",
    b"illed",
    b"allocate",
    b"xceeded",
    b"OOM",
    b"oom-kill",
    b"oom_kill",
    b"many",
    b"new_group",
    b"Broken",
    b"invalid",
    b"libuv",
    b"xception",
    b"heartbeat",
    b"ollectives",
    b"monitoredBarrier",
    b"expected",
    b"corrupt",
    b"expects",
    b"istio",
    b"envoy",
    b"<==",
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
    r"|\btraining (?:\w+ )?(?:has )?(?:started|complete|completed|finished|done)\b|\bstart(?:ed"
    r"|ing) training\b"
    r"|\b(?:training|job|run|test) (?:completed|finished|succeeded|successful)"
    r"|\b(?:finished|completed) successfully\b"
    r"|\bRank \d+ is connected to [1-9]\d* peer|\bRank \d+ is connected to [1-9]"
    r"|\ball distributed processes registered\b"
    r"|\b(?:process group|distributed|init_process_group|nccl|gloo)\b.{0,60}\b(?:initialized|initialised"
    r"|done|"
    r"complete|ready|ok|succeeded)\b"
    r"|\binit complete\b|\binit\w* (?:is )?(?:done|ok|complete|succeeded)\b"
    r"|\bapplication startup complete\b|\bfired up and ready to roll\b|\bapi server\b.{0,40}\bstart"
    r"|\ball_?reduce\W{1,12}(?:ok|result|done|passed|=)"
    r"|\bjob\b.{0,40}\bsucceeded\b|\bsuccessfully (?:connected|initialized|initialised|joined|finished)\b"
    r"|\ball (?:ranks|workers|nodes|peers)\b.{0,30}\b(?:ready|joined|connected|initialized|done|finished)\b"
)
_DENIES = r"(?i)\b(?:not|fail\w*|error\w*|unable|cannot|never|without|before)\b"

# A line that may hold an exception, whose own name is not known.
ERROR_WORDS: Tuple[bytes, ...] = (b"Error", b"Exception", b"Interrupt")
# An exception that no signature knows: something failed, so that nothing may be called harmless.
_OTHER_ERROR = (
    r"(?:^|[\s\]|:>])(?P<name>(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt"
    r"|Exit))\b(?::\s*(?P<text>\S.{0,200})|\s*$)"
)
_NOT_AN_ERROR = r"\b(?:Warning|FutureWarning|UserWarning)\b|^\s*(?:except|raise|File)\b"


@functools.lru_cache(maxsize=1)
def all_signatures() -> Tuple[Signature, ...]:
    """Every declaration. Imported here, as the modules of declarations need this one."""
    from diagnosis.signatures_gloo import SIGNATURES as gloo  # noqa: PLC0415
    from diagnosis.signatures_launch import SIGNATURES as launch  # noqa: PLC0415
    from diagnosis.signatures_store import SIGNATURES as store  # noqa: PLC0415

    return (*gloo, *store, *launch)


@functools.lru_cache(maxsize=1)
def triggers_by_gate() -> Dict[bytes, Tuple[Tuple[bytes, Signature], ...]]:
    """Of each gate the (trigger, signature)s that it stands for."""
    table: Dict[bytes, List[Tuple[bytes, Signature]]] = {gate: [] for gate in GATES}
    for signature in all_signatures():
        trigger = signature.trigger.encode()
        named = signature.gate.encode()
        table[named or next(gate for gate in GATES if gate in trigger)].append((trigger, signature))
    return {gate: tuple(found) for gate, found in table.items()}


Match = Tuple[Kind, Dict[str, str], int, int]


def read_text(text: str, signatures: Sequence[Signature]) -> List[Match]:
    """(kind, values, start, end) of everything that a message says."""
    found = _fullest(list(_known(text, signatures)))
    if not any(match[0] in FAILURES for match in found):
        other = compiled(_OTHER_ERROR).search(text) if "rror" in text or "xception" in text else None
        if other and not compiled(_NOT_AN_ERROR).search(text):
            found.append((Kind.OTHER_ERROR, _values(other), other.start("name"), other.end()))
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
    return bool(compiled(PROGRESS).search(text)) and not compiled(_DENIES).search(text)


def _known(text: str, signatures: Sequence[Signature]) -> Iterator[Match]:
    taken = set()
    for signature in signatures:
        if signature.trigger not in text:
            continue
        for match in compiled(signature.pattern).finditer(text):
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
