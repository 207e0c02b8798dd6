"""What every command of `fullmesh` shares: its help's shape, its exit statuses, how it answers.

argparse and nothing more, so that --help and `explain` answer at once.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.spec import ClusterSpec

EXIT_USAGE, EXIT_UNKNOWN = 2, 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class CommandError(RuntimeError):
    """A command cannot answer; the program tells why and ends with `status`."""

    def __init__(self, text: str, status: int = EXIT_UNKNOWN) -> None:
        self.status = status
        super().__init__(text)


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, *examples: str
) -> argparse.ArgumentParser:
    """A parser below `commands`, with its examples at the end of its help."""
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "".join(f"  {example}\n" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable answer on standard output")


def context_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", dest="context", action="append", default=[], metavar="KEY=VALUE", help="as for cdk deploy"
    )


def read_spec(options: argparse.Namespace) -> ClusterSpec:
    """The cluster of cdk.json with the values of `-c` over it.

    Raises:
        CommandError: a value of `-c`, or of cdk.json, cannot be.
    """
    import json  # noqa: PLC0415 - not before a command runs
    from pathlib import Path  # noqa: PLC0415

    from cluster.spec import ClusterSpec, SpecError  # noqa: PLC0415

    stored = Path(__file__).resolve().parents[1] / "cdk.json"
    context = json.loads(stored.read_text(encoding="utf-8"))["context"]
    wrong = [item for item in options.context if "=" not in item]
    if wrong:
        told = f"-c takes KEY=VALUE, got {wrong[0]!r}; for example -c cluster.nodes=8"
        raise CommandError(told, EXIT_USAGE)
    try:
        given = dict(item.split("=", 1) for item in options.context)
        return ClusterSpec.from_cdk_context({**context, **given})
    except SpecError as error:
        raise CommandError(str(error), EXIT_USAGE) from error


def write_json(document: Any) -> None:
    import json  # noqa: PLC0415 - not before a command runs

    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def complain(text: str, status: int = EXIT_USAGE) -> int:
    """Say on standard error why there is no answer; returns the exit status."""
    sys.stderr.write(f"fullmesh: {text}\n")
    return status
