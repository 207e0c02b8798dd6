"""The mesh stage at 16 and at 64 nodes from a start barrier, all open and on the famous failure."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from typing import Any

from bench import contained, mesh_stage
from bench.arena import MASTER_PORT, PYZ, Arena
from bench.options import Options
from bench.ranks import Ranks
from bench.record import BenchError, Comparison, Figure, Result, Target

SMALL, LARGE = 16, 64
ROUNDS = 3  # of each; a round takes seconds, and the median counts
MEGABYTE = 1e6
STAGE_TARGET = Target(limit=3.0)
VERDICT_TARGET = Target(limit=10.0)
VERDICT_TIMEOUT_S = 180.0  # the probe judges by itself after 120 s, with whatever it has
MEETING_PORT = 29600
MEMORY_TARGET = Target(limit=40.0)


def measure(_options: Options) -> Result:
    sizes = {nodes: contained.call("bench.mesh_scale", nodes=nodes) for nodes in (SMALL, LARGE)}
    return Result(
        comparisons=(
            _stages("all open", sizes, STAGE_TARGET),
            _stages("famous failure", sizes, None),
            _verdicts("all open", sizes),
            _verdicts("famous failure", sizes),
            Comparison(
                what="peak memory of the node that needs most, mesh stage",
                ours=_memory_figure(LARGE, sizes[LARGE]),
                theirs=_memory_figure(SMALL, sizes[SMALL]),
                target=MEMORY_TARGET,
                ours_to_theirs=True,
            ),
        ),
        data={"sizes": {str(nodes): found for nodes, found in sizes.items()}},
    )


def inside(nodes: int) -> dict[str, Any]:
    """Both scenarios in namespaces of this process's own; the median round of each."""
    with Arena(nodes) as arena:
        found = {}
        for scenario, open_group in (
            ("all open", arena.open_all_tcp),
            ("famous failure", lambda: arena.open_only_master_port(MEETING_PORT)),
        ):
            open_group()
            found[scenario] = {**_median_round(arena), **_verdict(arena)}
        return found


def _median_round(arena: Arena) -> dict[str, Any]:
    rounds = sorted((_one_round(arena) for _ in range(ROUNDS)), key=lambda item: float(item["stage_s"]))
    median = rounds[len(rounds) // 2]
    return {**median, "rounds_s": [item["stage_s"] for item in rounds]}


def _one_round(arena: Arena) -> dict[str, Any]:
    with Ranks(mesh_stage.commands(arena), environment=arena.environment()) as ranks:
        run = mesh_stage.run(ranks)
    return {
        "probes": run.probes,
        "connected": run.connected,
        "stage_s": round(run.stage_s, 3),
        "slowest_connect_s": round(run.slowest_connect_s, 3),
        "peak_memory_bytes": run.peak_memory_bytes,
    }


def _verdict(arena: Arena) -> dict[str, Any]:
    """The whole probe on every node under a launcher's variables, to the answer that rank 0 prints.

    Its time begins with the start of the first process; the members meet on a port of rank 0.
    """
    master, size = arena.addresses[0], len(arena.addresses)
    meeting = f"tcp://{master}:{MEETING_PORT}"
    started = time.monotonic()
    processes = [
        subprocess.Popen(
            arena.command(
                rank,
                [
                    *("env", f"RANK={rank}", f"WORLD_SIZE={size}"),
                    *(f"MASTER_ADDR={master}", f"MASTER_PORT={MASTER_PORT}"),
                    *("python3", PYZ, "check", "--json", "--no-collective", "--meet", meeting),
                ],
            ),
            env=arena.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(size)
    ]
    printer = processes[0]
    limit = threading.Timer(VERDICT_TIMEOUT_S, printer.kill)
    limit.start()
    try:
        output = _until_closed(printer)
        elapsed_s = time.monotonic() - started
    finally:
        limit.cancel()
        for process in processes:
            process.kill()
            process.wait()
    words = printer.stderr.read() if printer.stderr is not None else ""
    try:
        answer = json.loads(output)
    except ValueError as error:
        raise BenchError(f"rank 0 of {size} gave no answer: {words.strip()[-1500:]}") from error
    return {
        "verdict_s": round(elapsed_s, 3),
        "verdict_from_barrier_s": _from_barrier(words, size),
        "verdict": answer["verdict"],
        "causes": [cause["id"] for cause in answer["causes"]],
        "verdict_timings_s": answer["timings_s"],
        "nodes_judged": len(answer["nodes"]),
    }


def _until_closed(process: subprocess.Popen[str]) -> str:
    """The JSON that a process prints, as soon as it is whole: rank 0 then stays for the others to read it."""
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if line == "}\n":
            break
    return "".join(lines)


def _from_barrier(words: str, size: int) -> float:
    """Seconds from when rank 0 saw all members registered to its judgement, by its progress lines."""
    at = {
        what: float(seconds)
        for seconds, what in re.findall(r"([\d.]+) s  (\d+ of \d+ members registered|judged)", words)
    }
    begun = at.get(f"{size} of {size} members registered")
    if begun is None or "judged" not in at:
        raise BenchError(f"rank 0 of {size} told no barrier or no judgement: {words.strip()[-1500:]}")
    return round(at["judged"] - begun, 3)


def _verdicts(scenario: str, sizes: dict[int, dict[str, Any]]) -> Comparison:
    def figure(nodes: int) -> Figure:
        found = sizes[nodes][scenario]
        return Figure(
            label=f"{nodes} nodes",
            value=found["verdict_from_barrier_s"],
            note=f"{' '.join((found['verdict'], *found['causes']))}; "
            f"from process start {found['verdict_s']:.1f} s",
        )

    return Comparison(
        what=f"cluster's verdict from the start barrier (all members registered), {scenario}",
        ours=figure(LARGE),
        theirs=figure(SMALL),
        target=VERDICT_TARGET,
        ours_to_theirs=True,
    )


def _stages(scenario: str, sizes: dict[int, dict[str, Any]], target: Target | None) -> Comparison:
    def figure(nodes: int) -> Figure:
        found = sizes[nodes][scenario]
        return Figure(
            label=f"{nodes} nodes, {found['probes']:,} probes",
            value=found["stage_s"],
            note=f"{found['connected']:,} connected, slowest connect {found['slowest_connect_s']} s",
        )

    return Comparison(
        what=f"mesh stage from the start barrier, {scenario}, median of {ROUNDS}",
        ours=figure(LARGE),
        theirs=figure(SMALL),
        target=target,
        ours_to_theirs=True,
    )


def _memory_figure(nodes: int, found: dict[str, Any]) -> Figure:
    peak = max(scenario["peak_memory_bytes"] for scenario in found.values())
    return Figure(label=f"{nodes} nodes", value=peak / MEGABYTE, unit="MB")
