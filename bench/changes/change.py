"""What a change is, and what an audit must find for it."""

from __future__ import annotations

from dataclasses import dataclass

from audit.difference import Meaning
from bench.changes.make_rules import Make


@dataclass(frozen=True)
class Expected:
    """One difference that an audit must find.

    resource: see `Hands.resource`. attribute: how its attribute begins. pairs: ordered pairs of ranks
    that it parts.
    """

    resource: str
    attribute: str
    meaning: Meaning
    pairs: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Change:
    """One change. make: holds it inside a context. expected: every difference it makes, and no more.

    moves_rules: the kernel's firewall changes in the lab. causes: what a probe of all pairs names, with
    the subject; only where a pair breaks. exposes: somebody gets in. needs: `reservation`, or `stop` of an
    instance, which the lab's nodes do not live through. lasts: nothing takes it back.
    """

    id: str
    title: str
    make: Make
    expected: tuple[Expected, ...]
    moves_rules: bool = False
    causes: tuple[tuple[str, str], ...] = ()
    exposes: bool = False
    needs: str = ""
    lasts: bool = False


RANKS = range(4)
ALL = frozenset((a, b) for a in RANKS for b in RANKS if a != b)
WITH_3 = frozenset(pair for pair in ALL if 3 in pair)
ACROSS = frozenset((a, b) for a, b in ALL if (a < 2) != (b < 2))

NEW, NOW = Meaning.BREAKS_NEW_CONNECTIONS, Meaning.BREAKS_MESH
OPENS, WEAKENS, COSMETIC = Meaning.OPENS_CLUSTER, Meaning.WEAKENS, Meaning.COSMETIC
IN, OUT = "ingress rule", "egress rule"


def one(
    resource: str, attribute: str, meaning: Meaning, pairs: frozenset[tuple[int, int]] = frozenset()
) -> tuple[Expected, ...]:
    return (Expected(resource, attribute, meaning, pairs),)
