"""The members under judgement, and causes in the making."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from typing import Dict, List, Mapping, Sequence, Tuple

from cluster.flows import Gap, Obstacle, Place, Reachability
from cluster.lookup import Lookup
from cluster.ports import PortRange, PortSet

PAIRS_SHOWN = 6
"""Pairs and explanations listed in the evidence; the report holds them all."""

ClassPair = Tuple[int, int]


@dataclass(frozen=True)
class Members:
    """The members under judgement, with what was worked out about them."""

    lookup: Lookup
    reach: Reachability
    ranks: Mapping[str, int]
    master_port: int
    source: PortSet

    @cached_property
    def all_but_master_port(self) -> PortSet:
        """What is needed beside the port of the store."""
        return self.reach.need.difference(PortSet((PortRange(self.master_port, self.master_port),)))

    @cached_property
    def sizes(self) -> Tuple[int, ...]:
        """How many members each class has."""
        return tuple(map(len, self.reach.classes))

    @property
    def pair_count(self) -> int:
        return len(self.ranks) * (len(self.ranks) - 1)

    def pairs_of(self, pair: ClassPair) -> int:
        """Ordered pairs of members in a pair of classes."""
        a, b = self.sizes[pair[0]], self.sizes[pair[1]]
        return a * (a - 1) if pair[0] == pair[1] else a * b

    def rank(self, number: int) -> int:
        """The rank of a class's first member."""
        return self.ranks[self.reach.classes[number][0]]

    def place(self, number: int) -> Place:
        """How rules see a class that takes part in a blocked flow."""
        place = self.reach.places[number]
        if isinstance(place, Gap):
            raise TypeError(f"class {number} has no place: {place}")
        return place


@dataclass
class Blame:
    """One cause in the making: the class pairs it stops, and what decides.

    weight: ordered pairs of members it stops. stopped: the pairs by what stops them.
    """

    cause_id: str
    weight: int = 0
    pairs: Dict[ClassPair, None] = field(default_factory=dict)
    stopped: Dict[Obstacle, List[ClassPair]] = field(default_factory=dict)
    _ports: PortSet = field(default_factory=PortSet)
    _counted: int = 0

    def add(self, pairs: Sequence[ClassPair], obstacle: Obstacle) -> None:
        self.pairs.update(dict.fromkeys(pairs))
        self.stopped.setdefault(obstacle, []).extend(pairs)

    def weigh(self, members: Members) -> None:
        """Count what it stops, when all of it was added."""
        self.weight = sum(map(members.pairs_of, self.pairs))

    @property
    def ports(self) -> PortSet:
        """Every port that it stops somewhere; thousands of obstacles share a few runs of ports."""
        if len(self.stopped) != self._counted:
            runs = {id(run): run for obstacle in self.stopped for run in obstacle.ports}
            self._ports, self._counted = PortSet.of(runs.values()), len(self.stopped)
        return self._ports


def pair_lines(blame: Blame, members: Members) -> List[str]:
    """The first blocked pairs by rank and address, with their ports."""
    lines: List[str] = []
    for pair in nsmallest(PAIRS_SHOWN + 1, blame.pairs):
        obstacles = [item for item in members.reach.flows[pair].obstacles if item in blame.stopped]
        ports = PortSet.of(run for obstacle in obstacles for run in obstacle.ports)
        for source in members.reach.classes[pair[0]]:
            for target in members.reach.classes[pair[1]]:
                if source == target:
                    continue
                if len(lines) == PAIRS_SHOWN:
                    return [*lines, "and more pairs like these"]
                ends = f"{members.ranks[source]}>{members.ranks[target]}"
                lines.append(f"pair {ends} ({source} to {target}): {ports} blocked")
    return lines
