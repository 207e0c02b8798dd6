"""The stages `mesh` and `failed` of a node (probe/collective_stage.py is the third).

Each ends with the cluster's verdict, on every node: the judging node's own, or the one
that the judging node posted.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Dict, Mapping, Optional, Sequence, Tuple, TypeVar

from diagnosis.report import (
    ConnectOutcome,
    Diagnosis,
    NodeReport,
    PairProbe,
    StepFailure,
    Verdict,
)
from probe.alone import without_meeting
from probe.board import BoardContentError, BoardError
from probe.contact import read_contacts
from probe.counters import CounterWatch
from probe.farewell import await_others
from probe.members import Member
from probe.mesh import Mesh, peak_memory_bytes
from probe.place import Place
from probe.preflight import read_host_facts
from probe.routes import read_routes
from probe.rows import (
    BOARD_PATIENCE_S,
    FAILED_ROW,
    MESH_ROW,
    Listing,
    Say,
    Waiter,
    dump,
    read_verdict,
)
from probe.stream import plan_streams
from probe.unmet import addresses_of, known_members, look_for_known, probe_with_unmet
from probe.verdict import COLLECTIVE, MESH, Background, Bench, Nobody, Publisher, settle

# Probing takes 2 s where every connection is dropped, 16 s where every one stays silent, and
# took 14 s on a machine with 50 busy processes; a member whose row is later than this has died.
ROWS_PATIENCE_S = 40.0
# Members that another one did not wait for (it was told a smaller number, or its deadline
# passed) will not be waited for either; this covers the moment between two listings.
BEGUN_PATIENCE_S = 3.0
# getaddrinfo is given up after 6 s, tools after 5 s.
PREFLIGHT_PATIENCE_S = 12.0
# A place that swallows packets takes 2 s, a resolver that does not answer 6 s; two places at most.
CONTACTS_PATIENCE_S = 17.0

T = TypeVar("T")


def bench_for(place: Place, say: Say, *, signals: bool) -> Bench:
    """The tools of a stage; AWS's client is loaded only where the place has a configuration."""
    publisher: Publisher = Nobody()
    if place.config is not None and place.credentials is not None:
        from probe.publish import AwsPublisher  # noqa: PLC0415 - http, ssl and xml, only where needed

        publisher = AwsPublisher(place.config, place.credentials)
    patience_s = min(BOARD_PATIENCE_S, place.deadline_s / 2)
    waiter = Waiter(place.board, place.nodes, say, patience_s)
    return Bench(place=place, waiter=waiter, publisher=publisher, say=say, signals=signals)


def prove_mesh(bench: Bench, environ: Mapping[str, str]) -> Diagnosis:
    """Listen, register, meet, probe every peer, post the row, and bring it to a verdict."""
    place, say = bench.place, bench.say
    clock = StageClock(place.deadline_s)
    facts = Background(lambda: read_host_facts(place.address, environ), "preflight")
    counters = CounterWatch(place.address)
    report = NodeReport(
        run=place.run,
        member_id=place.member_id,
        address=place.address,
        name=place.name,
        rank=place.rank,
        world_size=place.world_size,
        nodes_expected=place.nodes,
        processes=place.processes,
        master_address=place.master_address,
        master_port=place.master_port,
        booted_at=booted_at(),
        started_at=clock.started_at,
        job=place.job,
    )
    master_port = place.master_port if place.listens_on_master else None
    avoided = () if place.master_port is None else (place.master_port,)
    variables = {**environ, **place.variables}
    with Mesh(place.address, place.ephemeral_ports, master_port, avoided=avoided, relay=place.relay) as mesh:
        try:
            own = mesh.member(place.member_id)
            say(f"listening on {place.address}: {own.master_port or 'no master port'} {own.ports}")
            bench.kept.row = report = dataclasses.replace(report, listeners=mesh.listeners)
            bench.waiter.insist(lambda: place.board.post(own.registration(), b""))
            members = _meet(bench, clock)
            clock.lap("meet")
            # After the meeting: rank 0's listener stands in for the store now.
            contacts = Background(lambda: read_contacts(variables), "contacts") if place.launcher else None
            unmet = known_members(place, members) if len(members) < place.nodes else ()
            probes = probe_with_unmet(mesh, place.member_id, members, unmet)
            report = dataclasses.replace(report, members=addresses_of((*members, *unmet), probes))
            routes = read_routes(place.address, list(report.members.values()))
            clock.lap("mesh")
            works = {peer for peer in report.members if all_connected(probes, peer)}
            plan = [item for item in plan_streams(place.member_id, members) if item.destination in works]
            streams = mesh.stream(plan, len(members))
            clock.lap("streams")
            idle = None
            if place.idle_s:
                say(f"leaving {len(plan)} connections alone for {place.idle_s:g} s")
                clock.last(place.deadline_s + place.idle_s)
                idle = mesh.idle(plan, place.idle_s)
                clock.lap("idle")
            bad = sum(probe.outcome != "CONNECTED" for probe in probes)
            say(f"probed {len(members) - 1} peers, {len(probes)} connections, {bad} failed")
            bench.kept.row = report = dataclasses.replace(
                report,
                probes=probes,
                routes=routes,
                streams=streams,
                idle=idle,
                contacts=_told(contacts, CONTACTS_PATIENCE_S, say) if contacts else None,
                host=_told(facts, PREFLIGHT_PATIENCE_S, say),
                counters=counters.growth(),
                finished_at=time.time(),
                listens_until=time.time() + clock.rows_patience_s,
                timings_s=dict(clock.laps),
                peak_memory_bytes=peak_memory_bytes(),
            )
            bench.waiter.insist(lambda: place.board.post(MESH_ROW, dump(report)))
            complete = await_rows(bench, MESH, MESH_ROW, clock)
            diagnosis = settle(bench, MESH, report, turn(place, members), complete=complete)
            if place.relay is not None and diagnosis.verdict is not Verdict.PASS:
                await_others(bench)  # this listener may be their only way to the verdict
            return diagnosis
        except BoardError as error:
            if report.probes is None:
                give_up_at = clock.deadline - clock.rows_patience_s
                met, seen = look_for_known(mesh, place, say, give_up_at, clock.rows_patience_s)
                clock.lap("mesh")
                report = dataclasses.replace(
                    report,
                    members=met,
                    probes=seen,
                    timings_s=dict(clock.laps),
                    contacts=read_contacts(variables) if place.launcher else None,
                    host=_told(facts, PREFLIGHT_PATIENCE_S, say),
                    finished_at=time.time(),
                )
                bench.kept.row = report
            return without_meeting(bench, MESH, error, report)


class StageClock:
    """One stage's times: when it began, when it must be over, how long its parts took."""

    def __init__(self, deadline_s: float) -> None:
        self.started_at = time.time()
        self._started = self._lap = time.monotonic()
        # Rows are awaited after members: both must fit before the deadline.
        self.rows_patience_s = min(ROWS_PATIENCE_S, deadline_s / 3)
        self.deadline = self._started + deadline_s
        self.laps: Dict[str, float] = {}

    def last(self, seconds: float) -> None:
        """Let the stage take at least this long in all."""
        self.deadline = max(self.deadline, self._started + seconds)

    def limit(self, seconds: float) -> None:
        """Let the deadline be at most this far from now."""
        self.deadline = min(self.deadline, time.monotonic() + seconds)

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._lap, 3)
        self._lap = now


def all_connected(probes: Sequence[PairProbe], peer: str) -> bool:
    """Whether every probe of that peer was."""
    return all(probe.outcome is ConnectOutcome.CONNECTED for probe in probes if probe.destination == peer)


def _told(work: Background[T], patience_s: float, say: Say) -> Optional[T]:
    """What was found out beside the mesh, which is told even where this failed."""
    try:
        told = work.result(patience_s)
        if told is None:
            say(f"{work.name} did not end within {patience_s:g} s")
        return told
    except Exception as error:  # noqa: BLE001 - as above
        say(f"{work.name} failed: {error!r}")
        return None


def turn(place: Place, members: Tuple[Member, ...]) -> int:
    if place.rank is not None:
        return place.rank
    ids = [member.member_id for member in members]
    return ids.index(place.member_id)


def _meet(bench: Bench, clock: StageClock) -> Tuple[Member, ...]:
    """All members, or those who are there when waiting longer is of no use."""
    place = bench.place
    begun_at: Optional[float] = None
    shown = 0

    def enough(listing: Listing) -> bool:
        nonlocal begun_at, shown
        count = len(listing.members())
        if count != shown:
            bench.say(f"{count} of {place.nodes} members registered")
            shown = count
        if count >= place.nodes:
            return True
        if listing.having(MESH_ROW) or listing.having(FAILED_ROW):
            begun_at = begun_at or time.monotonic()
        return begun_at is not None and time.monotonic() - begun_at > BEGUN_PATIENCE_S

    listing, met = bench.waiter.until(enough, clock.deadline - clock.rows_patience_s)
    if not met:
        bench.say(f"the deadline passed with {shown} of {place.nodes} members registered")
    members = listing.members()
    if all(member.member_id != place.member_id for member in members):
        raise BoardContentError(f"it lists {len(members)} members, but not this one, which has registered")
    return members


def await_verdict(bench: Bench, stage: str) -> Diagnosis:
    """The verdict that other processes of this node's cluster reach; UNKNOWN after the deadline."""
    try:
        listing, _ = bench.waiter.until(
            lambda seen: seen.verdict(stage) is not None, time.monotonic() + bench.place.deadline_s
        )
        name = listing.verdict(stage)
        if name is not None:
            return read_verdict(bench.place.board, name)
        return Diagnosis(
            verdict=Verdict.UNKNOWN, unanswered=(f"no verdict of the {stage} before the deadline",)
        )
    except BoardError as error:
        return without_meeting(bench, stage, error, None)


def await_rows(bench: Bench, stage: str, row: str, clock: StageClock) -> bool:
    """Wait for every member's row of the stage; whether all are there."""
    patience = time.monotonic() + clock.rows_patience_s
    deadline = min(clock.deadline, patience) if stage == MESH else clock.deadline

    def enough(listing: Listing) -> bool:
        if listing.verdict(stage) is not None or listing.having(FAILED_ROW):
            return True
        return all_there(listing)

    def all_there(listing: Listing) -> bool:
        members = {member.member_id for member in listing.members()}
        return len(members) >= bench.place.nodes and members <= listing.having(row)

    listing, _ = bench.waiter.until(enough, deadline)
    return all_there(listing)


def report_failure(bench: Bench, failure: StepFailure, environ: Mapping[str, str]) -> Diagnosis:
    """Post that a step of this node's start-up failed, and bring the stage it belongs to to a verdict.

    A stage of the probe itself that ended with FAIL or UNKNOWN has told everything already.
    """
    place, say = bench.place, bench.say
    try:
        listing = bench.waiter.look()
        standing = listing.verdict(failure.step) if failure.step in (MESH, COLLECTIVE) else None
        if standing is not None:
            said = read_verdict(place.board, standing)
            if said.verdict is not Verdict.PASS:
                say(f"step {failure.step}: its verdict stands already ({said.verdict.value})")
                return said
        report = NodeReport(
            run=place.run,
            member_id=place.member_id,
            address=place.address,
            name=place.name,
            rank=place.rank,
            booted_at=booted_at(),
            started_at=time.time(),
            finished_at=time.time(),
            host=read_host_facts(place.address, environ),
            failures=(failure,),
        )
        bench.waiter.insist(lambda: place.board.post(FAILED_ROW, dump(report)))
        mesh = listing.verdict(MESH)
        proven = mesh is not None and read_verdict(place.board, mesh).verdict is Verdict.PASS
        return settle(bench, COLLECTIVE if proven else MESH, report, 0, complete=False)
    except BoardError as error:
        return without_meeting(bench, MESH, error, None)


def booted_at() -> Optional[float]:
    """When this node's first process began, in seconds since the epoch: the boot, also of a container.

    Not by btime of /proc/stat, which is cut to a whole second.
    """
    try:
        with open("/proc/1/stat", encoding="utf-8", errors="replace") as file:
            ticks = float(file.read().rpartition(")")[2].split()[19])  # field 22, starttime
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
