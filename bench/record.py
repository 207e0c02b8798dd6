"""What a benchmark came to: figures side by side, and the JSON document that keeps them."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

MEASUREMENTS = Path(__file__).resolve().parent / "measurements"
SCHEMA_VERSION = 1


class BenchError(RuntimeError):
    """A benchmark could not run, or the two things it compares disagree; the text says which."""


@dataclass(frozen=True)
class Figure:
    """One measured value with its unit; value None = never reached, `note` says what was seen."""

    label: str
    value: float | None
    unit: str = "s"
    note: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return self.note or "not reached"
        text = f"{_short(self.value)} {self.unit}".rstrip()
        return f"{text} ({self.note})" if self.note else text


@dataclass(frozen=True)
class Target:
    """What the figure should be: `limit` is a bound on the ratio or, when on_ratio is False, on `ours`."""

    limit: float
    at_least: bool = False
    on_ratio: bool = False

    def __str__(self) -> str:
        bound = "at least" if self.at_least else "at most"
        return f"{bound} {_short(self.limit)}{' x' if self.on_ratio else ''}"


@dataclass(frozen=True)
class Comparison:
    """Two figures of one run. The ratio is theirs to ours (above 1, ours is the smaller).

    ours_to_theirs: the ratio is taken the other way round, where the question is what ours costs more.
    """

    what: str
    ours: Figure
    theirs: Figure | None = None
    target: Target | None = None
    ours_to_theirs: bool = False

    @property
    def ratio(self) -> float | None:
        """None when either side has no value, or the divisor is zero."""
        if self.theirs is None or self.theirs.value is None or self.ours.value is None:
            return None
        above, below = self.theirs.value, self.ours.value
        if self.ours_to_theirs:
            above, below = below, above
        return above / below if below else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None = there is no target, or nothing to compare with it."""
        measured = self.ratio if self.target is not None and self.target.on_ratio else self.ours.value
        if self.target is None or measured is None:
            return None
        return measured >= self.target.limit if self.target.at_least else measured <= self.target.limit

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "ours": _figure_document(self.ours),
            "theirs": None if self.theirs is None else _figure_document(self.theirs),
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "target": None if self.target is None else str(self.target),
            "met": self.met,
        }


@dataclass(frozen=True)
class Result:
    """A benchmark's outcome. data: whatever else the document keeps, at its top level.

    text: what does not fit a table of figures, printed below it.
    """

    comparisons: tuple[Comparison, ...]
    data: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    text: str = ""


def machine() -> dict[str, Any]:
    """The facts a reader needs to judge a figure."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "torch": installed_version("torch"),
    }


def installed_version(distribution: str) -> str | None:
    """The installed version, without importing it (torch takes a second); None = not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def document(name: str, command: str, result: Result) -> dict[str, Any]:
    """The whole record of one run; `result.data` may add fields but not replace these."""
    header: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "measured_at": now(),
        "command": command,
        "machine": machine(),
        "comparisons": [item.document() for item in result.comparisons],
        "notes": list(result.notes),
    }
    clash = sorted(header.keys() & result.data.keys())
    if clash:
        raise ValueError(f"benchmark {name}: data holds reserved fields {clash}")
    return {**header, **result.data}


def write(folder: Path, name: str, record: dict[str, Any]) -> Path:
    """Write FOLDER/NAME.json whole: a reader never sees half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    half = path.with_suffix(".json.new")
    half.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    half.replace(path)
    return path


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """The stored record; None = there is none.

    Raises:
        BenchError: the file is there and does not read as a record.
    """
    path = folder / f"{name}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BenchError(
            f"{path} does not read as JSON ({error}): delete it and run python -m bench {name}"
        ) from error
    if not isinstance(record, dict):
        raise BenchError(f"{path} holds no record: delete it and run python -m bench {name}")
    return record


def table(comparisons: Sequence[Comparison]) -> str:
    """The figures as aligned text: what, ours, theirs, ratio, target."""
    lines = []
    labels = [
        figure.label for item in comparisons for figure in (item.ours, item.theirs) if figure is not None
    ]
    width = max((len(label) for label in labels), default=0)
    for item in comparisons:
        lines.append(f"  {item.what}")
        lines.append(f"    {item.ours.label:<{width}} {item.ours}")
        if item.theirs is not None:
            lines.append(f"    {item.theirs.label:<{width}} {item.theirs}")
        if item.ratio is not None:
            way = "ratio, first to second" if item.ours_to_theirs else "ratio, second to first"
            lines.append(f"    {way:<{width}} {_short(item.ratio)} x")
        if item.target is not None:
            verdict = {True: "met", False: "NOT met", None: "not measured"}[item.met]
            lines.append(f"    {'target':<{width}} {item.target}: {verdict}")
    return "\n".join(lines)


def _figure_document(figure: Figure) -> dict[str, Any]:
    value = None if figure.value is None else round(figure.value, 4)
    return {"label": figure.label, "value": value, "unit": figure.unit, "note": figure.note}


def _short(value: float) -> str:
    """Three significant digits, and never an exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
