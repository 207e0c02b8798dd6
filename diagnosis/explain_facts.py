"""What lines of logs say: facts with the line that shows them, who printed it and when.

A fact is a message without its wording: a kind, the values in it, and its place. Everything is
bounded, so that a log of any length is read in constant memory.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, FrozenSet, Iterable, List, Optional, Pattern, Set, Tuple


class Kind(str, Enum):
    """The meaning of a message, whatever release or launcher worded it."""

    # Gloo's pairs and devices
    PAIR_ERROR = "pair error"  # a connection attempt between members failed: ip, port, error
    PAIR_HIDDEN = "pair no error"  # the same, with the error lost (torch before 2.8)
    PAIR_TIMEOUT = "pair time-out"  # nobody connected; the peer is not named
    MESH_FAILED = "mesh failed"
    PEER_CLOSED = "peer closed"
    PEER_RESET = "peer reset"
    PAIR_BROKEN = "pair broken"  # an established pair failed otherwise: error
    OPERATION_TIMEOUT = "operation time-out"
    ECHO = "echo"  # follows from an error elsewhere, by its own words
    SIZE_MISMATCH = "size mismatch"
    FINGERPRINT = "fingerprint mismatch"
    BARRIER_RANKS = "barrier ranks"  # monitored_barrier names the ranks
    INTERFACE = "interface not found"  # name
    NOT_LOCAL = "address not local"  # ip
    NAME_FAILED = "own name failed"
    LOOPBACK_FALLBACK = "loopback fallback"
    FAMILIES = "address families differ"
    SELF = "connect to self"
    GLOO_BIND = "gloo bind"
    RECORD = "record malformed"
    TRANSPORT = "transport unsupported"
    # the store
    STORE_TIMEOUT = "store time-out"  # host, port
    STORE_ERRNO = "store connect error"  # host, port, errno
    STORE_GAI = "store lookup failed"  # host, port, code
    STORE_JOINED = "store joined"  # joined, size
    STORE_BARRIER = "store barrier"  # rank, size, joined
    STORE_KEY = "store key missing"  # keys
    STORE_WAIT = "store wait timed out"
    STORE_CLOSED = "store closed"
    STORE_RESET = "store reset"
    STORE_STRANGER = "store answered strangely"
    PORT_TAKEN = "port taken"
    FILE_EXISTS = "store file exists"
    NOISE = "harmless"  # about IPv6 or reverse lookups
    # launchers, processes, the environment
    ENV_MISSING = "variable missing"  # name
    SETTING = "setting"  # name, value
    RUN_ID = "run id"  # value
    RENDEZVOUS = "rendezvous failed"  # error: Timeout, Connection, Closed
    RENDEZVOUS_DONE = "rendezvous done"  # host, port
    LOCAL_NODE = "local node"  # value
    MEMBER = "member"  # rank, size
    RANK_RANGE = "rank out of range"
    EXIT = "exit"  # code, and rank, host, time of the summary
    SIGNAL = "signal"
    SUMMARY = "summary field"
    MEMORY = "out of memory"
    FILES = "too many open files"
    LIBUV = "no libuv"
    PROXY = "proxy"
    FRAME = "frame"  # function
    OTHER_ERROR = "other error"
    PROGRESS = "progress"


@functools.cache
def compiled(pattern: str) -> Pattern[str]:
    """Patterns are compiled when first needed: a log needs few of them."""
    return re.compile(pattern)


@dataclass(frozen=True)
class Place:
    """One line of a log; `text` has no colours and is cut around what matters."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Fact:
    """at: seconds for ordering across files where the line has a time (see `time_of`)."""

    kind: Kind
    values: Dict[str, str]
    place: Place
    order: int
    rank: Optional[int] = None
    node: Optional[str] = None
    at: Optional[float] = None

    def get(self, name: str) -> str:
        return self.values.get(name) or ""

    def number(self, name: str) -> Optional[int]:
        text = self.get(name)
        # Not isdigit(): it also takes superscripts, which int() refuses; 18 digits fit everything.
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


_EACH_KIND = 2000  # facts of one kind that are kept: ranks of the largest jobs, each once


@dataclass
class Book:
    """All facts, in the order in which they were read."""

    facts: Dict[Kind, List[Fact]] = field(default_factory=dict)
    files: List[str] = field(default_factory=list)
    lines: int = 0
    began: Dict[Tuple[str, Optional[int]], float] = field(default_factory=dict)
    last_order: Dict[Kind, int] = field(default_factory=dict)
    nodes: Set[str] = field(default_factory=set)
    _seen: Set[Tuple[object, ...]] = field(default_factory=set)

    def add(self, fact: Fact) -> None:
        """Keep a fact once for each speaker and set of values."""
        self.last_order[fact.kind] = fact.order
        if fact.at is not None and len(self.began) < _EACH_KIND:
            self.began.setdefault((fact.place.file, fact.rank), fact.at)
        if fact.node is not None and len(self.nodes) < _EACH_KIND:
            self.nodes.add(fact.node)
        kept = self.facts.setdefault(fact.kind, [])
        key = (fact.kind, fact.place.file, fact.rank, fact.node, tuple(sorted(fact.values.items())))
        repeats = fact.kind is Kind.MEMBER  # a repeated rank is the point of it
        if len(kept) < _EACH_KIND and (repeats or key not in self._seen):
            self._seen.add(key)
            kept.append(fact)

    def full(self, kind: Kind) -> bool:
        """Whether more facts of a kind would not be kept."""
        return len(self.facts.get(kind, ())) >= _EACH_KIND

    def all(self, *kinds: Kind) -> List[Fact]:
        """Facts of these kinds, first ones first."""
        found = [fact for kind in kinds for fact in self.facts.get(kind, ())]
        return sorted(found, key=lambda fact: fact.order)

    def has(self, *kinds: Kind) -> bool:
        return any(self.facts.get(kind) for kind in kinds)

    def settings(self, name: str) -> List[Fact]:
        return [fact for fact in self.all(Kind.SETTING) if fact.get("name") == name]

    def progress_after(self, facts: Iterable[Fact]) -> Optional[Fact]:
        """A line that shows work going on behind the last of these facts."""
        last = max((self.last_order.get(fact.kind, fact.order) for fact in facts), default=0)
        return next((fact for fact in reversed(self.all(Kind.PROGRESS)) if fact.order > last), None)


FAILURES: FrozenSet[Kind] = frozenset(Kind) - {
    Kind.SETTING,
    Kind.RUN_ID,
    Kind.RENDEZVOUS_DONE,
    Kind.LOCAL_NODE,
    Kind.MEMBER,
    Kind.SUMMARY,
    Kind.FRAME,
    Kind.PROGRESS,
    Kind.NOISE,
    Kind.FILE_EXISTS,
    Kind.LOOPBACK_FALLBACK,
    Kind.PROXY,
}
# Printed at each attempt: with a success behind them they were no failure.
RETRIED: FrozenSet[Kind] = frozenset(
    (Kind.STORE_ERRNO, Kind.STORE_GAI, Kind.STORE_RESET, Kind.STORE_CLOSED, Kind.LOOPBACK_FALLBACK)
)

_RANK = (
    r"(?i)\[rank\s?(\d{1,6})\]|^\s*\[?rank\s?(\d{1,6})\b|^r(\d{1,6})[|:]|^\s*(\d{1,6}): |^\[1,(\d{1,6})\]<"
    r"|\[Rank (\d{1,6})\]|\brank=(\d{1,6}), size=|\bon rank:? (\d{1,6}), for key"
    r"|GLOBAL_RANK: (\d{1,6})\b|^(?:\S+ )?Rank (\d{1,6}) successfully reached"
)
_NODE = (
    r"\bpid=\d+, ip=([0-9A-Fa-f.:]{3,45})\)"  # Ray
    r"|^([\w.-]{1,60}) +\| "  # docker compose
    r"|^\[pod/([\w.-]{1,60})/"  # kubectl --prefix
    r"|^([a-z][\w.-]{0,60}\d|\d{1,3}(?:\.\d{1,3}){3}): "  # pdsh, as DeepSpeed runs it
    r"|^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([\w.-]{1,60}) "  # syslog
    r"|^==> (\S{1,120}) <=="  # tail of several files
)
_TIMES = (
    r"\[?[WEIFC](\d{1,2})(\d{2}) (\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)",
    r"\b\d{4}[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)",
    r"(?<![\d-])(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b",
)
_HEAD = 240  # prefixes stand at the head of a line; messages may quote times and ranks of others


def rank_of(text: str) -> Optional[int]:
    """The rank that printed the line, where its prefix or message says so."""
    found = compiled(_RANK).search(text[:_HEAD])
    return int(next(group for group in found.groups() if group is not None)) if found else None


def node_of(text: str) -> Optional[str]:
    """The host that printed the line, where its prefix says so."""
    found = compiled(_NODE).search(text[:_HEAD])
    return next(group for group in found.groups() if group is not None) if found else None


def time_of(text: str) -> Optional[float]:
    """Seconds since a year's begin, months of 31 days: for comparing, never for showing.

    c10d's own prefix has no year, so that no year is used at all.
    """
    for pattern in _TIMES:
        found = compiled(pattern).search(text[:_HEAD])
        if found:
            month, day, hour, minute = (int(part) for part in found.groups()[:4])
            second = float(found.group(5).replace(",", "."))
            return (((month * 31.0 + day) * 24 + hour) * 60 + minute) * 60 + second
    return None
