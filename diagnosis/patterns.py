"""Where broken pairs lie: everywhere, around single nodes, between two halves, or here and there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Dict, FrozenSet, List, Mapping, Optional, Set, Tuple

from diagnosis.matrix import Pair

FEW_PAIRS = 12
"""Up to this many broken ordered pairs, or two a member, are named one by one."""


class Side(str, Enum):
    """Which new connections of an isolated node die."""

    BOTH = "both"
    IN = "in"
    OUT = "out"


@dataclass(frozen=True)
class Isolated:
    """A node whose connections with everybody else die on one side or both."""

    node: int
    side: Side
    pairs: FrozenSet[Pair]


@dataclass(frozen=True)
class Pattern:
    """Broken pairs explained by the fewest places.

    whole: every pair is broken. isolated: nodes cut off. halves: two or more sets of nodes
    that work within and not across. rest: broken pairs that none of these explain.
    """

    whole: bool = False
    isolated: Tuple[Isolated, ...] = ()
    halves: Tuple[FrozenSet[int], ...] = ()
    across: FrozenSet[Pair] = frozenset()
    rest: FrozenSet[Pair] = frozenset()


def find(dead: Set[Pair], universe: Set[Pair]) -> Pattern:
    """The pattern of `dead` pairs among the pairs that were tried and are not explained already."""
    if not dead:
        return Pattern()
    if dead == universe and len(universe) >= 2:
        return Pattern(whole=True)
    isolated, rest = _isolated(dead, universe)
    halves: Tuple[FrozenSet[int], ...] = ()
    across: Set[Pair] = set()
    if not isolated:
        halves, across = _halves(rest, universe)
        rest = rest - across
    return Pattern(isolated=tuple(isolated), halves=halves, across=frozenset(across), rest=frozenset(rest))


def _isolated(dead: Set[Pair], universe: Set[Pair]) -> Tuple[List[Isolated], Set[Pair]]:
    rest = set(dead)
    into: Dict[int, Set[Pair]] = {}
    out: Dict[int, Set[Pair]] = {}
    for pair in universe:
        out.setdefault(pair[0], set()).add(pair)
        into.setdefault(pair[1], set()).add(pair)
    found: List[Isolated] = []
    while True:
        best = _most_isolated(rest, into, out)
        if best is None:
            return found, rest
        found.append(best)
        rest -= best.pairs
        for pair in best.pairs:
            out[pair[0]].discard(pair)
            into[pair[1]].discard(pair)


def _most_isolated(
    rest: Set[Pair], into: Mapping[int, Set[Pair]], out: Mapping[int, Set[Pair]]
) -> Optional[Isolated]:
    """The node with the most pairs of which all are dead, and at least two peers to say so."""
    candidates: List[Isolated] = []
    nothing: Set[Pair] = set()
    for node in sorted({place for pair in rest for place in pair}):
        ins, outs = into.get(node, nothing), out.get(node, nothing)
        sides = [(Side.BOTH, ins | outs)] if ins and outs else []
        for side, pairs in (*sides, (Side.IN, ins), (Side.OUT, outs)):
            peers = {place for pair in pairs for place in pair} - {node}
            if len(peers) >= 2 and pairs <= rest:
                candidates.append(Isolated(node=node, side=side, pairs=frozenset(pairs)))
    return max(candidates, key=lambda item: (len(item.pairs), -item.node), default=None)


def _halves(dead: Set[Pair], universe: Set[Pair]) -> Tuple[Tuple[FrozenSet[int], ...], Set[Pair]]:
    """Sets of at least two nodes that reach each other, with every pair across them broken."""
    nodes = {place for pair in universe for place in pair}
    group: Dict[int, int] = {node: node for node in nodes}
    for a, b in universe:
        if (a, b) not in dead and (b, a) not in dead:
            old, new = group[b], group[a]
            group = {node: new if at == old else at for node, at in group.items()}
    parts = [frozenset(n for n in nodes if group[n] == at) for at in sorted(set(group.values()))]
    if len(parts) < 2 or any(len(part) < 2 for part in parts):
        return (), set()
    return tuple(parts), {pair for pair in dead if group[pair[0]] != group[pair[1]]}
