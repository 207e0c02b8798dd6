"""States of an account as rules judge them, comparable for a thousand members.

Members that no rule tells apart in any of the states under comparison are one part; everything
that is blocked is told between parts, and pairs of members are counted, never listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.exposure import exposure
from cluster.flows import Reachability, reachability
from cluster.lookup import Lookup
from cluster.ports import PortSet
from cluster.rules import NO_PORT
from cluster.snapshot import ClusterSnapshot
from cluster.stages import Reason

TRACKED = frozenset((Reason.NO_EGRESS_RULE, Reason.NO_INGRESS_RULE))
"""Security groups let a tracked connection live on; everything else stops it at once."""

Parts = tuple[int, int]  # source and destination
Blocked = dict[Parts, PortSet]
Opening = tuple[str, str, str, str]  # protocol, ports, source, instance


@dataclass(frozen=True)
class World:
    """One state of the account."""

    reach: Reachability
    untold: tuple[str, ...]
    openings: frozenset[Opening]


def look(
    snapshot: ClusterSnapshot,
    members: Sequence[str],
    need: PortSet,
    source_ports: PortSet,
    fellows: Sequence[str] = (),
) -> World:
    """Judge one state; see `Judge` for the arguments."""
    lookup = Lookup(snapshot)
    reach = reachability(lookup, members, need, source_ports)
    outside = exposure(lookup, [*members, *fellows])
    return World(
        reach=reach,
        untold=tuple(map(str, (*reach.gaps, *outside.gaps))),
        openings=frozenset(
            (item.protocol, item.ports, item.source, instance)
            for item in outside.entries
            for instance in item.instances
        ),
    )


class Partition:
    """The members in parts that are alike in every one of some worlds."""

    def __init__(self, members: Sequence[str], worlds: Iterable[World]) -> None:
        every = list(worlds)
        numbers: dict[tuple[int, ...], int] = {}
        parts: list[list[str]] = []
        for member in members:
            key = tuple(world.reach.class_of[member] for world in every)
            number = numbers.setdefault(key, len(numbers))
            if number == len(parts):
                parts.append([])
            parts[number].append(member)
        self.parts = tuple(map(tuple, parts))

    def blocked(self, world: World) -> tuple[Blocked, frozenset[Parts]]:
        """Blocked ports between parts; and between which parts something else than a group stops them."""
        blocked: Blocked = {}
        at_once: set[Parts] = set()
        if world.reach.holds is not False:
            return blocked, frozenset()
        class_of = [world.reach.class_of[part[0]] for part in self.parts]
        for a, part in enumerate(self.parts):
            for b in range(len(self.parts)):
                if a == b and len(part) == 1:
                    continue
                flow = world.reach.flows[class_of[a], class_of[b]]
                if flow.blocked:
                    blocked[a, b] = flow.blocked
                    if any(obstacle.reason not in TRACKED for obstacle in flow.obstacles):
                        at_once.add((a, b))
        return blocked, frozenset(at_once)


def less(first: Blocked, second: Blocked) -> Blocked:
    """What the first blocks and the second does not."""
    found = {parts: ports.difference(second.get(parts, NO_PORT)) for parts, ports in first.items()}
    return {parts: ports for parts, ports in found.items() if ports}


def both(first: Blocked, second: Blocked) -> Blocked:
    """What both block."""
    found = {parts: ports.intersection(second.get(parts, NO_PORT)) for parts, ports in first.items()}
    return {parts: ports for parts, ports in found.items() if ports}


def union(first: Blocked, second: Blocked) -> Blocked:
    """What one of them blocks."""
    return {
        parts: first.get(parts, NO_PORT).union(second.get(parts, NO_PORT)) for parts in {**first, **second}
    }
