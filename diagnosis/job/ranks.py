"""The ranks of one all_reduce: who failed, how far each came, and what they did at the end.

A job that failed has one first cause and an echo of it on every other rank. What was seen of the
processes from outside (`ProcessFacts`) decides before what torch printed, for torch prints what a
rank suffered and not what another one did.
"""

from __future__ import annotations

import functools
import signal
from dataclasses import dataclass
from typing import Optional, Tuple

from diagnosis.case import Case
from diagnosis.report import STEP_ORDER, CollectiveResult, CollectiveStep, ProcessFacts, Verdict

STOPPED_STATES = ("T", "t")
# Of torch's own Python: a rank whose innermost frame is there waits inside torch.
_INSIDE_TORCH = "/torch/distributed/"
_LOOK_LINES = 3


@dataclass(frozen=True)
class Rank:
    """One member's part in the all_reduce."""

    place: int
    result: CollectiveResult

    @property
    def process(self) -> ProcessFacts:
        return self.result.process or ProcessFacts()

    @property
    def failed(self) -> bool:
        return self.result.outcome is Verdict.FAIL

    @property
    def was_ended(self) -> bool:
        """Whether the probe had to end it: it hung."""
        return self.result.process is not None and self.result.process.exit_status is None

    @property
    def stopped(self) -> bool:
        return self.was_ended and self.process.state in STOPPED_STATES

    @property
    def elsewhere(self) -> bool:
        """Whether it hung outside of torch, so that it never entered what the others wait in."""
        stack = self.process.stack
        return self.was_ended and bool(stack) and _INSIDE_TORCH not in stack[0]

    @property
    def killed_by(self) -> Optional[str]:
        """The name of the signal that ended it; None where none did, or it was the probe's own."""
        status = self.process.exit_status
        if status is None or status >= 0:
            return None
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"

    @property
    def vanished(self) -> bool:
        """Whether it ended by itself without a word: by exit, not by an exception that was told."""
        status = self.process.exit_status
        return bool(status) and self.killed_by is None and "without a result" in (self.result.error or "")

    @property
    def speaks(self) -> bool:
        """Whether its error is what torch raised there, and not what the probe says of its end."""
        return not (self.was_ended or self.killed_by or self.vanished)

    @property
    def at_s(self) -> Optional[float]:
        return self.process.ended_at


class Job:
    """All ranks that have a result, and those that have none."""

    def __init__(self, case: Case) -> None:
        self.case = case
        results = ((place, m.report.collective if m.report else None) for place, m in enumerate(case.members))
        known = list(results)
        self.ranks = tuple(Rank(place=place, result=result) for place, result in known if result is not None)
        self.silent = tuple(place for place, result in known if result is None)
        self.failed = tuple(rank for rank in self.ranks if rank.failed)

    @functools.cached_property
    def mesh_stood(self) -> bool:
        """Whether any rank came further than connecting: then every pair of it was connected."""
        last = STEP_ORDER.index(CollectiveStep.CONNECT)
        steps = [rank.result.step for rank in self.ranks]
        return any(step is not None and STEP_ORDER.index(step) > last for step in steps)

    def step_of(self, rank: Rank) -> str:
        step = rank.result.step
        return step.value if step is not None else "its start"

    def look(self, rank: Rank) -> Tuple[str, ...]:
        """What the probe saw of a rank that hung, as lines."""
        seen, subject = rank.process, self.case.subject(rank.place)
        lines = [f"{subject} process {seen.pid} in step {self.step_of(rank)}: state {seen.state}"]
        if seen.wait_channel:
            lines[0] += f", waits in {seen.wait_channel}"
        if seen.idle_s is not None:
            lines[0] += f", idle for {seen.idle_s:.1f} s"
        if seen.receive_queue_bytes is not None:
            lines.append(
                f"{subject} sockets: {seen.connections} connections, "
                f"{seen.receive_queue_bytes} bytes arrived and not read, {seen.send_queue_bytes} not sent"
            )
        lines += [f"{subject} stands at {frame}" for frame in seen.stack[:_LOOK_LINES]]
        return tuple(lines)
