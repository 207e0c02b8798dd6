"""What the ranks' own errors say, read by the same reader as `fullmesh explain` reads logs.

Text tells what a rank suffered; it decides only what nothing that was seen contradicts. Addresses
and ports are turned into members: Gloo prints ports with their bytes swapped.
"""

from __future__ import annotations

import datetime
import functools
import io
import re
from typing import Dict, List, Optional, Tuple

from diagnosis.case import Case
from diagnosis.catalogue.cause import ABSENCE_ECHOES, Group
from diagnosis.causes import cause, finding
from diagnosis.job.ranks import Job, Rank
from diagnosis.logs.claims import real_port
from diagnosis.logs.decide import Explained, Explanation, Outcome, decide
from diagnosis.logs.facts import Book, Fact, Place
from diagnosis.logs.kinds import Kind
from diagnosis.logs.read import read_log
from diagnosis.membership import is_loopback
from diagnosis.report import Finding

# What a rank says that waited for another one, whatever happened to that one.
ECHOES = (*ABSENCE_ECHOES, "peer-late", "timeout-too-short", "group-mismatch")
# c10d's own prefix: a local time without a year, and the rank.
_C10D_PREFIX = re.compile(r"^(?:\[rank\d+\]:)?\[([WEIFC])\d{4} \d\d:\d\d:\d\d(?:\.\d+)? ")
_PEER = re.compile(r"\[([0-9A-Fa-f.:]{3,45})\]:(\d{1,5})")
_BY_GLOO = re.compile(r"gloo/|SO_ERROR")
_OWN_HEAD = re.compile(r"^(?:[\d-]+ [\d:.]+ )?\[rank\d+\] ")
_LOST = (Kind.PEER_CLOSED, Kind.PEER_RESET)
_STORE_LOST = (Kind.STORE_CLOSED, Kind.STORE_RESET)


class Words:
    """All that the failed ranks printed, read once."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._case: Case = job.case
        self._by_file = {_file(self._case, rank): rank for rank in job.failed}
        self._addresses: Dict[str, int] = {}
        for place, member in enumerate(self._case.members):
            self._addresses.setdefault(member.address, place)

    @functools.cached_property
    def book(self) -> Book:
        book = Book()
        for name, rank in self._by_file.items():
            read_log(book, name, io.BytesIO(_text(self._case, rank)))
        return book

    @functools.cached_property
    def explanation(self) -> Explanation:
        return decide(self.book)

    # --- who was lost ----------------------------------------------------------------------------

    @functools.cached_property
    def _losses(self) -> Tuple[Tuple[float, int, Fact], ...]:
        """(when, whom, the fact) of every loss that names another member, the earliest first."""
        found = []
        for fact in self.book.all(*_LOST):
            place = self._addresses.get(fact.get("ip"))
            speaker = self._by_file[fact.place.file]
            if place is not None and place != speaker.place and not is_loopback(fact.get("ip")):
                found.append((_ended_at(speaker), place, fact))
        return tuple(sorted(found, key=lambda item: (item[0], item[2].order)))

    @property
    def first_lost(self) -> Optional[int]:
        """The member that somebody lost before any other was lost."""
        return self._losses[0][1] if self._losses else None

    @property
    def first_lost_at(self) -> Optional[float]:
        return self._losses[0][0] if self._losses else None

    def store_losses(self) -> Tuple[str, ...]:
        """What members said that lost the store, one line a member."""
        facts = {fact.place.file: fact for fact in reversed(self.book.all(*_STORE_LOST))}
        return tuple(self._line(facts[name].place) for name in sorted(facts))

    def losses_of(self, place: int) -> Tuple[str, ...]:
        return tuple(self._line(fact.place) for _, lost, fact in self._losses if lost == place)

    def losses_after(self, at_s: Optional[float]) -> Tuple[str, ...]:
        """What others said when they lost it, and how much later that was."""
        return tuple(
            self._line(fact.place) + (f" ({when - at_s:+.2f} s)" if at_s is not None else "")
            for when, _, fact in self._losses
        )

    def said(self, place: int, *kinds: Kind) -> bool:
        """Whether a member printed anything of these kinds."""
        name = self._case.subject(place)
        return any(fact.place.file == name for fact in self.book.all(*kinds))

    # --- what it comes to ------------------------------------------------------------------------

    def decide(self, place: int) -> bool:
        """Whether what a member printed itself names a cause at it, and no echo."""
        subject = self._case.subject(place)
        return any(item.subject == subject and item.id not in ECHOES for item in self._sure)

    def causes(self) -> List[Finding]:
        """Causes that the text decides, and that nothing which was seen contradicts."""
        return [self._finding(item) for item in self._sure]

    def candidates(self) -> List[Finding]:
        """What the text leaves open, in order, without what the proven mesh refutes; () without one."""
        if self.explanation.verdict is not Outcome.UNDETERMINED or not self._mesh_passed:
            return []
        found = [self._finding(item) for item in self.explanation.candidates]
        return [item for item in found if not self._refuted(item.id)]

    @property
    def next_command(self) -> Optional[str]:
        return self.explanation.next_command

    @functools.cached_property
    def _sure(self) -> Tuple[Explained, ...]:
        if self.explanation.verdict is not Outcome.DETERMINED:
            return ()
        return tuple(item for item in self.explanation.causes if not self._refuted(item.id))

    def _refuted(self, cause_id: str) -> bool:
        """Whether the mesh, which every pair passed moments before, says otherwise.

        A member that the text misses was there all the same: it came late, or did something else.
        """
        if not self._mesh_passed:
            return False
        here = cause_id == "peer-missing" and not self._case.roster.absent
        return here or cause(cause_id).group in (Group.FILTERING, Group.PATH)

    @functools.cached_property
    def _mesh_passed(self) -> bool:
        matrix = self._case.matrix
        return bool(matrix.by_pair) and all(matrix.pair_works(pair) for pair in matrix.pairs())

    def _finding(self, item: Explained) -> Finding:
        place = self._place(item.subject)
        rank = next((self._by_file.get(line.file) for line in item.evidence), None)
        return finding(
            item.id,
            item.subject,
            summary=item.summary,
            evidence=[self._line(line) for line in item.evidence],
            fields=self._case.fields(place),
            commands=None if item.subject != "cluster" else item.commands,
            remediation=item.remediation,
            at_s=rank.at_s if rank is not None else None,
        )

    def _place(self, subject: str) -> Optional[int]:
        subjects = [member.subject for member in self._case.members]
        return subjects.index(subject) if subject in subjects else None

    def _line(self, line: Place) -> str:
        """A line of evidence: who said it, and which member an address of Gloo's is."""

        def named(found: re.Match[str]) -> str:
            place = self._addresses.get(found.group(1))
            if place is None:
                return found.group(0)
            port = real_port(found.group(2)).partition(" ")[0]
            return f"[{found.group(1)}]:{found.group(2)} ({self._case.subject(place)} port {port})"

        text = _OWN_HEAD.sub("", line.text)
        return f"{line.file}: {_PEER.sub(named, text) if _BY_GLOO.search(text) else text}"


def _file(case: Case, rank: Rank) -> str:
    return case.subject(rank.place)


def _text(case: Case, rank: Rank) -> bytes:
    """A rank's output and error as a log: every line with the moment of its end on the cluster's clock."""
    at_s = rank.at_s
    stamp = ""
    if at_s is not None:
        moment = datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc)
        stamp = f"{moment:%Y-%m-%d %H:%M:%S.%f} "
    head = f"{stamp}[rank{case.members[rank.place].rank}] "
    lines = [_C10D_PREFIX.sub(r"[\1 ", line) for line in rank.result.log]
    if rank.speaks:
        lines += (rank.result.error or "").splitlines()
    return "".join(f"{head}{line}\n" for line in lines).encode()


def _ended_at(rank: Rank) -> float:
    return rank.at_s if rank.at_s is not None else float("inf")
