"""What each difference does, told by the reachability engine and by no table of kinds.

The world without any difference is what the stack was told; the world with all of them is what
stands. A difference breaks a pair, or lets somebody in, if that holds in what stands, and if it
follows from this difference alone, or ends when this one alone is undone; what no single one
explains belongs to the one that tipped it. Differences that are alike (one other group on a
thousand interfaces) are judged at once, and each gets the pairs of its own member.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.difference import Deviation, Difference, Meaning, Parted
from audit.worlds import Blocked, Opening, Partition, Parts, World, both, less, look, union
from cluster.ports import PortSet
from cluster.snapshot import ClusterSnapshot


@dataclass(frozen=True)
class Doing:
    """What of the state that stands is the doing of a unit of alike differences."""

    blocked: Blocked = field(default_factory=dict)
    at_once: frozenset[Parts] = frozenset()
    untold: tuple[str, ...] = ()
    openings: frozenset[Opening] = frozenset()


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

    def differences(self, deviations: Sequence[Deviation]) -> tuple[Difference, ...]:
        """Every deviation with its meaning, the gravest first."""
        units: dict[Any, list[Deviation]] = {}
        for index, item in enumerate(deviations):
            if item.undo is not None:
                units.setdefault(item.alike or index, []).append(item)
        doing, parts = _Units(self, list(units.values())).judge() if units else ({}, ())
        found = [self._difference(item, doing.get(id(item)), parts) for item in deviations]
        return tuple(sorted(found, key=lambda item: -item.meaning.grade))

    def world(self, undone: Iterable[Deviation]) -> World:
        """The state with these deviations undone."""
        snapshot = self._snapshot
        for item in undone:
            snapshot = item.undo(snapshot) if item.undo is not None else snapshot
        return look(snapshot, self._members, self._need, self._source_ports, self._fellows)

    @property
    def members(self) -> Sequence[str]:
        return self._members

    def _difference(
        self, item: Deviation, doing: Doing | None, parts: tuple[tuple[str, ...], ...]
    ) -> Difference:
        parted = tuple(_parted(item, doing.blocked, parts)) if doing else ()
        parted += tuple(Parted((source,), (to,), (ports,)) for source, to, ports in item.pairs)
        opened = _openings(doing.openings, item.involves) if doing else ()
        meaning, words = item.at_least, [item.why]
        if doing is not None and doing.untold and not parted and not opened:
            meaning, words = Meaning.UNDETERMINED, [f"what it does cannot be told: {doing.untold[0]}"]
        if opened:
            meaning = max(meaning, Meaning.OPENS_CLUSTER, key=lambda each: each.grade)
            words = [
                f"{one['source']} reaches {_traffic(one)} of {len(one['instances'])} members"
                for one in opened
            ]
        if parted:
            now = doing is not None and bool(doing.at_once)
            breaks = Meaning.BREAKS_MESH if now else Meaning.BREAKS_NEW_CONNECTIONS
            meaning = max(meaning, breaks, key=lambda each: each.grade)
            words = [self._broken(parted, now), *(words if opened else ())]
        return Difference(
            deviation=item, meaning=meaning, detail="; ".join(words), parted=parted, opens_to=opened
        )

    def _broken(self, parted: Sequence[Parted], now: bool) -> str:
        every = len(self._members) * (len(self._members) - 1)
        ports = list(dict.fromkeys(run for item in parted for run in item.ports))
        ports.sort(key=lambda text: int(text.partition("-")[0]))
        shown = ", ".join(ports[:3]) + (" and more" if len(ports) > 3 else "")
        end = (
            "connections that stand are cut, too"
            if now
            else "connections that stand go on, which hides it until the job starts again"
        )
        count = sum(item.pair_count for item in parted)
        return f"{count} of {every} ordered pairs can open no new connection on {shown}; {end}"


class _Units:
    """Finds whose doing it is, among units of differences that are alike."""

    def __init__(self, judge: Judge, units: Sequence[list[Deviation]]) -> None:
        self._judge = judge
        self._units = units
        self._told = judge.world(item for unit in units for item in unit)
        self._stands = judge.world(())
        self._alone = [self._without_all_but(number) for number in range(len(units))]
        self._mended = [judge.world(unit) for unit in units]

    def judge(self) -> tuple[dict[int, Doing], tuple[tuple[str, ...], ...]]:
        """The doing of each deviation (by its identity), and the parts that it speaks of."""
        doing, partition = self._single(())
        if self._unexplained(doing, partition):
            # Rare: only then is the order of the differences worth as many more looks.
            steps = [self._judge.world(self._later(number)) for number in range(len(self._units))]
            doing, partition = self._single(steps)
            self._tip(doing, partition, steps)
        return (
            {id(item): doing[number] for number, unit in enumerate(self._units) for item in unit},
            partition.parts,
        )

    def _without_all_but(self, number: int) -> World:
        others = [item for place, unit in enumerate(self._units) if place != number for item in unit]
        return self._judge.world(others)

    def _later(self, number: int) -> list[Deviation]:
        return [item for unit in self._units[number + 1 :] for item in unit]

    def _single(self, more: Sequence[World]) -> tuple[list[Doing], Partition]:
        """What follows from each unit alone, or ends without it."""
        worlds = (self._told, self._stands, *self._alone, *self._mended, *more)
        partition = Partition(self._judge.members, worlds)
        told, told_now = partition.blocked(self._told)
        stands, stands_now = partition.blocked(self._stands)
        doing = []
        for alone, mended in zip(self._alone, self._mended):
            alone_blocked, alone_now = partition.blocked(alone)
            mended_blocked, mended_now = partition.blocked(mended)
            own = union(less(alone_blocked, told), less(stands, mended_blocked))
            blocked = both(own, stands)
            opened = (alone.openings - self._told.openings) | (self._stands.openings - mended.openings)
            doing.append(
                Doing(
                    blocked=blocked,
                    at_once=((alone_now - told_now) | (stands_now - mended_now)) & frozenset(blocked),
                    untold=tuple(gap for gap in alone.untold if gap not in self._told.untold),
                    openings=opened & self._stands.openings,
                )
            )
        return doing, partition

    def _left(self, doing: Sequence[Doing], partition: Partition) -> tuple[Blocked, frozenset[Opening]]:
        """What differs between told and standing, and is nobody's doing yet."""
        blocked = less(partition.blocked(self._stands)[0], partition.blocked(self._told)[0])
        openings = self._stands.openings - self._told.openings
        for own in doing:
            blocked, openings = less(blocked, own.blocked), openings - own.openings
        return blocked, openings

    def _unexplained(self, doing: Sequence[Doing], partition: Partition) -> bool:
        return any(self._left(doing, partition))

    def _tip(self, doing: list[Doing], partition: Partition, steps: Sequence[World]) -> None:
        """Give what no unit explains to the one with which it began, in their order."""
        left, openings = self._left(doing, partition)
        before = self._told
        for number, after in enumerate(steps):
            was, was_now = partition.blocked(before)
            now, now_now = partition.blocked(after)
            begun = both(less(now, was), left)
            own = doing[number]
            doing[number] = dataclasses.replace(
                own,
                blocked=union(own.blocked, begun),
                at_once=own.at_once | ((now_now - was_now) & frozenset(begun)),
                openings=own.openings | ((after.openings - before.openings) & openings),
            )
            before = after


def _parted(item: Deviation, blocked: Blocked, parts: tuple[tuple[str, ...], ...]) -> Iterable[Parted]:
    """Between whom, as far as the deviation's own member takes part in it."""
    for (a, b), ports in blocked.items():
        runs = tuple(map(str, ports))
        sources, destinations = parts[a], parts[b]
        if not item.involves:
            yield Parted(sources, destinations, runs)
            continue
        if item.involves in sources:
            yield Parted((item.involves,), destinations, runs)
        if item.involves in destinations:
            yield Parted(tuple(each for each in sources if each != item.involves), (item.involves,), runs)


def _openings(found: Iterable[Opening], involves: str) -> tuple[Mapping[str, Any], ...]:
    """As in `exposed`: one entry for each protocol, ports and source."""
    by: dict[tuple[str, str, str], list[str]] = {}
    for protocol, ports, source, instance in sorted(found):
        if involves in ("", instance):
            by.setdefault((protocol, ports, source), []).append(instance)
    return tuple(
        {"protocol": protocol, "ports": ports, "source": source, "instances": instances}
        for (protocol, ports, source), instances in by.items()
    )


def _traffic(opening: Mapping[str, Any]) -> str:
    return "all protocols" if opening["protocol"] == "-1" else f"{opening['protocol']} {opening['ports']}"
