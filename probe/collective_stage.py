"""The stage `collective`: a real all_reduce over Gloo, once every member is about to start it."""

from __future__ import annotations

import dataclasses
import time
from typing import Mapping, Set, Tuple

from diagnosis.membership import rank_in_id
from diagnosis.report import CollectiveResult, Diagnosis, NodeReport, Verdict
from probe.alone import without_meeting
from probe.board import BoardError
from probe.collective_process import CollectiveTask, Others, run_in_process
from probe.counters import CounterWatch
from probe.interfaces import interface_of, read_interfaces
from probe.members import Member
from probe.rows import (
    COLLECTIVE_READY,
    COLLECTIVE_ROW,
    FAILED_ROW,
    MESH_ROW,
    Listing,
    dump,
    read_reports,
    read_verdict,
    row_names,
)
from probe.run import StageClock, await_rows, await_verdict, turn
from probe.verdict import COLLECTIVE, MESH, Bench, counted, holds, settle
from probe.versions import torch_version

# What is left of a stage's time when a rank that hangs is ended: to look at it, to post its row.
END_MARGIN_S = 10.0


def prove_collective(bench: Bench, environ: Mapping[str, str], unable: str = "") -> Diagnosis:
    """A real all_reduce over Gloo between all members, and the verdict over both stages.

    Begins only on a mesh that passed; without that verdict the answer is the mesh's.
    unable: why it cannot be run though it was asked for; every member's result is then UNKNOWN.
    """
    place, say = bench.place, bench.say
    clock = StageClock(place.deadline_s)
    try:
        listing = bench.waiter.look()
        mesh = listing.verdict(MESH)
        if mesh is None:
            return Diagnosis(
                verdict=Verdict.UNKNOWN,
                unanswered=(
                    f"no verdict of the mesh in run {place.run}; run `node mesh` on every member first",
                ),
            )
        passed = read_verdict(place.board, mesh)
        if passed.verdict is not Verdict.PASS:
            say(f"the mesh is {passed.verdict.value}, so no collective is run")
            return passed
        members = listing.members()
        if not place.local_rank and not holds(passed, place.member_id):
            return counted(passed, place)
        counters = CounterWatch(place.address)
        result = _collective(bench, members, environ, unable, clock)
        clock.lap("collective")
        clock.limit(place.deadline_s)
        say(f"collective: {result.outcome.value} {result.error or ''}")
        own = _collective_row(bench, listing, result, clock, counters)
        if place.local_rank:
            return await_verdict(bench, COLLECTIVE)
        bench.waiter.insist(lambda: place.board.post(COLLECTIVE_ROW, dump(own)))
        complete = await_rows(bench, COLLECTIVE, COLLECTIVE_ROW, clock)
        return settle(bench, COLLECTIVE, own, turn(place, members), complete=complete)
    except BoardError as error:
        return without_meeting(bench, COLLECTIVE, error, None)


def _await_ready(bench: Bench, clock: StageClock) -> bool:
    """Say that torch is imported here, and wait until it is everywhere; False when it never will be.

    A member whose result is there though not all were ready could not import torch. In a deploy
    the others may still install it, within the limit that their bootstrap.sh keeps to.
    """
    config = bench.place.config
    installs = bench.signals and config is not None and config.torch_source != "image"
    if installs and config is not None:
        clock.last(config.install_limit_s + 2 * clock.rows_patience_s)
    if bench.place.local_rank == 0:
        bench.waiter.insist(lambda: bench.place.board.post(COLLECTIVE_READY, b""))

    def all_ready(listing: Listing) -> bool:
        return {member.member_id for member in listing.members()} <= listing.having(COLLECTIVE_READY)

    listing, _ = bench.waiter.until(
        lambda seen: all_ready(seen) or bool(seen.having(FAILED_ROW) or seen.having(COLLECTIVE_ROW)),
        clock.deadline - clock.rows_patience_s,
    )
    clock.lap("ready")
    # A result that is there already is that of a member which waited for this one in vain.
    return all_ready(listing) and not listing.having(COLLECTIVE_ROW)


def _collective(
    bench: Bench, members: Tuple[Member, ...], environ: Mapping[str, str], unable: str, clock: StageClock
) -> CollectiveResult:
    place = bench.place
    if not unable and torch_version() is None:
        unable = "torch is not installed for this Python"
    if unable:
        return CollectiveResult(outcome=Verdict.UNKNOWN, world_size=place.nodes, error=unable)
    task = CollectiveTask(
        rank=turn(place, members),
        world_size=place.nodes,
        master_address=_rank_0(members).address,
        master_port=place.master_port or 0,
        interface=interface_of(place.address, read_interfaces()) or "",
        bytes=place.collective_bytes,
        timeout_s=place.collective_timeout_s,
        by_environment=place.launcher,
    )
    variables = {**environ, **place.variables}
    others = Others(ready=lambda: _await_ready(bench, clock), failed=_Failures(bench).any)
    limit_s = max(task.timeout_s, clock.deadline - time.monotonic() - END_MARGIN_S)
    return run_in_process(task, variables, bench.say, others, limit_s)


class _Failures:
    """Whether another member has posted that its all_reduce failed. Each row is read once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._passed: Set[str] = set()

    def any(self) -> bool:
        board, say = self._bench.place.board, self._bench.say
        try:
            names = row_names(Listing(names=board.names()), (COLLECTIVE_ROW,))
        except BoardError as error:
            say(f"meeting place: {error}")
            return False
        for name in names:
            if name in self._passed:
                continue
            for row in read_reports(board, (name,), say):
                if row.collective is not None and row.collective.outcome is not Verdict.PASS:
                    say(f"collective: {row.name} ({row.address}) has failed")
                    return True
                self._passed.add(name)
        return False


def _rank_0(members: Tuple[Member, ...]) -> Member:
    """The member on which torch's store is to run: the one that claims rank 0, else the first by address."""
    return next((member for member in members if rank_in_id(member.member_id) == 0), members[0])


def _collective_row(
    bench: Bench, listing: Listing, result: CollectiveResult, clock: StageClock, counters: CounterWatch
) -> NodeReport:
    """This node's row of the mesh stage with the collective filled in."""
    place = bench.place
    own = f"{place.member_id}/{MESH_ROW}"
    rows = read_reports(place.board, (own,), bench.say) if own in listing.names else ()
    report = (
        rows[0]
        if rows
        else NodeReport(run=place.run, member_id=place.member_id, address=place.address, name=place.name)
    )
    row = dataclasses.replace(
        report,
        collective=result,
        counters=counters.growth(report.counters),
        finished_at=time.time(),
        timings_s={**report.timings_s, **clock.laps},
    )
    bench.kept.row = row
    return row
