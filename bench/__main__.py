"""`python -m bench [NAME...]`: run benchmarks, print their figures, keep them as JSON."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.options import Options
from bench.record import MEASUREMENTS, BenchError, document, table, write
from diagnosis.prose import beside

# In the order they run: the cheap ones first.
BENCHMARKS = {
    "explain": "fullmesh explain: 100 MB of several kinds of log, memory for 1 GB, its start",
    "synth": "python app.py beside an empty CDK app; template size at 4 and at 400 nodes",
    "rules_scale": "the rules of 1,000 nodes judged: seconds and memory, from alike to all different",
    "mesh_scale": "the mesh stage and the verdict at 16 and at 64 nodes; memory of one node",
    "nc_loop": "a loop of nc -zv over all pairs and ports beside the mesh stage, 16 nodes",
    "demo_time": "fullmesh demo: lab start to CREATE_COMPLETE, and the famous failure to its named cause",
    "faults": "every fault of the lab and pairs of them, provoked; the confusion matrix (15 min)",
    "raw_torch": "what plain torch says about the famous failure, and after how long",
}
EXIT_FAILED = 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure side by side, print figures and ratios,\nwrite bench/measurements/NAME.json.",
        epilog="benchmarks:\n" + _listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names and what they measure")
    parser.add_argument(
        "--default-timeout",
        action="store_true",
        help="raw_torch only: torch's own time-out of 30 min (541 s to the first error; takes over 10 min)",
    )
    parser.add_argument(
        "--output", type=Path, default=MEASUREMENTS, metavar="DIR", help="where the JSON goes"
    )
    return parser


def _listing() -> str:
    return "".join(f"{line}\n" for name, text in BENCHMARKS.items() for line in beside(f"  {name}", text, 15))


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    options = parser.parse_args(argv)
    if options.list:
        print(_listing(), end="")
        return 0
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(
            f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)} (python -m bench --list)"
        )
    if options.default_timeout and options.names != ["raw_torch"]:
        parser.error(
            "--default-timeout belongs to raw_torch alone: python -m bench raw_torch --default-timeout"
        )
    chosen = Options(output=options.output, default_timeout=options.default_timeout)
    failed = [name for name in options.names or BENCHMARKS if not run(name, chosen)]
    return EXIT_FAILED if failed else 0


def run(name: str, options: Options) -> bool:
    """One benchmark: measure, print, keep. False when it could not run."""
    command = f"python -m bench {name}" + (" --default-timeout" if options.default_timeout else "")
    print(f"{name}: {BENCHMARKS[name]}", flush=True)
    module = importlib.import_module(f"bench.{name}")
    try:
        result = module.measure(options)
        path = write(options.output, name, document(name, command, result))
    except BenchError as error:
        print(f"  failed: {error}", file=sys.stderr, flush=True)
        return False
    print(table(result.comparisons))
    for line in result.text.splitlines():
        print(f"  {line}".rstrip())
    for note in result.notes:
        print(f"  note: {note}")
    print(f"  kept in {path}; again: {command}\n", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
