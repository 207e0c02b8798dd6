"""What each difference does, told by the reachability engine and by no table of kinds.

The world without any difference is what the stack was told; the world with all of them is what
stands. A difference breaks a pair, or lets somebody in, if that holds in what stands, and if it
follows from this difference alone, or ends when this one alone is undone; what no single one
explains belongs to the one that tipped it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.difference import Deviation, Difference, Meaning
from cluster.exposure import exposure
from cluster.flows import Reachability, reachability
from cluster.lookup import Lookup
from cluster.ports import PortSet
from cluster.rules import NO_PORT
from cluster.snapshot import ClusterSnapshot
from cluster.stages import Reason

TRACKED = frozenset((Reason.NO_EGRESS_RULE, Reason.NO_INGRESS_RULE))
"""Security groups let a tracked connection live on; everything else stops it at once."""

Run = tuple[str, str, str]  # source, destination, contiguous ports
Blocked = dict[tuple[str, str], PortSet]  # (source, destination) -> ports that cannot be reached
Opening = tuple[str, str, str, str]  # protocol, ports, source, instance


@dataclass(frozen=True)
class World:
    """One state of the account, as rules judge it. at_once: pairs of which connections are cut, too."""

    blocked: Blocked
    at_once: frozenset[tuple[str, str]]
    untold: tuple[str, ...]
    openings: frozenset[Opening]


class Judge:
    """Judges states of one cluster.

    members: instance ids. need: ports of every ordered pair. source_ports: where connections come from.
    fellows: instances that are no strangers.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        members: Sequence[str],
        need: PortSet,
        source_ports: PortSet,
        fellows: Sequence[str] = (),
    ) -> None:
        self._snapshot = snapshot
        self._members = members
        self._need = need
        self._source_ports = source_ports
        self._fellows = fellows
        self._worlds: dict[frozenset[int], World] = {}

    def differences(self, deviations: Sequence[Deviation]) -> tuple[Difference, ...]:
        """Every deviation with its meaning, the gravest first."""
        moving = [index for index, item in enumerate(deviations) if item.undo is not None]
        owners = self._owners(deviations, moving) if moving else {}
        found = [self._difference(item, owners.get(index)) for index, item in enumerate(deviations)]
        return tuple(sorted(found, key=lambda item: -item.meaning.grade))

    # --- worlds ----------------------------------------------------------------------------------

    def _world(self, deviations: Sequence[Deviation], undone: Iterable[int]) -> World:
        """The state with these deviations undone; remembered."""
        key = frozenset(undone)
        if key not in self._worlds:
            snapshot = self._snapshot
            for index in sorted(key):
                undo = deviations[index].undo
                snapshot = undo(snapshot) if undo is not None else snapshot
            self._worlds[key] = self._look(snapshot)
        return self._worlds[key]

    def _look(self, snapshot: ClusterSnapshot) -> World:
        lookup = Lookup(snapshot)
        reach = reachability(lookup, self._members, self._need, self._source_ports)
        blocked, at_once = _blocked(reach)
        outside = exposure(lookup, [*self._members, *self._fellows])
        openings = {
            (item.protocol, item.ports, item.source, instance)
            for item in outside.entries
            for instance in item.instances
        }
        return World(
            blocked=blocked,
            at_once=frozenset(at_once),
            untold=tuple(map(str, (*reach.gaps, *outside.gaps))),
            openings=frozenset(openings),
        )

    # --- whose doing it is -----------------------------------------------------------------------

    def _owners(self, deviations: Sequence[Deviation], moving: Sequence[int]) -> Mapping[int, World]:
        """For each moving deviation: what of the state that stands is its doing."""
        told, stands = self._world(deviations, moving), self._world(deviations, ())
        doing: dict[int, World] = {}
        for index in moving:
            alone = self._world(deviations, [other for other in moving if other != index])
            without = self._world(deviations, [index])
            own = _union(_less(alone.blocked, told.blocked), _less(stands.blocked, without.blocked))
            doing[index] = World(
                blocked=_both(own, stands.blocked),
                at_once=stands.at_once | alone.at_once,
                untold=tuple(gap for gap in alone.untold if gap not in told.untold),
                openings=((alone.openings - told.openings) | (stands.openings - without.openings))
                & stands.openings,
            )
        self._tip(deviations, moving, doing, told, stands)
        return doing

    def _tip(
        self,
        deviations: Sequence[Deviation],
        moving: Sequence[int],
        doing: dict[int, World],
        told: World,
        stands: World,
    ) -> None:
        """Give what no single deviation explains to the one with which it began, in their order."""
        blocked = _less(stands.blocked, told.blocked)
        openings = stands.openings - told.openings
        for own in doing.values():
            blocked, openings = _less(blocked, own.blocked), openings - own.openings
        if not blocked and not openings:
            return
        before = told
        for position, index in enumerate(moving):
            after = self._world(deviations, moving[position + 1 :])
            own = doing[index]
            doing[index] = dataclasses.replace(
                own,
                blocked=_union(own.blocked, _both(_less(after.blocked, before.blocked), blocked)),
                openings=own.openings | ((after.openings - before.openings) & openings),
            )
            before = after

    # --- words -----------------------------------------------------------------------------------

    def _difference(self, item: Deviation, doing: World | None) -> Difference:
        runs = {
            (*pair, str(run)) for pair, ports in (doing.blocked if doing else {}).items() for run in ports
        }
        pairs = tuple(sorted({*item.pairs, *runs}, key=self._order))
        opened = _openings(doing.openings) if doing else ()
        meaning, words = item.at_least, [item.why]
        if doing is not None and doing.untold and not pairs and not opened:
            meaning, words = Meaning.UNDETERMINED, [f"what it does cannot be told: {doing.untold[0]}"]
        if opened:
            meaning = max(meaning, Meaning.OPENS_CLUSTER, key=lambda each: each.grade)
            words = [
                f"{one['source']} reaches {_traffic(one)} of {len(one['instances'])} members"
                for one in opened
            ]
        if pairs:
            now = doing is not None and not doing.at_once.isdisjoint(doing.blocked)
            breaks = Meaning.BREAKS_MESH if now else Meaning.BREAKS_NEW_CONNECTIONS
            meaning = max(meaning, breaks, key=lambda each: each.grade)
            words = [self._broken(pairs, now), *words] if opened else [self._broken(pairs, now)]
        return Difference(
            deviation=item, meaning=meaning, detail="; ".join(words), pairs=pairs, opens_to=opened
        )

    def _broken(self, pairs: Sequence[Run], now: bool) -> str:
        ordered = {(source, destination) for source, destination, _ in pairs}
        every = len(self._members) * (len(self._members) - 1)
        ports = sorted({ports for _, _, ports in pairs}, key=lambda text: int(text.partition("-")[0]))
        shown = ", ".join(ports[:3]) + (" and more" if len(ports) > 3 else "")
        end = (
            "connections that stand are cut, too"
            if now
            else "connections that stand go on, which hides it until the job starts again"
        )
        return f"{len(ordered)} of {every} ordered pairs can open no new connection on {shown}; {end}"

    def _order(self, pair: Run) -> tuple[int, int, int]:
        place = {member: index for index, member in enumerate(self._members)}
        source, destination, ports = pair
        return (place.get(source, -1), place.get(destination, -1), int(ports.partition("-")[0]))


def _blocked(reach: Reachability) -> tuple[Blocked, set[tuple[str, str]]]:
    """Blocked ports of every pair; and the pairs that something else than a group parts."""
    blocked: Blocked = {}
    at_once: set[tuple[str, str]] = set()
    if reach.holds is not False:
        return blocked, at_once
    for source, destination, flow in reach.pairs():
        if flow.blocked:
            blocked[source, destination] = flow.blocked
            if any(obstacle.reason not in TRACKED for obstacle in flow.obstacles):
                at_once.add((source, destination))
    return blocked, at_once


def _less(first: Blocked, second: Blocked) -> Blocked:
    found = {pair: ports.difference(second.get(pair, NO_PORT)) for pair, ports in first.items()}
    return {pair: ports for pair, ports in found.items() if ports}


def _both(first: Blocked, second: Blocked) -> Blocked:
    found = {pair: ports.intersection(second.get(pair, NO_PORT)) for pair, ports in first.items()}
    return {pair: ports for pair, ports in found.items() if ports}


def _union(first: Blocked, second: Blocked) -> Blocked:
    return {pair: first.get(pair, NO_PORT).union(second.get(pair, NO_PORT)) for pair in {**first, **second}}


def _openings(found: Iterable[Opening]) -> tuple[Mapping[str, Any], ...]:
    """As in `exposed`: one entry for each protocol, ports and source."""
    by: dict[tuple[str, str, str], list[str]] = {}
    for protocol, ports, source, instance in sorted(found):
        by.setdefault((protocol, ports, source), []).append(instance)
    return tuple(
        {"protocol": protocol, "ports": ports, "source": source, "instances": instances}
        for (protocol, ports, source), instances in by.items()
    )


def _traffic(opening: Mapping[str, Any]) -> str:
    return "all protocols" if opening["protocol"] == "-1" else f"{opening['protocol']} {opening['ports']}"
