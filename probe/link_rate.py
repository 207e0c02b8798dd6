"""What one link of the ring carries: every rank sends to the next at once, over Gloo's own connections.

An all_reduce takes as long as its slowest link and looks alike on every rank; here each rank
times what came from the rank before it. Needs torch, and a process group that stands.
"""

from __future__ import annotations

import time
from typing import Any, Optional

# Large enough to outlast TCP's start, small enough for a link of 100 Mbit/s to take two seconds.
LINK_BYTES = 8 * 1024 * 1024
ROUNDS = 3  # the first one makes Gloo's buffers; the best counts, for others may be at work meanwhile
_FLOAT32_BYTES = 4


def link_gbit_per_s(torch: Any, dist: Any) -> Optional[float]:
    """Gbit/s from the rank before this one, while all links are busy; None for a world of one."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size < 2:
        return None
    sent = torch.ones(LINK_BYTES // _FLOAT32_BYTES, dtype=torch.float32)
    received = torch.empty_like(sent)
    best_s: Optional[float] = None
    for _ in range(ROUNDS):
        dist.barrier()
        started = time.perf_counter()
        sending = dist.isend(sent, (rank + 1) % world_size)
        dist.recv(received, (rank - 1) % world_size)
        took_s = time.perf_counter() - started
        sending.wait()
        best_s = took_s if best_s is None else min(best_s, took_s)
    return round(LINK_BYTES * 8 / best_s / 1e9, 4) if best_s else None
