"""Writes the README's table of figures from what `make bench` stored in bench/measurements.

python tools/figures.py          print the table
python tools/figures.py --write  put it into README.md
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BENCHMARKS = ("demo_time", "faults", "nc_loop", "mesh_scale", "rules_scale", "explain", "synth")
PLACE = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)


def _shown(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    value, unit = figure["value"], figure["unit"]
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    note = f" ({figure['note']})" if figure["note"] else ""
    return f"{figure['label']}: {number} {unit}{note}"


def table() -> str:
    """One row a comparison, in the words of the benchmark that measured it."""
    rows = ["| what | measured | beside it | target |\n", "|---|---|---|---|\n"]
    for name in BENCHMARKS:
        stored = ROOT / "bench" / "measurements" / f"{name}.json"
        if not stored.exists():  # written down and not yet measured: a row of its own would say nothing
            continue
        document = json.loads(stored.read_text())
        for item in document["comparisons"]:
            ratio = f" ({item['ratio']:.3g} x)" if item["ratio"] else ""
            met = {True: ": met", False: ": not met", None: ""}[item["met"]]
            target = f"{item['target']}{met}" if item["target"] else ""
            cells = (item["what"], _shown(item["ours"]), _shown(item["theirs"]) + ratio, target)
            rows.append("| " + " | ".join(cells) + " |\n")
    return "".join(rows)


def with_table(readme: str) -> str:
    """The README with the present table in its place."""
    return PLACE.sub(lambda found: found[1] + table() + found[2], readme)


def main(argv: list[str]) -> int:
    if argv == ["--write"]:
        README.write_text(with_table(README.read_text()))
    else:
        sys.stdout.write(table())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
