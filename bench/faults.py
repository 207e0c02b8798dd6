"""Every fault of the table, and the pairs, provoked for real: the confusion matrix of what is named.

A lab of four nodes and a deployed cluster serve them all, as in the tests; a check as each fault
wants it judges. Two healthy checks, before and after, expect nothing.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import confusion
from bench.confusion import Trial
from bench.options import Options
from bench.record import BenchError, Comparison, Figure, Result, Target
from diagnosis.report import Diagnosis, Verdict
from lab import fault_stage
from lab.check import CheckError, run_check
from lab.demo import DemoError
from lab.fault import Fault
from lab.fault_pairs import PAIRS
from lab.fault_scene import FaultError
from lab.fault_stage import BOOT_ONLY, LIVE, Stage

HEALTHY = ("no fault, before", "no fault, after")


def measure(_options: Options) -> Result:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            with fault_stage.running(Path(folder)) as stage:
                trials = list(provoked(stage))
        except DemoError as error:
            raise BenchError(f"the lab could not run: {error}") from error
    return result(trials)


def provoked(stage: Stage) -> Iterator[Trial]:
    """Every fault alone, the pairs, and those of a node's boot; each is told on standard error."""
    before, after = HEALTHY
    works: list[tuple[str, Fault | None, Callable[[], Diagnosis]]] = [
        (before, None, lambda: run_check(stage.scene.lab)),
        *((fault.id, fault, _live(stage, fault)) for fault in LIVE),
        *((pair.id, pair.fault, _live(stage, pair.fault)) for pair in PAIRS),
        *((fault.id, fault, _deployed(stage, name, fault)) for name, fault in BOOT_ONLY.items()),
        (after, None, lambda: run_check(stage.scene.lab)),
    ]
    for place, (name, fault, work) in enumerate(works, start=1):
        trial = tried(name, fault, work)
        told = (
            "right" if trial.exact else f"NOT right: {', '.join(map(' at '.join, trial.named)) or 'nothing'}"
        )
        print(f"  {place}/{len(works)} {name}: {told}, {trial.seconds:.1f} s", file=sys.stderr, flush=True)
        yield trial


def _live(stage: Stage, fault: Fault) -> Callable[[], Diagnosis]:
    def work() -> Diagnosis:
        with fault.provoked(stage.scene):
            return fault.check(stage.scene)

    return work


def _deployed(stage: Stage, name: str, fault: Fault) -> Callable[[], Diagnosis]:
    return lambda: stage.deploy_beside(name, fault)[1]


def tried(name: str, fault: Fault | None, work: Callable[[], Diagnosis]) -> Trial:
    """fault None: nothing is wrong, and nothing may be named."""
    expected = fault.expected if fault is not None else ()
    verdict = fault.verdict if fault is not None else Verdict.PASS
    started = time.monotonic()
    try:
        found = work()
    except (FaultError, CheckError) as error:
        return Trial(id=name, expected=expected, expected_verdict=verdict.value, error=str(error))
    return Trial(
        id=name,
        expected=expected,
        expected_verdict=verdict.value,
        named=tuple((cause.id, cause.subject) for cause in found.causes),
        verdict=found.verdict.value,
        candidates=tuple(candidate.id for candidate in found.candidates),
        seconds=time.monotonic() - started,
    )


def result(trials: list[Trial]) -> Result:
    """The figures, and the matrix below them."""
    single = [trial for trial in trials if trial.expected and "+" not in trial.id]
    paired = [trial for trial in trials if "+" in trial.id]
    extra = sum(len(trial.extra) for trial in trials)
    causes = {cause for trial in trials for cause, _ in trial.expected}
    return Result(
        comparisons=(
            _exact(f"faults provoked in a lab of 4 nodes, of {len(causes)} causes", single),
            _exact("two faults at once", paired),
            Comparison(
                what=f"findings in {len(trials)} checks that nobody provoked, or at another subject",
                ours=Figure(label="named too much", value=extra, unit="findings"),
                target=Target(limit=0),
            ),
        ),
        data={
            "trials": [trial.document() for trial in trials],
            "matrix": [[*pair, times] for pair, times in sorted(confusion.cells(trials).items())],
            "seconds_median": round(statistics.median(trial.seconds for trial in trials), 2),
        },
        text="\n".join(
            ("expected cause x named cause, by group", confusion.by_group(trials), *confusion.listing(trials))
        ),
    )


def _exact(what: str, trials: list[Trial]) -> Comparison:
    return Comparison(
        what=what,
        ours=Figure(
            label="named exactly, cause and subject",
            value=sum(trial.exact for trial in trials),
            unit=f"of {len(trials)}",
        ),
        target=Target(limit=len(trials), at_least=True),
    )
