"""Ranks of a world on this host, each a real process with torch; some of them go another way."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from diagnosis.report import CollectiveResult
from lab.fault_python import other_torch
from probe.collective_process import CollectiveTask, Others, run_in_process


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def other_way(folder: Path, name: str, body: str) -> dict[str, str]:
    """The environment of a rank whose torch.distributed.NAME is `body` (see lab.fault_python)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(other_torch(name, body))
    return {"PYTHONPATH": str(folder)}


def run_ranks(
    count: int,
    world_size: int,
    environments: Mapping[int, Mapping[str, str]] | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    size: int = 1024,
    timeout_s: float = 30.0,
    ready: bool = True,
    patience_s: float | None = None,
    tell_each_other: bool = False,
) -> dict[int, CollectiveResult]:
    """Ranks 0 to count - 1 of a world.

    environments: variables of some ranks. say: hears what each one's probe says.
    tell_each_other: a rank hears of another one's failure.
    """
    port = free_port()
    results: dict[int, CollectiveResult] = {}

    def failed(rank: int) -> bool:
        return tell_each_other and any(other != rank for other in results)

    def one(rank: int) -> None:
        task = CollectiveTask(
            rank=rank,
            world_size=world_size,
            master_address="127.0.0.1",
            master_port=port,
            interface="lo",
            bytes=size,
            timeout_s=timeout_s,
        )
        environ = {**os.environ, **(environments or {}).get(rank, {})}
        others = Others(ready=lambda: ready, failed=lambda: failed(rank))
        results[rank] = run_in_process(task, environ, say, others, patience_s)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
