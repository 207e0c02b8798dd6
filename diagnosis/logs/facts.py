"""What lines of logs say: facts with the line that shows them, who printed it and when.

A fact is a message without its wording: a kind, the values in it, and its place. Everything is
bounded, so that a log of any length is read in constant memory. Named tuples and plain classes
here and in the modules beside it: `fullmesh explain` starts as fast as a bare Python, and the
machinery of dataclasses alone takes a fifth of its start.
"""

from __future__ import annotations

import functools
import re
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Pattern, Set, Tuple

from diagnosis.logs.kinds import Kind


@functools.lru_cache(maxsize=None)  # noqa: UP033 - functools.cache is as new as Python 3.9 itself
def compiled(pattern: str) -> Pattern[str]:
    """Patterns are compiled when first needed: a log needs few of them."""
    return re.compile(pattern)


class Place(NamedTuple):
    """One line of a log; `text` has no colours and is cut around what matters."""

    file: str
    line: int
    text: str


class Fact(NamedTuple):
    """at: seconds for ordering across files where the line has a time (see `head`).

    rest: the line's continuation, where the log was wrapped. quiet_s: seconds between the line and
    the one before it.
    """

    kind: Kind
    values: Dict[str, str]
    place: Place
    order: int
    rank: Optional[int] = None
    node: Optional[str] = None
    at: Optional[float] = None
    rest: Optional[Place] = None
    quiet_s: Optional[float] = None

    def get(self, name: str) -> str:
        return self.values.get(name) or ""

    def number(self, name: str) -> Optional[int]:
        text = self.get(name)
        # Not isdigit(): it also takes superscripts, which int() refuses; 18 digits fit everything.
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None

    @property
    def places(self) -> Tuple[Place, ...]:
        return (self.place,) if self.rest is None else (self.place, self.rest)

    @property
    def speaker(self) -> Tuple[str, Optional[int], Optional[str]]:
        """Who printed it, as far as the log tells: file, rank, node."""
        return self.place.file, self.rank, self.node


EACH_KIND = 2000  # facts of one kind that are kept: ranks of the largest jobs, each once


class Book:
    """All facts, in the order in which they were read.

    unread: (log, why) of what could not be read to its end. kept: how many facts, progress aside.
    last_order: of each kind the order of its last line, kept or not.
    """

    def __init__(self) -> None:
        self.facts: Dict[Kind, List[Fact]] = {}
        self.files: List[str] = []
        self.unread: List[Tuple[str, str]] = []
        self.lines = 0
        self.kept = 0
        self.first_at: Dict[str, float] = {}  # when a file begins
        self.began: Dict[Tuple[str, Optional[int]], float] = {}
        self.last_order: Dict[Kind, int] = {}
        self.nodes: Set[str] = set()
        self._seen: Set[Tuple[object, ...]] = set()

    def add(self, fact: Fact) -> None:
        """Keep a fact once for each speaker and set of values."""
        last = self.last_order.get(fact.kind, 0)
        self.last_order[fact.kind] = max(last, fact.order)
        if fact.at is not None and len(self.began) < EACH_KIND:
            self.began.setdefault((fact.place.file, fact.rank), fact.at)
        if fact.node is not None and len(self.nodes) < EACH_KIND:
            self.nodes.add(fact.node)
        kept = self.facts.setdefault(fact.kind, [])
        if fact.kind is Kind.PROGRESS:
            self._keep_progress(kept, fact)
            return
        if len(kept) >= EACH_KIND:
            return
        key = (fact.kind, *fact.speaker, tuple(sorted(fact.values.items())))
        repeats = fact.kind is Kind.MEMBER  # a repeated rank is the point of it
        if not repeats and key in self._seen:
            return
        self._seen.add(key)
        kept.append(fact)
        self.kept += 1

    @staticmethod
    def _keep_progress(kept: List[Fact], fact: Fact) -> None:
        """What matters is the first, the last, and the first that says that all ended well."""
        facts = sorted([*kept, fact], key=lambda one: one.order)
        final = next((one for one in facts if one.get("final")), facts[0])
        kept[:] = sorted(
            {one.order: one for one in (facts[0], final, facts[-1])}.values(), key=lambda one: one.order
        )

    def all(self, *kinds: Kind) -> List[Fact]:
        """Facts of these kinds, first ones first."""
        found = [fact for kind in kinds for fact in self.facts.get(kind, ())]
        return sorted(found, key=lambda fact: fact.order)

    def has(self, *kinds: Kind) -> bool:
        return any(self.facts.get(kind) for kind in kinds)

    def some(self, kinds: FrozenSet[Kind]) -> bool:
        return any(self.facts.get(kind) for kind in kinds)

    def settings(self, name: str) -> List[Fact]:
        return [fact for fact in self.all(Kind.SETTING) if fact.get("name") == name]

    def progress_after(self, facts: Iterable[Fact]) -> Optional[Fact]:
        """A line that shows work going on behind the last of these facts."""
        last = max((self.last_order.get(fact.kind, fact.order) for fact in facts), default=0)
        return next((fact for fact in reversed(self.all(Kind.PROGRESS)) if fact.order > last), None)

    @property
    def finished(self) -> Optional[Fact]:
        """The line that says that the job ended well."""
        return next((fact for fact in self.all(Kind.PROGRESS) if fact.get("final")), None)
