"""How a check ends: whoever serves the meeting place stays until all others have read the verdict."""

from __future__ import annotations

import time

from probe.board import BoardError
from probe.verdict import Bench

LEFT = "left"
HERE = "here"  # of a process that is no member of the mesh, but awaits its verdict
# How long rank 0 serves the meeting place after its own answer: several polls of a loaded peer.
LEAVE_PATIENCE_S = 10.0


def announce(bench: Bench) -> None:
    """Ask the member that serves the meeting place to stay until this process, too, has left."""
    try:
        bench.waiter.insist(lambda: bench.place.board.post(HERE, b""))
    except BoardError as error:
        bench.say(f"not announced: {error}")


def leave(bench: Bench) -> None:
    """Say goodbye; the member that serves the meeting place stays until all others have read the verdict."""
    place = bench.place
    try:
        place.board.post(LEFT, b"")
        if place.serves:
            await_others(bench)
    except BoardError as error:
        bench.say(f"left without goodbye: {error}")


def await_others(bench: Bench) -> None:
    """Wait, for a moment, until all others have said goodbye.

    Raises:
        BoardError: the meeting place cannot be used.
    """
    own = bench.place.member_id
    bench.waiter.until(
        lambda seen: (
            {member.member_id for member in seen.members()} | seen.having(HERE) <= seen.having(LEFT) | {own}
        ),
        time.monotonic() + LEAVE_PATIENCE_S,
    )
