"""What was provoked beside what was named: trials, and their confusion matrix in 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from diagnosis.causes import CATALOGUE, Group

Named = tuple[str, str]
"""A cause and its subject."""

NOTHING = "-"  # on the expected side: nothing was wrong there; on the named side: nothing was named
_WIDTH = 80
_CELL = 8
_SHORT = {
    Group.FILTERING: "filter",
    Group.ADDRESSING: "address",
    Group.RENDEZVOUS: "rendezv",
    Group.RUNTIME: "runtime",
    Group.PATH: "path",
    Group.NODE: "node",
    Group.CONFIGURATION: "config",
}


@dataclass(frozen=True)
class Trial:
    """One fault, several at once, or none: what it had to raise and what it raised.

    expected_verdict, verdict: as `Verdict`'s values. candidates: causes left open.
    error: it could not be provoked or checked; nothing was named then.
    """

    id: str
    expected: tuple[Named, ...]
    expected_verdict: str
    named: tuple[Named, ...] = ()
    verdict: str = ""
    candidates: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def right(self) -> tuple[Named, ...]:
        return tuple(item for item in self.expected if item in self.named)

    @property
    def missed(self) -> tuple[Named, ...]:
        return tuple(item for item in self.expected if item not in self.named)

    @property
    def extra(self) -> tuple[Named, ...]:
        return tuple(item for item in self.named if item not in self.expected)

    @property
    def exact(self) -> bool:
        """These findings, no others, nothing left open, and the verdict that they make."""
        return (
            not (self.error or self.missed or self.extra or self.candidates)
            and self.verdict == self.expected_verdict
        )

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "exact": self.exact,
            "expected": [" ".join(item) for item in self.expected],
            "named": [" ".join(item) for item in self.named],
            "verdict": self.verdict,
            "candidates": list(self.candidates),
            "seconds": round(self.seconds, 2),
            "error": self.error,
        }


def cells(trials: Iterable[Trial]) -> Counter[Named]:
    """(expected cause, named cause) -> how often; NOTHING where one side has none.

    A finding counts as right only at its subject: one elsewhere is missed here and named there.
    """
    found: Counter[Named] = Counter()
    for trial in trials:
        found.update((cause, cause) for cause, _ in trial.right)
        missed, extra = [cause for cause, _ in trial.missed], [cause for cause, _ in trial.extra]
        for place in range(max(len(missed), len(extra))):
            expected = missed[place] if place < len(missed) else NOTHING
            named = extra[place] if place < len(extra) else NOTHING
            found[expected, named] += 1
    return found


def by_group(trials: Sequence[Trial]) -> str:
    """Rows: the group of what was expected; columns: the group of what was named.

    On the diagonal only right causes count, at the right subject; what is wrong inside one group
    stands behind them as +N.
    """
    counts: Counter[tuple[str, str]] = Counter()
    wrong_inside: Counter[str] = Counter()
    right = Counter(cause for trial in trials for cause, _ in trial.right)
    for (expected, named), times in cells(trials).items():
        row, column = _group(expected), _group(named)
        good = right[expected] if expected == named else 0
        counts[row, column] += good if row == column else times
        if row == column:
            wrong_inside[row] += times - good
    places = (*_SHORT.values(), NOTHING)
    lines = ["expected".ljust(_CELL + 2) + "".join(_title(place).rjust(_CELL) for place in places)]
    for row in places:
        line = _title(row).ljust(_CELL + 2)
        for column in places:
            wrong = f"+{wrong_inside[row]}" if row == column and wrong_inside[row] else ""
            text = str(counts[row, column] or ("0" if wrong else ".")) + wrong
            line += ("" if row == column == NOTHING else text).rjust(_CELL)
        lines.append(line.rstrip())
    return "\n".join(lines)


def _title(place: str) -> str:
    return "nothing" if place == NOTHING else place


def _group(cause: str) -> str:
    return NOTHING if cause == NOTHING else _SHORT[CATALOGUE[cause].group]


def listing(trials: Sequence[Trial]) -> Iterator[str]:
    """The matrix of causes: how often each was named rightly, then every trial that was not exact."""
    right = Counter(cause for trial in trials for cause, _ in trial.right)
    wanted = Counter(cause for trial in trials for cause, _ in trial.expected)
    counted = ", ".join(
        f"{cause} {right[cause]}" + ("" if right[cause] == times else f" of {times}")
        for cause, times in ((cause, wanted[cause]) for cause in CATALOGUE)
        if times
    )
    yield from _wrapped("named rightly: " + counted)
    wrong = [trial for trial in trials if not trial.exact]
    yield f"not exact: {len(wrong) or 'none'}"
    for trial in wrong:
        yield from _wrapped(f"{trial.id}: {'; '.join(_faults_of(trial))}")


def _faults_of(trial: Trial) -> Iterator[str]:
    if trial.error:
        yield trial.error.splitlines()[0]
        return
    if trial.missed:
        yield "missed " + ", ".join(" at ".join(item) for item in trial.missed)
    if trial.extra:
        yield "named " + ", ".join(" at ".join(item) for item in trial.extra)
    if trial.candidates:
        yield "left open " + ", ".join(trial.candidates)
    if trial.verdict != trial.expected_verdict:
        yield f"verdict {trial.verdict}, not {trial.expected_verdict}"


def _wrapped(text: str) -> Iterator[str]:
    # Two columns are the printer's.
    yield from textwrap.wrap(text, _WIDTH - 2, subsequent_indent="  ", break_on_hyphens=False)
