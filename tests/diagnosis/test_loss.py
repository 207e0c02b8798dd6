"""packet-loss: from what share on, and where it lies."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Tuple

import pytest

from diagnosis.report import PathStream, Verdict
from diagnosis.words import figures
from tests.diagnosis.builders import Named, Reports, change, diagnose, healthy, named

Pair = Tuple[int, int]


def streamed(lost: Mapping[Pair, Optional[int]], nodes: int = 4, segments: int = 1000) -> Reports:
    """Every pair was looked at; these lost so many segments, the others none."""
    rows = healthy(nodes)
    for source in range(nodes):
        streams = tuple(
            PathStream(
                destination=f"i-{peer}",
                segments=segments if lost.get((source, peer)) else 200,
                lost=lost.get((source, peer), 0),
                complete=True,
                time_s=0.03,
            )
            for peer in range(nodes)
            if peer != source
        )
        rows = change(rows, source, streams=streams)
    return rows


def around(node: int, lost: int, nodes: int = 4) -> Dict[Pair, Optional[int]]:
    return {(a, b): lost for a in range(nodes) for b in range(nodes) if a != b and node in (a, b)}


EVERYWHERE: Dict[Pair, Optional[int]] = {(a, b): 30 for a in range(4) for b in range(4) if a != b}
CASES: Dict[str, Tuple[Reports, Named]] = {
    "nothing lost": (streamed({}), []),
    "one way of a pair": (streamed({(0, 3): 50}), [("packet-loss", "pair:0>3")]),
    "the other way": (streamed({(3, 0): 50}), [("packet-loss", "pair:3>0")]),
    "both ways": (streamed({(0, 3): 50, (3, 0): 20}), [("packet-loss", "pair:0>3")]),
    "all of a node": (streamed(around(2, 50)), [("packet-loss", "node:2")]),
    "all that a node receives": (
        streamed({(peer, 1): 50 for peer in (0, 2, 3)}),
        [("packet-loss", "node:1")],
    ),
    "everywhere": (streamed(EVERYWHERE), [("packet-loss", "cluster")]),
    "two nodes, both ways": (streamed({(0, 1): 50, (1, 0): 50}, nodes=2), [("packet-loss", "pair:0>1")]),
    "just below one in a hundred": (streamed({(0, 3): 9}), []),
    "one in a hundred": (streamed({(0, 3): 10}), [("packet-loss", "pair:0>3")]),
    "few of few": (streamed({(0, 3): 4}, segments=200), []),
    "the kernel does not tell": (streamed({(0, 3): None}), []),
}


@pytest.mark.parametrize("name", CASES)
def test_loss(name: str) -> None:
    """Exactly there, and nothing below the threshold."""
    rows, expected = CASES[name]
    diagnosis = diagnose(rows)
    assert named(diagnosis) == expected
    assert diagnosis.verdict is (Verdict.FAIL if expected else Verdict.PASS)


def test_the_share_and_the_counts_are_told() -> None:
    """Over the whole place, and for each pair."""
    (found,) = diagnose(streamed({(0, 3): 50, (3, 0): 20})).causes
    assert found.summary == (
        "the way from node 0 (n0, 10.20.1.10) to node 3 (n3, 10.20.1.13), and back, loses 3.5 % of its "
        "packets (70 of 2000 segments, 2 of 12 pairs)"
    )
    assert found.evidence == (
        "pair:0>3 10.20.1.10 -> 10.20.1.13: 50 of 1000 segments lost",
        "pair:3>0 10.20.1.13 -> 10.20.1.10: 20 of 1000 segments lost",
    )


def test_the_answer_shows_the_worst_pair_and_how_many_were_looked_at() -> None:
    """A figure of the report, a share for each pair in JSON; what was not looked at is None, not 0."""
    rows = streamed({(0, 3): 9, (1, 2): None})
    diagnosis = diagnose(rows)
    assert "lost packets: at most 0.9 % (11 of 12 pairs looked at)" in figures(diagnosis)
    shares = {(pair.source, pair.destination): pair.lost_share for pair in diagnosis.pairs}
    assert (shares[0, 3], shares[3, 0], shares[1, 2]) == (0.009, 0.0, None)
    assert "lost packets: at most 0.0 % (12 of 12 pairs looked at)" in figures(diagnose(streamed({})))
    assert "lost packets: not looked at" in figures(diagnose(healthy()))
