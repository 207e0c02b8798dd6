"""Where broken pairs lie."""

from __future__ import annotations

from typing import Set

import pytest

from diagnosis.matrix import Pair
from diagnosis.patterns import Isolated, Pattern, Side, find


def every(nodes: int) -> Set[Pair]:
    return {(a, b) for a in range(nodes) for b in range(nodes) if a != b}


def around(node: int, nodes: int) -> Set[Pair]:
    return {pair for pair in every(nodes) if node in pair}


def isolated(node: int, side: Side, pairs: Set[Pair]) -> Isolated:
    return Isolated(node=node, side=side, pairs=frozenset(pairs))


@pytest.mark.parametrize(
    ("dead", "nodes", "expected"),
    [
        (set(), 4, Pattern()),
        (every(4), 4, Pattern(whole=True)),
        (every(2), 2, Pattern(whole=True)),
        ({(0, 1)}, 2, Pattern(rest=frozenset({(0, 1)}))),
        (around(2, 4), 4, Pattern(isolated=(isolated(2, Side.BOTH, around(2, 4)),))),
        (
            {(a, 2) for a in (0, 1, 3)},
            4,
            Pattern(isolated=(isolated(2, Side.IN, {(a, 2) for a in (0, 1, 3)}),)),
        ),
        (
            {(2, b) for b in (0, 1, 3)},
            4,
            Pattern(isolated=(isolated(2, Side.OUT, {(2, b) for b in (0, 1, 3)}),)),
        ),
        (
            around(1, 5) | around(3, 5),
            5,
            Pattern(
                isolated=(
                    isolated(1, Side.BOTH, around(1, 5)),
                    isolated(3, Side.BOTH, around(3, 5) - around(1, 5)),
                )
            ),
        ),
        (
            {(a, b) for a, b in every(4) if a // 2 != b // 2},
            4,
            Pattern(
                halves=(frozenset({0, 1}), frozenset({2, 3})),
                across=frozenset((a, b) for a, b in every(4) if a // 2 != b // 2),
            ),
        ),
        (
            around(2, 4) | {(0, 1)},
            4,
            Pattern(isolated=(isolated(2, Side.BOTH, around(2, 4)),), rest=frozenset({(0, 1)})),
        ),
        ({(0, 3), (3, 0)}, 4, Pattern(rest=frozenset({(0, 3), (3, 0)}))),
    ],
)
def test_broken_pairs_have_the_fewest_places(dead: Set[Pair], nodes: int, expected: Pattern) -> None:
    """All, single nodes, two halves, or single pairs."""
    assert find(dead, every(nodes)) == expected
