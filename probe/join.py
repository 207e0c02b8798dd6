"""A node that came late: whether a verdict that stands counts for it, and which run it joins if not.

Auto Scaling replaces an instance days after the deploy. What was proven then holds nothing of
the new node, so it takes part in the next periodic check of the others, under that check's
rules (no MASTER_PORT, no collective: the others may be training), and is proven by it.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Mapping, Optional

from cluster.keys import JOINED
from diagnosis.report import CollectiveResult, Diagnosis, Verdict
from probe.discover import by_ec2
from probe.farewell import leave
from probe.periodic import next_after
from probe.place import Wish
from probe.rows import Listing, read_verdict
from probe.run import bench_for, prove_mesh
from probe.verdict import MESH, Bench, came_too_late, counted, holds


def stands_for(bench: Bench, stage: str, environ: Mapping[str, str]) -> Optional[Diagnosis]:
    """What is to be said of a deployed node without running the stage in the deploy's run.

    That is the verdict that stands; for a node that a PASS does not hold, the verdict of the
    periodic check that it joins (`mesh`) or has joined (`collective`). None: run the stage.

    Raises:
        BoardError: the meeting place cannot be used.
    """
    place, say = bench.place, bench.say
    listing = bench.waiter.look()
    joined = joined_run(listing, place.member_id)
    if joined is not None:
        diagnosis = _verdict_of(bench, joined)
        if diagnosis is not None:
            say(f"this node was proven in run {joined}")
            return diagnosis if stage == MESH else _without_collective(bench, diagnosis)
    name = listing.verdict(stage)
    if name is None:
        return None
    standing = read_verdict(place.board, name)
    if standing.verdict is Verdict.PASS and not holds(standing, place.member_id):
        return join(bench, environ) if stage == MESH else counted(standing, place)
    if stage == MESH and came_too_late(standing, place):
        return None  # the others judged without it, and are told what they missed
    say(f"{stage} was judged before: {place.board.where(name)}; for a new look: check --run NAME")
    return standing


def joined_run(listing: Listing, member_id: str) -> Optional[str]:
    """The last run that this member has joined; None: none."""
    own = f"{member_id}/{JOINED}"
    return max((name[len(own) :] for name in listing.names if name.startswith(own)), default=None)


def join(bench: Bench, environ: Mapping[str, str]) -> Diagnosis:
    """Wait for the next periodic check, prove the mesh in it, and leave a note of it in the deploy's run."""
    place, say = bench.place, bench.say
    if place.config is None:
        raise ValueError("only a deployed node has others that check periodically")
    due = next_after(place.config, time.time())
    wait_s = max(0.0, due.at_s - time.time())
    say(f"run {place.run} was proven without this node; it joins the next check in {wait_s:.0f} s: {due.run}")
    time.sleep(wait_s)
    fresh = by_ec2(Wish(run=due.run, deadline_s=due.timeout_s, listens_on_master=False))
    fresh_bench = bench_for(fresh, say, signals=False)
    diagnosis = prove_mesh(fresh_bench, environ)
    leave(fresh_bench)
    if diagnosis.verdict is Verdict.PASS:
        bench.waiter.insist(lambda: place.board.post(JOINED + due.run, b""))
    return diagnosis


def _verdict_of(bench: Bench, run: str) -> Optional[Diagnosis]:
    """The mesh's PASS in a run that this node joined; None where it no longer stands."""
    fresh = bench_for(by_ec2(Wish(run=run)), bench.say, signals=False)
    name = fresh.waiter.look().verdict(MESH)
    diagnosis = read_verdict(fresh.place.board, name) if name is not None else None
    return diagnosis if diagnosis is not None and holds(diagnosis, bench.place.member_id) else None


def _without_collective(bench: Bench, mesh: Diagnosis) -> Diagnosis:
    """The mesh's verdict, with the all_reduce left out: the other members may be in a job."""
    text = (
        "this node replaced another one: the mesh was proven with it, and no all_reduce was run beside the "
        "others' jobs; for one, when they are idle: check --run NAME on every node"
    )
    bench.say(text)
    return dataclasses.replace(
        mesh,
        collective=CollectiveResult(
            outcome=Verdict.SKIPPED, world_size=bench.place.nodes, error="not run beside the others' jobs"
        ),
        skipped=(*mesh.skipped, f"cluster: {text}"),
    )
