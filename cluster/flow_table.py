"""The flows between classes of members: one row a class, so that a million pairs stay small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from cluster.lookup import Gap
from cluster.ports import PortSet
from cluster.rules import NO_PORT
from cluster.stages import Obstacle

ClassPair = Tuple[int, int]


@dataclass(frozen=True)
class Flow:
    """What becomes of the needed ports from one member to another.

    blocked: certainly stopped. unknown: could not be told, for the reasons in gaps.
    obstacles: everything that stops a port, in the packet's order.
    """

    blocked: PortSet = NO_PORT
    unknown: PortSet = NO_PORT
    obstacles: Tuple[Obstacle, ...] = ()
    gaps: Tuple[Gap, ...] = ()

    @property
    def passes(self) -> Optional[bool]:
        """True when every needed port passes, False when one does not, None when untold."""
        if self.blocked:
            return False
        return None if self.unknown else True


PASSING = Flow()


class FlowTable(Mapping[ClassPair, Flow]):
    """By (class, class); a class with one member has no flow to itself."""

    def __init__(self, rows: List[List[Optional[Flow]]]) -> None:
        self._rows = rows

    def __getitem__(self, pair: ClassPair) -> Flow:
        found = self._rows[pair[0]][pair[1]]
        if found is None:
            raise KeyError(pair)
        return found

    def __iter__(self) -> Iterator[ClassPair]:
        for source, row in enumerate(self._rows):
            for target, flow in enumerate(row):
                if flow is not None:
                    yield source, target

    def __len__(self) -> int:
        return sum(flow is not None for row in self._rows for flow in row)

    def not_passing(self) -> Iterator[Tuple[ClassPair, Flow]]:
        """The flows that are blocked or untold, in order."""
        for source, row in enumerate(self._rows):
            for target, flow in enumerate(row):
                if flow is not None and flow is not PASSING:
                    yield (source, target), flow

    def by_flow(self) -> List[Tuple[Flow, List[ClassPair]]]:
        """The same, each flow once with all the pairs that share it."""
        found: Dict[int, Tuple[Flow, List[ClassPair]]] = {}
        for pair, flow in self.not_passing():
            known = found.get(id(flow))
            if known is None:
                known = found[id(flow)] = (flow, [])
            known[1].append(pair)
        return list(found.values())

    @property
    def holds(self) -> Optional[bool]:
        """False when a flow is certainly blocked, None when one is untold or there is none, else True."""
        untold = False
        for _, flow in self.not_passing():
            if flow.passes is False:
                return False
            untold = True
        return None if untold or not any(flow for row in self._rows for flow in row) else True
