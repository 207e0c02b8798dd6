"""Plain torch with Gloo on the famous failure: what every rank says, and after how long.

Four nodes behind the lab's routing namespace; their security group opens MASTER_PORT between
members and nothing else, so that the store works and the mesh is dropped in silence. The short
time-outs (5 s and 15 s) are measured by every run; torch's own 30 min by --default-timeout,
whose record later short runs keep.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from bench import contained, record
from bench.arena import MASTER_PORT, SCRIPTS, Arena
from bench.demo_time import FAULT, famous_failure
from bench.options import Options
from bench.ranks import Ranks
from bench.record import BenchError, Comparison, Figure, Result

NODES = 4
SHORT_TIMEOUTS_S = (5, 15)
DEFAULT_TIMEOUT_S = 1800  # torch.distributed.constants.default_pg_timeout: 30 min
IMPORT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Patience:
    """How long to listen: total_s from the barrier, but no longer than after_first_s from the first error."""

    total_s: float
    after_first_s: float = float("inf")


# Gloo's full mesh gives up after 5 time-outs; who is silent after 6 of them is cut off and said to be.
SHORT_BOUND = 6
# With torch's own time-out the ranks that dial fail at about 541 s; a rank that is only dialled
# stays silent for 5 x 1,800 s. It is cut off two minutes after the first error, and said to be.
DEFAULT_PATIENCE = Patience(total_s=1200.0, after_first_s=120.0)


def measure(options: Options) -> Result:
    """Short time-outs beside `fullmesh demo --fault sg-only-master-port`; or torch's own time-out alone."""
    kept = record.read(options.output, "raw_torch") or {}
    runs = {run["timeout_s"]: run for run in kept.get("runs", [])}
    named = kept.get("fullmesh")
    if options.default_timeout:
        runs[DEFAULT_TIMEOUT_S] = contained.call("bench.raw_torch", timeout_s=None)
    else:
        for timeout_s in SHORT_TIMEOUTS_S:
            runs[timeout_s] = contained.call("bench.raw_torch", timeout_s=timeout_s)
        named = famous_failure(NODES).document()
    ordered = [runs[key] for key in sorted(runs)]
    return Result(
        comparisons=tuple(_comparison(run, named) for run in ordered),
        data={
            "fault": FAULT,
            "torch": record.installed_version("torch"),
            "nodes": NODES,
            "runs": ordered,
            "fullmesh": named,
        },
        notes=tuple(_words(run) for run in ordered),
    )


def inside(timeout_s: int | None) -> dict[str, Any]:
    """One run in namespaces of this process's own; timeout_s None = torch's own."""
    with Arena(NODES) as arena:
        arena.open_only_master_port()
        commands = [arena.command(rank, _rank_command(arena, rank, timeout_s)) for rank in range(NODES)]
        with Ranks(commands, environment=arena.environment()) as ranks:
            ranks.gather(IMPORT_TIMEOUT_S, "import of torch")
            measured_at = record.now()
            patience = DEFAULT_PATIENCE if timeout_s is None else Patience(total_s=SHORT_BOUND * timeout_s)
            heard = listen(ranks, NODES, patience)
    return {
        "timeout_s": DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s,
        "is_torch_default": timeout_s is None,
        "measured_at": measured_at,
        "command": "python -m bench raw_torch" + (" --default-timeout" if timeout_s is None else ""),
        **heard,
    }


def _rank_command(arena: Arena, rank: int, timeout_s: int | None) -> list[str]:
    command = [
        arena.torch_python,
        f"{SCRIPTS}/torch_rank.py",
        f"--rank={rank}",
        f"--world-size={NODES}",
        f"--store={arena.addresses[0]}:{MASTER_PORT}",
    ]
    return command if timeout_s is None else [*command, f"--timeout-s={timeout_s}"]


def listen(ranks: Ranks, count: int, patience: Patience) -> dict[str, Any]:
    """Release the barrier, and take down each rank's words until all have spoken or patience ends.

    Raises:
        BenchError: a rank formed its process group, so there is no failure to measure.
    """
    started = time.monotonic()
    ranks.tell("go")
    said: dict[int, dict[str, Any]] = {}
    bound_s = patience.total_s
    while len(said) < count and (left_s := started + bound_s - time.monotonic()) > 0:
        answer = ranks.receive(left_s)
        if answer is None:
            break
        rank, words = answer
        if rank in said:  # it spoke, and has now ended
            continue
        elapsed_s = round(time.monotonic() - started, 2)
        said[rank] = words or {"after_s": elapsed_s, "message": f"(ended) {ranks.log(rank)[-2000:]}"}
        if said[rank]["message"] is None:
            raise BenchError(f"rank {rank} formed its process group: the wall does not drop the mesh")
        bound_s = min(bound_s, elapsed_s + patience.after_first_s)
    silent_s = round(time.monotonic() - started, 2)
    return {
        "first_error_s": min((words["after_s"] for words in said.values()), default=None),
        "cut_off_after_s": silent_s if len(said) < count else None,
        "ranks": {
            str(rank): {**said.get(rank, {"after_s": silent_s, "message": None}), "log": _log(ranks, rank)}
            for rank in range(count)
        },
    }


def _log(ranks: Ranks, rank: int) -> list[str]:
    """torch's own log lines, verbatim, without the stack frames below them."""
    return [line for line in ranks.log(rank).splitlines() if line.startswith(("[E", "[W", "[I", "[/"))]


def _comparison(run: dict[str, Any], named: dict[str, Any] | None) -> Comparison:
    """The first error of plain torch beside the named cause of fullmesh, each from its own start."""
    limit = "its own time-out of 30 min" if run["is_torch_default"] else f"timeout={run['timeout_s']} s"
    return Comparison(
        what=f"famous failure, {NODES} nodes, torch with {limit}",
        ours=Figure(
            label="fullmesh: last node's boot to the named cause",
            value=named["named_after_boot_s"] if named else None,
            note=named["cause"] if named else "not measured: run python -m bench raw_torch",
        ),
        theirs=Figure(
            label="plain torch: start of init_process_group to the first error", value=run["first_error_s"]
        ),
    )


def _words(run: dict[str, Any]) -> str:
    lines = [f"timeout {run['timeout_s']} s, measured {run['measured_at']}:"]
    for rank, words in run["ranks"].items():
        text = words["message"].splitlines()[0] if words["message"] else "silent until it was cut off"
        lines.append(f"    rank {rank} after {words['after_s']:.1f} s: {text}")
    return "\n".join(lines)
