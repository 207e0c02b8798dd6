"""The members under judgement, and causes in the making."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Tuple

from cluster.flows import Gap, Obstacle, Place, Reachability
from cluster.lookup import Lookup
from cluster.ports import PortSet

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

    @property
    def pair_count(self) -> int:
        return len(self.ranks) * (len(self.ranks) - 1)

    def pairs_of(self, pair: ClassPair) -> int:
        """Ordered pairs of members in a pair of classes."""
        a, b = (len(self.reach.classes[i]) for i in pair)
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

    weight: ordered pairs of members it stops.
    """

    cause_id: str
    weight: int = 0
    pairs: Dict[ClassPair, PortSet] = field(default_factory=dict)
    obstacles: Dict[Obstacle, None] = field(default_factory=dict)  # in order, once

    def add(self, pair: ClassPair, obstacle: Obstacle, members: Members) -> None:
        before = self.pairs.get(pair)
        self.pairs[pair] = obstacle.ports if before is None else before.union(obstacle.ports)
        self.weight += members.pairs_of(pair) if before is None else 0
        self.obstacles[obstacle] = None

    @property
    def ports(self) -> PortSet:
        return PortSet.of(run for obstacle in self.obstacles for run in obstacle.ports)


def pair_lines(blame: Blame, members: Members) -> List[str]:
    """The first blocked pairs by rank and address, with their ports."""
    lines: List[str] = []
    for pair, ports in sorted(blame.pairs.items()):
        for source in members.reach.classes[pair[0]]:
            for target in members.reach.classes[pair[1]]:
                if source == target:
                    continue
                if len(lines) == PAIRS_SHOWN:
                    return [*lines, "and more pairs like these"]
                ends = f"{members.ranks[source]}>{members.ranks[target]}"
                lines.append(f"pair {ends} ({source} to {target}): {ports} blocked")
    return lines
