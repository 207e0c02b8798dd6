"""Which options of `audit` do not go together. Imports little, so that --help answers at once."""

from __future__ import annotations

import argparse

from diagnosis.command_line import EXIT_USAGE, CommandError


def refuse_what_does_not_go_together(options: argparse.Namespace, selection: bool) -> None:
    """Before anything is asked of an account. selection: whether members were told, instead of a stack.

    Raises:
        CommandError: names the options.
    """
    of_stack = {
        "--who": options.who,
        "--baseline": options.baseline,
        "--record": options.record,
        "--revert": options.revert,
    }
    used = [name for name, value in of_stack.items() if value]
    told = ""
    if selection and used:
        told = f"{used[0]} goes with the deployed stack, not with --tag and its like"
    elif not selection and (options.master_port or options.ephemeral_ports):
        told = "--master-port and --ephemeral-ports go with --tag and its like: a stack of ours says its own"
    elif options.snapshot is not None and (options.revert or options.who or options.watch is not None):
        told = "--revert, --who and --watch look at an account, not at a folder"
    elif options.record is not None and not (options.reason and options.expires):
        told = "--record needs --reason and --expires: nobody reviews an exception without them"
    elif options.yes and not options.revert:
        told = "--yes answers --revert's question"
    elif options.watch is not None and (options.revert or options.record or options.sarif or options.junit):
        told = "--watch goes with --json and with the terminal's form alone"
    told = told or _refused_beside_what_is_not(options)
    if told:
        raise CommandError(told, EXIT_USAGE)


def _refused_beside_what_is_not(options: argparse.Namespace) -> str:
    """What goes neither with a world that does not stand nor with suggestions; blank = nothing was given."""
    asked = "--what-if" if options.what_if else "--suggest" if options.suggest else ""
    others = {
        "--revert": options.revert,
        "--record": options.record,
        "--who": options.who,
        "--watch": options.watch is not None,
        "--sarif": options.sarif,
        "--junit": options.junit,
    }
    used = [name for name, value in others.items() if value]
    return f"{used[0]} is about what stands: it does not go with {asked}" if asked and used else ""
