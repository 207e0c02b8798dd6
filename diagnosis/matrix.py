"""Who reached whom, on which port: every probe of every row, and what was never tried."""

from __future__ import annotations

import errno
import os
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Set, Tuple

from diagnosis.membership import Member, Roster, pair_subject
from diagnosis.report import (
    EVERY_LISTENER_UP_TO_NODES,
    ConnectOutcome,
    Listener,
    PairProbe,
    PairVerdict,
    PortKind,
)

Pair = Tuple[int, int]


class Flow(NamedTuple):
    """New connections from one member to one port of another; members by place in the roster."""

    source: int
    destination: int
    port: int
    kind: PortKind

    @property
    def pair(self) -> Pair:
        return (self.source, self.destination)


# What a host's own firewall answers to a connection over loopback, where no other filter is.
_STOPPED_AT_HOME = (errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EHOSTUNREACH)


class ReachabilityMatrix:
    """The probes of all rows as a matrix.

    A probe counts as evidence of a filter only against a proven listener: one that the
    destination's row names as opened (or, without a row, that its registration named), or as
    bound and stopped by the host itself, which only its own firewall can do.
    """

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.members = roster.members
        self._place = {member.member_id: place for place, member in enumerate(self.members)}
        self.probes: Dict[Flow, PairProbe] = {}
        self.unattempted: Tuple[str, ...] = ()
        for place, member in enumerate(self.members):
            for probe in (member.report.probes or ()) if member.report else ():
                destination = self._place.get(probe.destination)
                if destination is not None and destination != place:
                    self.probes[Flow(place, destination, probe.port, probe.kind)] = probe
        self.streams = {
            (place, self._place[stream.destination]): stream
            for place, member in enumerate(self.members)
            for stream in ((member.report.streams or ()) if member.report else ())
            if self._place.get(stream.destination, place) != place
            and stream.lost is not None
            and stream.segments
        }
        self.by_pair: Dict[Pair, List[Flow]] = {}
        for flow in self.probes:
            self.by_pair.setdefault(flow.pair, []).append(flow)
        self._opened: Set[Tuple[int, int, PortKind]] = {
            (place, listener.port, listener.kind)
            for place, member in enumerate(self.members)
            for listener in listeners(member)
            if listener.opened or stopped_at_home(listener)
        }
        self._masters_open = any(
            listener.kind is PortKind.MASTER for member in self.members for listener in listeners(member)
        )
        self.unattempted = tuple(self._unattempted())

    def pairs(self) -> Iterator[Pair]:
        """Every ordered pair of members."""
        places = range(len(self.members))
        return ((source, destination) for source in places for destination in places if source != destination)

    def attempted_pairs(self) -> FrozenSet[Pair]:
        return frozenset(self.by_pair)

    def outcome(self, flow: Flow) -> Optional[ConnectOutcome]:
        probe = self.probes.get(flow)
        return probe.outcome if probe else None

    def with_outcome(self, *outcomes: ConnectOutcome) -> Set[Flow]:
        """Flows with one of these outcomes, against proven listeners."""
        return {
            flow for flow, probe in self.probes.items() if probe.outcome in outcomes and self.proven(flow)
        }

    def without_route(self) -> Set[Flow]:
        """Flows whose source says that no route leads there; what comes from there has no reply either."""
        return {
            flow
            for flow in self.with_outcome(ConnectOutcome.UNREACHABLE)
            if self.probes[flow].errno == errno.ENETUNREACH
        }

    def proven(self, flow: Flow) -> bool:
        destination = self.members[flow.destination]
        if destination.report is None:
            return True
        if self.probes[flow].address != destination.address:
            return False
        return (flow.destination, flow.port, flow.kind) in self._opened

    def pair_works(self, pair: Pair) -> bool:
        outcomes = [self.probes[flow].outcome for flow in self.by_pair.get(pair, ())]
        return bool(outcomes) and all(outcome is ConnectOutcome.CONNECTED for outcome in outcomes)

    def _unattempted(self) -> Iterator[str]:
        for member in self.members:
            if member.report is None:
                yield f"{member.subject}: {member.name} ({member.address}) sent no row"
            elif member.report.listeners is None:
                yield f"{member.subject}: its listeners were not looked at"
            else:
                yield from self._listener_gaps(member)
            if member.report is not None and member.report.probes is None:
                yield f"{member.subject}: it probed nobody"
        untried: Dict[int, List[str]] = {}
        for pair in self.pairs():
            source = self.members[pair[0]]
            if source.report is None or source.report.probes is None:
                continue
            untried.setdefault(pair[0], []).extend(self._pair_gaps(pair))
        for gaps in untried.values():
            yield from gaps
        for flow, probe in self.probes.items():
            name = pair_subject(self.members[flow.source], self.members[flow.destination])
            if probe.outcome is ConnectOutcome.LOCAL_ERROR:
                reason = os.strerror(probe.errno) if probe.errno else "no reason given"
                yield f"{name}: port {flow.port} could not be tried ({reason})"
            elif not self.proven(flow):
                yield f"{name}: port {flow.port} was tried, but no listener is proven there"

    def _listener_gaps(self, member: Member) -> Iterator[str]:
        kinds = {listener.kind for listener in listeners(member)}
        opened = {item.kind for item in listeners(member) if item.opened or stopped_at_home(item)}
        if PortKind.EPHEMERAL not in opened:
            yield f"{member.subject}: no listener on an ephemeral port was proven"
        shared = self._shares_master(member)
        held = any(holder is member for holder, _ in self.held_ports())  # a cause of its own says so
        left_to_a_job = member.report is not None and member.report.job is not None
        wanted = PortKind.MASTER in kinds or (self._masters_open and not left_to_a_job)
        if PortKind.MASTER not in opened and wanted and not shared and not held:
            yield f"{member.subject}: no listener on MASTER_PORT was proven"

    def _shares_master(self, member: Member) -> bool:
        """Whether another member at the same address holds MASTER_PORT (several ranks a host)."""
        return any(
            other.member_id != member.member_id
            and other.address == member.address
            and any(item.kind is PortKind.MASTER and item.opened for item in listeners(other))
            for other in self.members
        )

    def _pair_gaps(self, pair: Pair) -> Iterator[str]:
        source, destination = self.members[pair[0]], self.members[pair[1]]
        name = pair_subject(source, destination)
        tried = {(flow.port, flow.kind) for flow in self.by_pair.get(pair, ())}
        kinds = {kind for _, kind in tried}
        if destination.report is None or destination.report.listeners is None:
            if not tried:
                yield f"{name}: not tried"
            elif PortKind.EPHEMERAL not in kinds:
                yield f"{name}: no ephemeral port was tried"
            elif PortKind.MASTER not in kinds and self._masters_open:
                yield f"{name}: MASTER_PORT was not tried"
            return
        every = len(self.members) <= EVERY_LISTENER_UP_TO_NODES
        opened = [item for item in listeners(destination) if item.opened or stopped_at_home(item)]
        for listener in opened:
            wanted = every or listener.kind is PortKind.MASTER
            if wanted and (listener.port, listener.kind) not in tried:
                yield f"{name}: port {listener.port} was not tried"
        has_ephemeral = any(listener.kind is PortKind.EPHEMERAL for listener in opened)
        if not every and has_ephemeral and PortKind.EPHEMERAL not in kinds:
            yield f"{name}: no ephemeral port was tried"

    def verdicts(self) -> Tuple[PairVerdict, ...]:
        """Every ordered pair for the report; ranks, outcome by port, best round trip."""
        found = []
        for source, destination in self.pairs():
            flows = sorted(self.by_pair.get((source, destination), ()), key=lambda flow: flow.port)
            outcomes: Dict[str, Optional[ConnectOutcome]] = {
                str(flow.port): self.probes[flow].outcome for flow in flows
            }
            shared = self._shares_master(self.members[destination])  # another member answers there
            for listener in listeners(self.members[destination]):
                ours = not (shared and listener.kind is PortKind.MASTER)
                if ours and len(self.members) <= EVERY_LISTENER_UP_TO_NODES:
                    outcomes.setdefault(str(listener.port), None)
            seen = [self.probes[flow].round_trip_s for flow in flows]
            trips = [trip for trip in seen if trip is not None]
            found.append(
                PairVerdict(
                    source=self.members[source].rank,
                    destination=self.members[destination].rank,
                    outcomes=outcomes,
                    round_trip_s=min(trips) if trips else None,
                    lost_share=self.lost_share((source, destination)),
                )
            )
        return tuple(found)

    def lost_share(self, pair: Pair) -> Optional[float]:
        """Of the segments that this pair's stream sent; None where there was none."""
        stream = self.streams.get(pair)
        return (stream.lost or 0) / stream.segments if stream is not None else None

    def held_ports(self) -> Iterator[Tuple[Member, Listener]]:
        """MASTER_PORT listeners that could not be opened because somebody else holds the port."""
        for member in self.members:
            for item in listeners(member):
                held = item.kind is PortKind.MASTER and not item.opened and item.errno == errno.EADDRINUSE
                if held and not self._shares_master(member):
                    yield member, item


def listeners(member: Member) -> Tuple[Listener, ...]:
    return (member.report.listeners or ()) if member.report else ()


def stopped_at_home(listener: Listener) -> bool:
    """Whether the host itself is stopped on the way to its own bound listener."""
    return listener.bound and not listener.opened and listener.errno in _STOPPED_AT_HOME
