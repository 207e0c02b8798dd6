"""`fullmesh explain`: CPU seconds for 100 MB of several kinds of log, memory for 1 GB, and its start."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import explain_logs
from bench.options import Options
from bench.record import BenchError, Comparison, Figure, Result, Target
from tools import build_pyz

CHECKOUT = Path(__file__).resolve().parent.parent
MEGABYTE = 1_000_000
LOG_BYTES = 100 * MEGABYTE
STREAM_BYTES = 1000 * MEGABYTE
READ_TARGET = Target(limit=5.0)
MEMORY_TARGET = Target(limit=64.0)
START_TARGET = Target(limit=0.150)
START_ROUNDS = 11  # taken in turns, so that a busy moment meets all; the median counts
# Counts what any reader must touch; explain is told beside it.
COUNT_LINES = "import sys; print(sum(1 for _ in open(sys.argv[1], 'rb')))"
# The process tells its own peak: what its parent learns includes the parent's own memory.
EXPLAIN = """\
import sys
from cli import main
status = main(["explain", "--json", *sys.argv[1:]])
with open("/proc/self/status") as told:
    peak = next(line.split()[1] for line in told if line.startswith("VmHWM:"))
sys.stderr.write(peak)
sys.exit(status)
"""
SHORT_LOG = explain_logs.LAST_LINE * 3


@dataclass(frozen=True)
class Run:
    """One process: wall-clock and CPU seconds (user and system), peak resident memory in bytes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def measure(_options: Options) -> Result:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        read = [reading(folder / "job.log", kind) for kind in explain_logs.KINDS]
        started = starting(folder)
        streamed = explained(("-",), stream("a job of 64 ranks", STREAM_BYTES))
    job = read[0][1]
    return Result(
        comparisons=(
            *(comparison for comparison, _ in read),
            Comparison(
                what="explain: peak memory of the process",
                ours=Figure(label="1 GB on standard input", value=streamed.peak_bytes / MEGABYTE, unit="MB"),
                theirs=Figure(label="100 MB in a file", value=job.peak_bytes / MEGABYTE, unit="MB"),
                target=MEMORY_TARGET,
                ours_to_theirs=True,
            ),
            *(start_comparison(label, started) for label in started if label != "python -c pass"),
        ),
        data={
            "stream_s": {"bytes": STREAM_BYTES, "wall": streamed.wall_s, "cpu": streamed.cpu_s},
            "start_cpu_s": started,
        },
    )


def reading(path: Path, kind: str) -> tuple[Comparison, Run]:
    """CPU seconds for LOG_BYTES of a kind, beside a Python that counts its lines.

    Not the wall clock's: one process on one core takes no longer, unless others take the core from it.
    """
    explain_logs.write(path, kind, LOG_BYTES)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", COUNT_LINES, str(path)], stdout=subprocess.DEVNULL, check=True)
    counted_s = _cpu_s(before, resource.getrusage(resource.RUSAGE_CHILDREN))
    run = explained((str(path),), iter(()))
    return Comparison(
        what=f"explain: CPU seconds for 100 MB, {kind}",
        ours=Figure(label="fullmesh explain", value=run.cpu_s, note=f"wall clock {run.wall_s:.3g} s"),
        theirs=Figure(label="Python that counts the lines", value=counted_s),
        target=READ_TARGET,
        ours_to_theirs=True,
    ), run


def stream(kind: str, size: int) -> Iterator[bytes]:
    part = explain_logs.piece(kind)
    for _ in range(-(-size // len(part))):
        yield part
    yield explain_logs.LAST_LINE


def explained(logs: Sequence[str], standard_input: Iterator[bytes]) -> Run:
    """Explain logs in a process of its own.

    Raises:
        BenchError: the answer is not the cause that the last line names.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", EXPLAIN, *logs],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for part in standard_input:
            process.stdin.write(part)
        process.stdin.close()
        answer, told = process.stdout.read(), process.stderr.read()
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    causes = [cause["id"] for cause in json.loads(answer)["causes"]] if process.returncode == 1 else []
    if explain_logs.LAST_CAUSE not in causes:
        raise BenchError(f"explain ended with {process.returncode} and {causes}: {told.decode()[-500:]}")
    return Run(wall_s=wall_s, cpu_s=_cpu_s(before, after), peak_bytes=int(told) * 1024)


def _cpu_s(before: resource.struct_rusage, after: resource.struct_rusage) -> float:
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starting(folder: Path) -> dict[str, list[float]]:
    """CPU seconds of each start, by what was started."""
    log, one_file = folder / "short.log", folder / "fullmesh.pyz"
    log.write_bytes(SHORT_LOG)
    build_pyz.build(one_file)
    program = Path(sys.executable).with_name("fullmesh")
    commands: dict[str, tuple[list[str], int]] = {
        "python -c pass": ([sys.executable, "-c", "pass"], 0),
        "fullmesh explain LOG": ([str(program), "explain", str(log)], 1),
        "python3 fullmesh.pyz explain LOG": ([sys.executable, str(one_file), "explain", str(log)], 1),
    }
    return {label: times for label, times in _in_turns(commands)}


def _in_turns(commands: dict[str, tuple[list[str], int]]) -> Iterator[tuple[str, list[float]]]:
    taken: dict[str, list[float]] = {label: [] for label in commands}
    for turn in range(START_ROUNDS + 1):
        for label, (command, status) in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode != status:
                raise BenchError(f"{label} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
            if turn:  # the first may have to compile
                taken[label].append(_cpu_s(before, resource.getrusage(resource.RUSAGE_CHILDREN)))
    yield from taken.items()


def start_comparison(label: str, started: dict[str, list[float]]) -> Comparison:
    """What a start costs more than a bare Python, turn by turn."""
    bare = started["python -c pass"]
    more = statistics.median(ours - base for ours, base in zip(started[label], bare, strict=True))
    return Comparison(
        what=f"explain: CPU seconds of a start above a bare Python, median of {START_ROUNDS}",
        ours=Figure(label=label, value=more, note=f"bare Python {statistics.median(bare):.3f} s"),
        target=START_TARGET,
    )
