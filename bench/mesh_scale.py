"""The mesh stage at 16 and at 64 nodes from a start barrier, all open and on the famous failure."""

from __future__ import annotations

from typing import Any

from bench import contained, mesh_stage
from bench.arena import Arena
from bench.options import Options
from bench.ranks import Ranks
from bench.record import Comparison, Figure, Result, Target

SMALL, LARGE = 16, 64
ROUNDS = 3  # of each; a round takes seconds, and the median counts
MEGABYTE = 1e6
STAGE_TARGET = Target(limit=3.0)
MEMORY_TARGET = Target(limit=40.0)


def measure(_options: Options) -> Result:
    sizes = {nodes: contained.call("bench.mesh_scale", nodes=nodes) for nodes in (SMALL, LARGE)}
    return Result(
        comparisons=(
            _stages("all open", sizes, STAGE_TARGET),
            _stages("famous failure", sizes, None),
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
        arena.open_all_tcp()
        found = {"all open": _median_round(arena)}
        arena.open_only_master_port()
        found["famous failure"] = _median_round(arena)
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
