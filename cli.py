"""`fullmesh`: parses, calls, renders. Every decision is made in the packages below it.

A package with commands of its own has a cli.py with `add_parsers`; here is only what joins
several of them. Imports happen inside the commands: `fullmesh explain` and `--help` must start
as fast as a bare Python, and only `demo` and `lab` may need the lab's dependencies.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from typing import TYPE_CHECKING

import probe.cli
from diagnosis.command_line import (
    EXIT_INTERRUPTED,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    CommandError,
    add_command,
    complain,
    context_option,
    json_option,
    read_spec,
    write_json,
)

if TYPE_CHECKING:
    from diagnosis.prerequisites import Check

EPILOG = """\
examples:
  fullmesh doctor                            can this machine run the lab?
  fullmesh demo                              a proven cluster of four nodes
  fullmesh demo --fault sg-only-master-port  the famous failure, named
  fullmesh causes hostname-loopback          what a cause means, and its remedy

exit codes: 0 PASS, 1 FAIL, 2 usage, 3 UNKNOWN (not looked at is never PASS)
"""


def build_parser(command: str = "") -> argparse.ArgumentParser:
    """The parser of every command; where `explain` is what will run, of the few beside it alone."""
    parser = argparse.ArgumentParser(
        prog="fullmesh",
        description="A PyTorch Gloo cluster on EC2 that is known to be good.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    if command == "explain":
        probe.cli.add_parsers(commands)
        return parser
    import audit.cli
    import lab.cli

    for package in (lab.cli, probe.cli, audit.cli):
        package.add_parsers(commands)
    _add_causes(commands)
    _add_doctor(commands)
    return parser


def _add_causes(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    causes = add_command(
        commands,
        "causes",
        "list the causes a verdict can name, or explain one",
        "fullmesh causes",
        "fullmesh causes sg-only-master-port",
    )
    causes.add_argument("id", nargs="?", metavar="ID", help="one cause")
    json_option(causes)
    causes.set_defaults(run=_causes)


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = add_command(
        commands,
        "doctor",
        "check this machine's prerequisites in 2 s, or an account's before a deploy",
        "fullmesh doctor --json",
        "fullmesh doctor --account -c cluster.instance_type=c7i.4xlarge",
    )
    json_option(doctor)
    doctor.add_argument(
        "--account", action="store_true", help="ask the AWS account of this environment instead"
    )
    context_option(doctor)
    doctor.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from diagnosis import prerequisites

    checks = _account_checks(options) if options.account else _machine_checks()
    text, status = prerequisites.answer(checks, as_json=options.json)
    sys.stdout.write(text)
    return status


def _machine_checks() -> list[Check]:
    from lab import doctor

    return doctor.examine()


def _account_checks(options: argparse.Namespace) -> list[Check]:
    import boto3

    from stacks.account_check import examine_account

    return examine_account(read_spec(options), boto3.Session())


def _causes(options: argparse.Namespace) -> int:
    from diagnosis import render_causes as render
    from diagnosis.causes import CATALOGUE

    if options.id is not None and options.id not in CATALOGUE:
        return complain(f"there is no cause {options.id!r}; list them with: fullmesh causes")
    chosen = [CATALOGUE[options.id]] if options.id is not None else list(CATALOGUE.values())
    if options.json:
        write_json([render.cause_document(cause) for cause in chosen])
    elif options.id is not None:
        sys.stdout.write(render.cause_text(chosen[0]))
    else:
        sys.stdout.write(render.causes_text(chosen))
    return 0


def main(argv: list[str] | None = None) -> int:
    if sys.stdout is None or sys.stderr is None:
        return EXIT_USAGE  # started with a closed standard stream: there is nowhere to answer
    try:
        words = sys.argv[1:] if argv is None else argv
        options = build_parser("".join(words[:1])).parse_args(words)
        status: int = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        return complain(str(error), error.status)
    except KeyboardInterrupt:
        return complain("interrupted; nothing is left running", EXIT_INTERRUPTED)
    except BrokenPipeError:
        _abandon_stdout()  # the reader is gone: there is nobody to tell
        return EXIT_UNKNOWN
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _abandon_stdout()
        return complain("the answer could not be written: no space left on the device", EXIT_UNKNOWN)
    return status


def _abandon_stdout() -> None:
    """Keep the interpreter from failing again on what is still buffered when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
