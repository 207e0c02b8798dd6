"""The usual way, `nc -zv -w 2` over all pairs and ports, beside the mesh stage of the probe.

Both try the same targets (the probe's own plan), against the same listeners, on the same nodes,
one after the other. The target is held against the faster of nc's two usual forms, a loop on every
node, all nodes at once. The other, one loop over all nodes from one terminal, is run where it takes
seconds; on the famous failure it would wait 24 minutes, so there the nodes' loops are added up.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import contained, mesh_stage
from bench.arena import SCRIPTS, Arena
from bench.mesh_stage import MeshRun
from bench.options import Options
from bench.ranks import Ranks
from bench.record import BenchError, Comparison, Figure, Result, Target
from diagnosis.report import ConnectOutcome
from lab import image

NODES = 16
SCENARIOS = {
    "famous failure": Target(limit=20, at_least=True, on_ratio=True),
    "all open": Target(limit=3, at_least=True, on_ratio=True),
}
ROUNDS = 3  # of "all open", which takes less than a second a round: the median counts

LOOP = Path(__file__).with_name("nc_all.sh")
INSTALL = "apt-get install netcat-openbsd"

# (source address, destination address, port) -> what became of it, in the probe's words
Answers = dict[tuple[str, str, int], str]


@dataclass(frozen=True)
class NcRun:
    """wall_s: until the last node's loop ended; sum_s: of all nodes' loops."""

    answers: Answers
    wall_s: float
    sum_s: float


def measure(_options: Options) -> Result:
    demand_nc()
    scenarios = contained.call("bench.nc_loop", nodes=NODES)
    comparisons = []
    for name, target in SCENARIOS.items():
        found = scenarios[name]
        what = f"{name}, {NODES} nodes, {found['probes']} targets, {found['open']} open"
        ours = Figure(label="fullmesh: mesh stage", value=found["mesh_s"])
        loops = Figure(label="nc -zv -w 2: a loop on every node, all at once", value=found["nc_wall_s"])
        one = Figure(
            label="nc -zv -w 2: one loop over all nodes",
            value=found["nc_one_loop_s"],
            note="" if found["nc_one_loop_was_run"] else "not run: the nodes' loops added up",
        )
        comparisons += [
            Comparison(what=what, ours=ours, theirs=loops, target=target),
            Comparison(what=what, ours=ours, theirs=one),
        ]
    return Result(
        comparisons=tuple(comparisons),
        data={"nodes": NODES, "scenarios": scenarios},
        notes=(
            "both gave the same answer for every source, destination and port, or this would have failed",
        ),
    )


def demand_nc(search_path: str = image.SEARCH_PATH) -> None:
    """Before anything is started: the nc that a node will find answers as the loop reads it.

    Raises:
        BenchError: there is none, or it cannot tell an open port from a closed one.
    """
    if shutil.which("nc", path=search_path) is None:
        raise BenchError(f"there is no nc in {search_path}, and it is what is measured; run: {INSTALL}")
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, so that nothing else comes to listen there
        wanted = {listening.getsockname()[1]: "open", closed.getsockname()[1]: "refused"}
        done = subprocess.run(
            ["/bin/sh", str(LOOP)],
            input="".join(f"127.0.0.1 {port}\n" for port in wanted),
            capture_output=True,
            text=True,
            env={"PATH": search_path, "LANG": "C.UTF-8"},
            check=True,
        )
    found = {port: answer for (_, _, port), answer in parse_nc("", done.stdout).items()}
    for port, answer in wanted.items():
        if found.get(port) != answer:
            raise BenchError(
                f"nc -zv -w 2 to a port that is {answer} answered {str(found.get(port))[:80]!r}; "
                f"OpenBSD's, the traditional and nmap's nc can be read, busybox's cannot; run: {INSTALL}"
            )


def inside(nodes: int) -> dict[str, Any]:
    """Both scenarios in namespaces of this process's own."""
    with Arena(nodes) as arena:
        found: dict[str, Any] = {}
        arena.open_only_master_port()
        found["famous failure"] = _one(arena, run_one_loop=False)
        arena.open_all_tcp()
        rounds = [_one(arena, run_one_loop=True) for _ in range(ROUNDS)]
        rounds.sort(key=lambda item: item["nc_wall_s"] / item["mesh_s"])
        found["all open"] = rounds[len(rounds) // 2]
        return found


def _one(arena: Arena, *, run_one_loop: bool) -> dict[str, Any]:
    with Ranks(mesh_stage.commands(arena), environment=arena.environment()) as ranks:
        mesh = mesh_stage.run(ranks)
        at_once = _run_nc(arena, mesh, workers=len(arena.addresses))
        one_loop = _run_nc(arena, mesh, workers=1) if run_one_loop else None
    ours = mesh_answers(mesh)
    for loops in (at_once, one_loop):
        if loops is not None:
            demand_same(ours, loops.answers)
    return {
        "probes": len(ours),
        "open": sum(answer == "open" for answer in ours.values()),
        "mesh_s": round(mesh.stage_s, 3),
        "nc_wall_s": round(at_once.wall_s, 3),
        "nc_one_loop_s": round(at_once.sum_s if one_loop is None else one_loop.wall_s, 3),
        "nc_one_loop_was_run": one_loop is not None,
    }


def mesh_answers(mesh: MeshRun) -> Answers:
    """The probe's outcomes in words that nc has too."""
    words = {
        ConnectOutcome.CONNECTED: "open",
        ConnectOutcome.TIMED_OUT: "timed out",
        ConnectOutcome.REFUSED: "refused",
        ConnectOutcome.UNREACHABLE: "unreachable",
    }
    return {
        (source, probe.address, probe.port): words.get(probe.outcome, probe.outcome.value)
        for source, probe in mesh.outcomes()
    }


def nc_answer(status: int, said: str) -> str:
    """What nc's exit status and words come to."""
    if status == 0:
        return "open"
    for phrase, answer in (
        ("timed out", "timed out"),
        ("TIMEOUT", "timed out"),
        ("Connection refused", "refused"),
        ("No route to host", "unreachable"),
        ("Network is unreachable", "unreachable"),
    ):
        if phrase in said:
            return answer
    return f"exit {status}: {said}"


def demand_same(ours: Answers, theirs: Answers) -> None:
    """The two ways must agree on every target, or neither figure means anything.

    Raises:
        BenchError: names the first targets that differ.
    """
    differ = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    if differ:
        shown = "; ".join(
            f"{s} > {d}:{p}: probe {ours.get((s, d, p))}, nc {theirs.get((s, d, p))}"
            for s, d, p in differ[:3]
        )
        raise BenchError(f"the probe and nc disagree on {len(differ)} of {len(ours)} targets: {shown}")


def _run_nc(arena: Arena, mesh: MeshRun, workers: int) -> NcRun:
    """A loop on every node, `workers` nodes at a time."""
    targets: dict[str, list[str]] = {address: [] for address in arena.addresses}
    for source, probe in mesh.outcomes():
        targets[source].append(f"{probe.address} {probe.port}\n")

    def loop(rank: int) -> tuple[Answers, float]:
        address = arena.addresses[rank]
        started = time.monotonic()
        done = subprocess.run(
            arena.command(rank, ["sh", f"{SCRIPTS}/nc_all.sh"]),
            input="".join(targets[address]),
            capture_output=True,
            text=True,
            env=arena.environment(),
            check=True,
        )
        return parse_nc(address, done.stdout), time.monotonic() - started

    started = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        loops = list(pool.map(loop, range(len(arena.addresses))))
    wall_s = time.monotonic() - started
    merged: Answers = {}
    for answers, _ in loops:
        merged.update(answers)
    return NcRun(answers=merged, wall_s=wall_s, sum_s=sum(seconds for _, seconds in loops))


def parse_nc(source: str, text: str) -> Answers:
    """The lines of nc_all.sh: HOST PORT STATUS WORDS (words may be none)."""
    answers: Answers = {}
    for line in text.splitlines():
        host, port, status, *said = line.split(" ", 3)
        answers[(source, host, int(port))] = nc_answer(int(status), said[0] if said else "")
    return answers
