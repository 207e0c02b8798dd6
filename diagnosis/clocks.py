"""Clocks of the members against each other: who is off, and all times on one line.

Each probe measured its peer's clock (NTP's exchange, see `probe/echo.py`), right to within half of
its round trip. The cluster's time is that of the middle clock; no clock outside of the cluster,
and none of the meeting place, is needed.
"""

from __future__ import annotations

import dataclasses
import heapq
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from diagnosis.membership import Member, Roster
from diagnosis.report import CollectiveResult, NodeReport, PairProbe

# From the list of causes: lines of several logs, milliseconds apart, can no longer be put in order.
SKEW_S = 0.1


@dataclass(frozen=True)
class Offset:
    """A clock minus another one, right to within error_s either way."""

    offset_s: float
    error_s: float

    def reversed(self) -> Offset:
        return Offset(offset_s=-self.offset_s, error_s=self.error_s)

    def beyond(self, limit_s: float) -> bool:
        """Whether it is certainly larger than the limit, in one direction or the other."""
        return abs(self.offset_s) - self.error_s > limit_s


class Clocks:
    """offsets: place of a member -> its clock minus the cluster's; missing where nobody could read it."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.pairs = _measured(members)
        self.offsets = _from_the_middle(len(members), self.pairs)

    def offset_s(self, place: int) -> Optional[float]:
        """A member's clock minus the middle one's; None where nobody could read it."""
        offset = self.offsets.get(place)
        return round(offset.offset_s, 6) if offset is not None else None

    def off(self) -> Tuple[int, ...]:
        """Places whose clocks are certainly further off than `SKEW_S`."""
        return tuple(place for place in sorted(self.offsets) if self.offsets[place].beyond(SKEW_S))

    def most_agree(self) -> bool:
        """Whether more than half of the clocks that are known agree, so that the others are wrong."""
        return 2 * (len(self.offsets) - len(self.off())) > len(self.offsets)

    def aligned(self, roster: Roster) -> Roster:
        """The roster with all times of its rows on the cluster's line.

        Times of a member whose clock is not known, or not known to be off, stay.
        """
        members = tuple(self._aligned(place, member) for place, member in enumerate(roster.members))
        return dataclasses.replace(roster, members=members)

    def _aligned(self, place: int, member: Member) -> Member:
        offset = self.offsets.get(place)
        if member.report is None or offset is None or not offset.beyond(0.0):
            return member
        return dataclasses.replace(member, report=_shifted(member.report, -offset.offset_s))


def _shifted(report: NodeReport, by_s: float) -> NodeReport:
    def moved(at: Optional[float]) -> Optional[float]:
        return None if at is None else at + by_s

    def probe(seen: PairProbe) -> PairProbe:
        return dataclasses.replace(seen, started_at=moved(seen.started_at))

    return dataclasses.replace(
        report,
        booted_at=moved(report.booted_at),
        started_at=moved(report.started_at),
        finished_at=moved(report.finished_at),
        listens_until=moved(report.listens_until),
        probes=None if report.probes is None else tuple(map(probe, report.probes)),
        idle=None
        if report.idle is None
        else tuple(dataclasses.replace(item, at_s=item.at_s + by_s) for item in report.idle),
        collective=None if report.collective is None else _shifted_job(report.collective, by_s),
    )


def _shifted_job(result: CollectiveResult, by_s: float) -> CollectiveResult:
    steps = {step: at_s + by_s for step, at_s in result.steps.items()}
    process = result.process
    if process is not None and process.ended_at is not None:
        process = dataclasses.replace(process, ended_at=process.ended_at + by_s)
    return dataclasses.replace(result, steps=steps, process=process)


def _measured(members: Sequence[Member]) -> Dict[Tuple[int, int], Offset]:
    """(one, other) -> other's clock minus one's, the most exact reading of both directions."""
    places = {member.member_id: place for place, member in enumerate(members)}
    best: Dict[Tuple[int, int], Offset] = {}
    for place, member in enumerate(members):
        for probe in (member.report.probes or ()) if member.report else ():
            peer = places.get(probe.destination)
            if peer is None or peer == place or probe.clock_offset_s is None or probe.clock_error_s is None:
                continue
            read = Offset(offset_s=probe.clock_offset_s, error_s=probe.clock_error_s)
            for key, value in (((place, peer), read), ((peer, place), read.reversed())):
                if key not in best or value.error_s < best[key].error_s:
                    best[key] = value
    return best


def _from_the_middle(count: int, pairs: Mapping[Tuple[int, int], Offset]) -> Dict[int, Offset]:
    """Clocks of the members that are tied to each other by readings, against the middle one of theirs."""
    around: Dict[int, List[Tuple[int, Offset]]] = {}
    for (one, other), read in pairs.items():
        around.setdefault(one, []).append((other, read))
    largest: Dict[int, Offset] = {}
    seen: Set[int] = set()
    for place in range(count):
        if place in around and place not in seen:
            part = _along_the_best(place, around)
            seen.update(part)
            largest = part if len(part) > len(largest) else largest
    if not largest:
        return {}
    ordered = sorted(largest, key=lambda place: (largest[place].offset_s, place))
    return _along_the_best(ordered[(len(ordered) - 1) // 2], around)


def _along_the_best(root: int, around: Mapping[int, Sequence[Tuple[int, Offset]]]) -> Dict[int, Offset]:
    """Clock minus the root's, along the readings whose errors add up to the least."""
    found: Dict[int, Offset] = {}
    waiting: List[Tuple[float, int, float]] = [(0.0, root, 0.0)]
    while waiting:
        error_s, place, offset_s = heapq.heappop(waiting)
        if place in found:
            continue
        found[place] = Offset(offset_s=offset_s, error_s=error_s)
        for other, read in around.get(place, ()):
            if other not in found:
                heapq.heappush(waiting, (error_s + read.error_s, other, offset_s + read.offset_s))
    return found
