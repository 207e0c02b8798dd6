"""One rank of `check --local N`: a process that proves its part and prints the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import List

from cluster.ports import PortRange
from cluster.serial import decode, encode
from probe.board import DirectoryBoard
from probe.check import prove
from probe.place import Place, Wish, left_out
from probe.rows import Say
from probe.run import bench_for


@dataclass(frozen=True)
class LocalTask:
    """What one rank is told.

    folder: of all ranks, for their files and the meeting place (a port could be closed by a firewall).
    """

    rank: int
    count: int
    address: str
    folder: str
    master_port: int
    ephemeral_ports: PortRange
    listens_on_master: bool
    deadline_s: float
    collective: bool


def rank_command(task: LocalTask) -> List[str]:
    """The command of a rank, from a checkout and from inside the one-file build alike."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from probe.local_rank import main; main()"
    return [sys.executable, "-c", start, root, json.dumps(encode(task))]


def main() -> None:
    """A rank: argv is LOCAL_TASK_JSON; prints its Diagnosis as JSON."""
    task = decode(LocalTask, json.loads(sys.argv[1]))
    threading.Thread(target=_end_with_parent, args=(task.folder,), name="parent", daemon=True).start()
    member_id = f"{task.address}-rank-{task.rank}"
    place = Place(
        run="local",
        member_id=member_id,
        address=task.address,
        name=f"{socket.gethostname()}#{task.rank}",
        nodes=task.count,
        board=DirectoryBoard(os.path.join(task.folder, "board"), member_id),
        master_port=task.master_port,
        ephemeral_ports=task.ephemeral_ports,
        rank=task.rank,
        world_size=task.count,
        deadline_s=task.deadline_s,
        listens_on_master=task.listens_on_master and task.rank == 0,
        skipped=() if task.listens_on_master else left_out(Wish(listens_on_master=False), task.master_port),
    )
    bench = bench_for(place, _progress(task.rank), signals=False)
    diagnosis = prove(bench, dict(os.environ), collective=task.collective)
    sys.stdout.write(json.dumps(encode(diagnosis)))
    sys.stdout.flush()


def _end_with_parent(folder: str) -> None:
    """End this rank, its collective's process and all their files when the parent is gone, however."""
    while os.read(0, 1):  # not sys.stdin, whose lock the interpreter wants when it ends
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _progress(rank: int) -> Say:
    started = time.monotonic()

    def say(text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk below a log: progress is not the answer
            sys.stderr.write(f"rank {rank} {time.monotonic() - started:7.3f} s  {text}\n")
            sys.stderr.flush()

    return say
