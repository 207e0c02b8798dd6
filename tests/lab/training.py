"""A job that really trains on the nodes of a running lab: torch with Gloo, step after step."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from lab import enter
from lab.fault_host import Launch
from lab.state import LabState

# Every rank adds ones, so each step has a known answer. Rank 0 answers each line it is sent with the
# number of steps so far; when its input closes it says so in the next all_reduce, and all ranks end.
JOB = """\
import datetime, json, select, sys, time
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
step = wrong = 0
over = False
while not over:
    data = torch.ones(100_000)
    if rank == 0 and select.select([sys.stdin], [], [], 0)[0]:
        if sys.stdin.readline():
            print(json.dumps(step), flush=True)
        else:
            data[0] += 1
    dist.all_reduce(data)
    over = data[0].item() > size
    wrong += int((data[1:] != size).any())
    step += 1
    time.sleep(0.01)
print(json.dumps([step, wrong]), flush=True)
dist.destroy_process_group()
"""


class Training:
    """The job's processes, one a node."""

    def __init__(self, processes: list[subprocess.Popen[str]], words: IO[str]) -> None:
        self._processes = processes
        self._words = words

    def steps(self) -> int:
        """How many steps the job has made by now; fails where it makes none any more."""
        stdin = self._processes[0].stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()
        return int(self._line(0))

    def end(self) -> list[tuple[int, Any]]:
        """Every rank's exit status and [steps, wrong answers]."""
        stdin = self._processes[0].stdin
        assert stdin is not None
        stdin.close()
        told = [self._line(rank) for rank in range(len(self._processes))]
        statuses = [process.wait(timeout=60) for process in self._processes]
        return list(zip(statuses, told, strict=True))

    def _line(self, rank: int) -> Any:
        stdout = self._processes[rank].stdout
        assert stdout is not None
        line = stdout.readline()
        self._words.seek(0)
        assert line, self._words.read()[-3000:]
        return json.loads(line)


@contextmanager
def training(lab: LabState) -> Iterator[Training]:
    """The job, under way: it has made a step."""
    with ExitStack() as stack:
        words = stack.enter_context(tempfile.TemporaryFile("w+"))
        processes = []
        for node, variables in zip(lab.nodes, Launch().environments(lab), strict=True):
            given = [f"{name}={value}" for name, value in (variables or {}).items()]
            script = 'exec "$(cat /run/fullmesh/torch-python)" -c "$0"'
            process = subprocess.Popen(
                enter.command(lab, node, ["env", *given, "bash", "-c", script, JOB]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        job = Training(processes, words)
        while job.steps() < 1:
            pass
        yield job
