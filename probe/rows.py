"""Waiting at the meeting place: for members, for their rows, for a verdict."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from typing import Callable, FrozenSet, Iterable, List, Optional, Sequence, Tuple, TypeVar

from cluster.keys import COLLECTIVE_READY, COLLECTIVE_ROW, FAILED_ROW, MESH_ROW, verdict_name
from cluster.serial import DecodeError, decode, encode
from diagnosis.report import Diagnosis, NodeReport
from probe.board import Board, BoardContentError, BoardError, NowhereError, registered
from probe.members import Member, in_rank_order

__all__ = [
    "COLLECTIVE_READY",
    "COLLECTIVE_ROW",
    "FAILED_ROW",
    "MESH_ROW",
    "Listing",
    "Say",
    "Waiter",
    "dump",
    "judging_name",
    "read_reports",
    "read_verdict",
    "row_names",
    "verdict_name",
]

# Often enough that polling costs less than a quarter second of the answer; rarer in large
# clusters, where everyone's listing together would load the meeting place.
POLL_S = 0.25
POLL_AT_MOST_S = 1.0
_NODES_AT_SHORTEST_POLL = 16
# A listing that fails is tried again this long: longer than a throttled or restarting service,
# shorter than a person's patience with a place that cannot be reached.
BOARD_PATIENCE_S = 60.0

Say = Callable[[str], None]
T = TypeVar("T")


def dump(value: object) -> bytes:
    """A row or verdict as it travels."""
    return json.dumps(encode(value), separators=(",", ":")).encode()


def judging_name(stage: str) -> str:
    """The mark of a node that has begun to judge."""
    return f"judging-{stage}"


@dataclass(frozen=True)
class Listing:
    """One look at the meeting place."""

    names: Tuple[str, ...] = ()

    def members(self) -> Tuple[Member, ...]:
        return in_rank_order(registered(self.names))

    def having(self, name: str) -> FrozenSet[str]:
        """Member ids with an object of this name."""
        return frozenset(
            folder for folder, _, rest in (item.rpartition("/") for item in self.names) if rest == name
        )

    def verdict(self, stage: str) -> Optional[str]:
        """The full name of a verdict of the stage, if one stands."""
        wanted = verdict_name(stage)
        return next((item for item in self.names if item.rpartition("/")[2] == wanted), None)


class Waiter:
    """Polls one board. What fails is tried again for `patience_s`."""

    def __init__(self, board: Board, nodes: int, say: Say, patience_s: float = BOARD_PATIENCE_S) -> None:
        self.board = board
        self._say = say
        self._patience_s = patience_s
        self._poll_s = min(POLL_AT_MOST_S, POLL_S * max(1.0, nodes / _NODES_AT_SHORTEST_POLL))

    def look(self) -> Listing:
        """
        Raises:
            BoardError: the place could not be listed for as long as it was tried.
        """
        return Listing(names=self.insist(self.board.names))

    def insist(self, act: Callable[[], T]) -> T:
        """Do `act`, again and again while the place cannot be used, as long as the patience lasts."""
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                return act()
            except (BoardContentError, NowhereError):
                raise
            except BoardError as error:
                if time.monotonic() >= give_up_at:
                    raise
                self._say(f"meeting place: {error}; trying again")
                time.sleep(1.0)

    def until(self, enough: Callable[[Listing], bool], give_up_at: float) -> Tuple[Listing, bool]:
        """(the first listing that is enough, True), or (the last before `give_up_at`, monotonic, False)."""
        while True:
            listing = self.look()
            if enough(listing):
                return listing, True
            left = give_up_at - time.monotonic()
            if left <= 0:
                return listing, False
            time.sleep(min(left, self._poll_s * random.uniform(0.8, 1.2)))  # noqa: S311 - spreads the load


def read_reports(board: Board, names: Iterable[str], say: Say) -> Tuple[NodeReport, ...]:
    """The rows of these names. One that cannot be read is left out, so it counts as not looked at."""
    found: List[NodeReport] = []
    for name in names:
        try:
            found.append(decode(NodeReport, json.loads(board.read(name))))
        except (BoardError, ValueError, DecodeError) as error:
            say(f"row {name} cannot be read: {error}")
    return tuple(found)


def row_names(listing: Listing, kinds: Sequence[str]) -> Tuple[str, ...]:
    """Names of all rows of these kinds, but none of the verdicts."""
    return tuple(name for name in listing.names if name.rpartition("/")[2] in kinds)


def read_verdict(board: Board, name: str) -> Diagnosis:
    """
    Raises:
        BoardError: it cannot be read.
        BoardContentError: it is no Diagnosis.
    """
    try:
        return decode(Diagnosis, json.loads(board.read(name)))
    except ValueError as error:
        raise BoardContentError(f"{board.where(name)} is not a verdict: {error}") from error
