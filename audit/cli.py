"""`audit`: does the account still hold what the mesh needs, and nothing else.

Only argparse is imported until the command runs, so that --help answers at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from audit.conflicts import refuse_what_does_not_go_together
from audit.options import EVERY_PROFILE, EXAMPLES, add_options
from diagnosis.command_line import EXIT_UNKNOWN, EXIT_USAGE, CommandError, read_spec, write_json

if TYPE_CHECKING:
    from audit.answer import Audit
    from audit.documents import Documents
    from audit.drift import OurStack
    from audit.members import Selection

DEFAULT_MASTER_PORT = 29500


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `audit`; it sets `run`, a function of the parsed arguments to an exit status."""
    audit = subparsers.add_parser(
        "audit",
        help="what stands in the account against what the mesh needs",
        description="Compare the account with the stack, or judge any cluster by its rules:\n"
        "can the mesh form, which rule is missing, who else gets in.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(audit)
    audit.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> int:
    try:
        return _answered(options)
    except (CommandError, BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means FAIL here; a crash knows nothing
        traceback.print_exc()
        return EXIT_UNKNOWN


def _answered(options: argparse.Namespace) -> int:
    from audit.members import Selection

    if options.iam_policy:
        from audit.readings import iam_policy

        write_json(iam_policy(read_spec(options).name))
        return 0
    selection = Selection(
        tags=tuple(options.tag),
        vpc_ids=tuple(options.vpc_id),
        group_ids=tuple(options.security_group),
        instance_ids=tuple(options.instance_ids),
    )
    refuse_what_does_not_go_together(options, bool(selection))
    if options.watch is not None:
        return _watched(options, selection)
    found = _look(options, selection)
    if options.record is not None:
        return _recorded(options, found)
    if options.revert:
        return _reverted(options, selection, found)
    _show(options, found)
    return found.exit_status


def _look(options: argparse.Namespace, selection: Selection) -> Audit:
    """One audit, with who and the reviewed exceptions where they were asked for."""
    documents = _documents(options, selection)
    found = _answer(options, selection, documents)
    if selection:
        return found
    if options.who:
        from audit.who import who_did_it

        told, notes = who_did_it(_session(options), found.differences, documents.deployed_at())
        found = dataclasses.replace(found, who=told, skipped=(*found.skipped, *notes))
    if options.baseline is not None:
        found = found.with_baseline(_exceptions(options), datetime.datetime.now(datetime.timezone.utc).date())
    return found


def _answer(options: argparse.Namespace, selection: Selection, documents: Documents) -> Audit:
    """What stands, or with --what-if the world after it; with --suggest rules for it.

    Raises:
        CommandError: a change cannot be made, or what it is about was not read.
    """
    from audit.difference import Meaning
    from audit.question import Question
    from cluster.ports import DEFAULT_EPHEMERAL_PORTS
    from diagnosis.suggest_rules import Profile
    from diagnosis.what_if import NotReadError
    from diagnosis.what_if_words import ChangeError

    fail_on = Meaning(options.fail_on)
    if selection:
        question = Question.of_selection(
            documents,
            selection,
            master_port=options.master_port or DEFAULT_MASTER_PORT,
            ephemeral=options.ephemeral_ports or DEFAULT_EPHEMERAL_PORTS,
            fail_on=fail_on,
        )
    else:
        question = Question.of_stack(documents, _our_stack(options, documents), fail_on=fail_on)
    wanted = options.suggest
    profiles = tuple(Profile) if wanted == EVERY_PROFILE else (Profile(wanted),) if wanted else ()
    try:
        return question.answer(documents, options.what_if, profiles)
    except ChangeError as error:
        raise CommandError(f"--what-if: {error}", EXIT_USAGE) from error
    except NotReadError as error:
        raise CommandError(f"--what-if: {error}") from error


def _our_stack(options: argparse.Namespace, documents: Documents) -> OurStack:
    """The stack to compare with.

    Raises:
        CommandError: a folder holds none.
    """
    from audit.drift import our_stack

    if options.snapshot is None:
        return our_stack(documents, read_spec(options).name)
    if not any(documents.has(name) for name in ("stack-template", "stacks", "stack-resources")):
        told = (
            f"{options.snapshot} holds no stack of ours; say who is a member with --tag KEY=VALUE, --vpc-id, "
        )
        raise CommandError(told + "--security-group or --instance-ids", EXIT_USAGE)
    return our_stack(documents)


def _exceptions(options: argparse.Namespace) -> Any:
    from audit import baseline

    try:
        return baseline.read(options.baseline)
    except baseline.BaselineError as error:
        raise CommandError(str(error), EXIT_USAGE) from error


def _session(options: argparse.Namespace) -> Any:
    import boto3

    return boto3.Session(region_name=options.region or os.environ.get("AWS_REGION"))


def _documents(options: argparse.Namespace, selection: Selection) -> Documents:
    """What the answer is made of: a folder's documents, or the account's.

    Raises:
        CommandError: the folder cannot be read or written.
    """
    from audit.documents import Documents

    try:
        if options.snapshot is not None:
            documents = Documents.from_directory(options.snapshot)
        else:
            from audit.live import read_selected, read_stack

            if selection:
                documents = read_selected(_session(options), selection)
            else:
                documents = read_stack(_session(options), read_spec(options).name)
            if options.what_if:
                from audit.prefix_lists import with_lists

                documents = with_lists(_session(options), documents, _lists(options))
        if options.save_snapshot is not None:
            documents.save(options.save_snapshot)
    except NotADirectoryError as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    except OSError as error:
        raise CommandError(f"{options.save_snapshot} cannot be written ({error.strerror})") from error
    return documents


def _lists(options: argparse.Namespace) -> list[str]:
    """Prefix lists that a change names: what was read need not hold them."""
    rules = [change.rule for change in options.what_if if hasattr(change, "rule")]
    return [rule.source for rule in rules if rule.source.startswith("pl-")]


def _show(options: argparse.Namespace, found: Audit) -> None:
    if options.sarif:
        from importlib.metadata import PackageNotFoundError, version

        from audit.sarif import to_sarif

        try:
            release = version("fullmesh")
        except PackageNotFoundError:
            release = "0"
        write_json(to_sarif(found, release))
    elif options.junit:
        from audit.junit import to_junit

        sys.stdout.write(to_junit(found))
    else:
        sys.stdout.write(found.to_json() if options.json else found.to_terminal())


def _watched(options: argparse.Namespace, selection: Selection) -> int:
    from audit.watch import watch

    def say(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    found = watch(lambda: _look(options, selection), say, interval_s=options.watch, as_json=options.json)
    return found.exit_status


def _recorded(options: argparse.Namespace, found: Audit) -> int:
    from audit import baseline

    try:
        fresh = baseline.record(
            options.record, found.differences, reason=options.reason, expires=options.expires
        )
    except baseline.BaselineError as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    except OSError as error:
        raise CommandError(f"{options.record} cannot be written ({error.strerror})") from error
    sys.stdout.write(f"{fresh} new exception{'' if fresh == 1 else 's'} in {options.record}\n")
    return 0


def _reverted(options: argparse.Namespace, selection: Selection, found: Audit) -> int:
    """Show the plan, ask, look again whether it still is the plan, make the calls, and audit anew."""
    from audit import revert

    wanted = revert.plan(found.differences)
    sys.stderr.write("\n".join(revert.plan_lines(wanted)) + "\n" if found.differences else "")
    if not wanted.steps:
        sys.stderr.write("there is nothing that can be reverted\n")
        _show(options, found)
        return found.exit_status
    if not options.yes and not _agreed(len(wanted.steps)):
        sys.stderr.write("nothing was changed\n")
        return found.exit_status
    now = revert.plan(_look(options, selection).differences)
    if now.keys != wanted.keys:
        raise CommandError(
            "what differs has changed since the plan was shown: nothing was changed; run it again"
        )
    for outcome in revert.carry_out(_session(options), now):
        sys.stderr.write(f"{'failed' if outcome.problem else 'done'}: {outcome.change.operation}")
        sys.stderr.write(f": {outcome.problem}\n" if outcome.problem else "\n")
    after = _look(options, selection)
    _show(options, after)
    return after.exit_status


def _agreed(steps: int) -> bool:
    """Ask on the terminal.

    Raises:
        CommandError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise CommandError("there is no terminal to ask on: read the plan above, then add --yes", EXIT_USAGE)
    sys.stderr.write(f"revert {steps} difference{'' if steps == 1 else 's'}? Type yes: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() == "yes"
