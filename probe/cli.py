"""`check` and `node`: the probe's commands, alone (`fullmesh.pyz`) or mounted in a larger one.

Only argparse and the little that all commands share are imported until a command runs, so that
--help answers at once.
stdout holds the answer and nothing else; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Callable, Optional, Sequence

from diagnosis.command_line import EXIT_INTERRUPTED, EXIT_UNKNOWN, EXIT_USAGE, complain
from probe import check_options

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from probe.check import Answer
    from probe.rows import Say

TAIL_BYTES = 4000

EXPLAIN_EXAMPLES = """\
examples:
  fullmesh explain rank0.log rank1.log
      the logs of all ranks, plain or as torchrun, Ray, Slurm or CloudWatch
      wrote them
  kubectl logs trainer-0 | fullmesh explain -
      standard input
  fullmesh explain --json job.log.gz
      the whole answer for programs; gzip, bzip2, xz and zip are unpacked
  fullmesh explain /tmp/torchelastic_logs
      every file below a folder

exit status: 0 no fault, 1 determined, 2 usage, 3 undetermined
"""

REPORT_EXAMPLES = """\
examples:
  fullmesh report s3://BUCKET/rows/RUN
      what a deploy came to: the stack's output Evidence, also after it failed
  fullmesh report --html verdict.html s3://BUCKET/rows/RUN
      and a page to open in a browser
  fullmesh report --json DIR/RUN
      of a folder: what check --meet DIR left, or a copy of the above

exit status: 0 PASS, 1 FAIL, 2 usage, 3 UNKNOWN
"""

NODE_EXAMPLES = """\
examples (bootstrap.sh runs these on a deployed node):
  python3 /opt/fullmesh/fullmesh.pyz node mesh
  /opt/pytorch/bin/python /opt/fullmesh/fullmesh.pyz node collective
  python3 /opt/fullmesh/fullmesh.pyz node failed --step torch --status 1 \\
    --output /var/log/torch.log

exit status: 0 PASS, 1 FAIL, 2 usage, 3 UNKNOWN
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `check` and `node`; each sets `run`, a function of the parsed arguments to an exit status."""
    raw = argparse.RawDescriptionHelpFormatter
    check = subparsers.add_parser(
        "check",
        help="prove the mesh and an all_reduce from this node, with all others",
        description="Prove that every pair connects both ways, and that all_reduce is right.",
        epilog=check_options.EXAMPLES,
        formatter_class=raw,
    )
    check_options.add_options(check)
    check.set_defaults(run=_check)

    explain = subparsers.add_parser(
        "explain",
        help="name the first cause of a failure from its logs",
        description="Name the first cause of a failed Gloo job from its logs alone.",
        epilog=EXPLAIN_EXAMPLES,
        formatter_class=raw,
    )
    explain.add_argument(
        "logs", nargs="*", metavar="LOG", help="a log, plain or packed, or a folder; - is standard input"
    )
    explain.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    explain.set_defaults(run=_explain)

    report = subparsers.add_parser(
        "report",
        help="show the verdict of a run that is over, from where its members met",
        description="Show the verdict that a run's members left; probes nothing.",
        epilog=REPORT_EXAMPLES,
        formatter_class=raw,
    )
    report.add_argument("where", metavar="PLACE", help="s3://BUCKET/rows/RUN, or a folder")
    report.add_argument("--html", metavar="FILE", help="write it as a page, too")
    report.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    report.set_defaults(run=_report)

    node = subparsers.add_parser(
        "node",
        help="the stages of a deployed node",
        description="The stages that a deployed node's start-up runs.",
        epilog=NODE_EXAMPLES,
        formatter_class=raw,
    )
    stages = node.add_subparsers(dest="stage", metavar="STAGE", required=True)
    for name, text in (
        ("mesh", "listen, meet, probe every peer, judge"),
        ("collective", "all_reduce with torch, judge, signal"),
    ):
        stage = stages.add_parser(name, help=text, description=text)
        stage.set_defaults(run=_node_stage)
    failed = stages.add_parser("failed", help="report that a step of the start-up failed")
    failed.add_argument("--step", required=True, help="name of the step")
    failed.add_argument("--status", required=True, type=int, help="its exit status")
    failed.add_argument("--output", metavar="FILE", help="a file whose last lines tell why")
    failed.set_defaults(run=_node_failed)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The one-file build's entry."""
    parser = argparse.ArgumentParser(
        prog="fullmesh.pyz", description="Prove that a Gloo cluster's network and collectives work."
    )
    add_parsers(parser.add_subparsers(dest="command", metavar="COMMAND", required=True, prog=parser.prog))
    arguments = parser.parse_args(argv)
    status: int = arguments.run(arguments)
    return status


def _check(arguments: argparse.Namespace) -> int:
    problem = check_options.conflict(arguments)
    if problem:
        return complain(problem)
    if arguments.merge is not None:
        return _merge(arguments)
    from probe import check

    wish, collective = check_options.wish_of(arguments), not arguments.no_collective

    def stage(say: Say) -> AbstractContextManager[Answer]:
        if arguments.local is None:
            return check.check(wish, say, collective=collective)
        from probe.local import check_local

        return check_local(arguments.local, wish, say, collective=collective)

    if arguments.bundle is None:
        return _answered(stage, arguments)
    from probe.bundle import bundled

    return _answered(lambda say: bundled(arguments.bundle, stage, say), arguments)


def _merge(arguments: argparse.Namespace) -> int:
    from probe import check, merge

    try:
        diagnosis = merge.merge(arguments.merge, nodes=arguments.nodes, run=arguments.run_id)
    except merge.MergeError as error:
        return complain(str(error))
    return _show(check.Answer(diagnosis), arguments)


def _report(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from probe import check, evidence

    def read(say: Say) -> AbstractContextManager[Answer]:
        diagnosis = evidence.read_evidence(arguments.where, say)
        if arguments.html is not None:
            evidence.write_page(diagnosis, arguments.html)
        return nullcontext(check.Answer(diagnosis))

    return _answered(read, arguments)


def _explain(arguments: argparse.Namespace) -> int:
    from diagnosis import explain

    if not arguments.logs:
        sys.stdout.write(explain.EXAMPLE)
        return EXIT_USAGE
    try:
        explanation = explain.explain_files(arguments.logs)
    except explain.LogError as error:
        return complain(str(error))
    except KeyboardInterrupt:
        return complain("interrupted", EXIT_INTERRUPTED)
    for unread in explanation.unread:
        complain(f"{unread.file} {unread.reason}; the other logs are judged")
    from diagnosis.logs import show as render

    shown = render.to_json(explanation) if arguments.json else render.to_terminal(explanation)
    _write(shown if shown.endswith("\n") else shown + "\n")
    return render.exit_code(explanation.verdict)


def _write(text: str) -> None:
    """To stdout in whatever encoding it has: logs hold characters that not every terminal can show."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def _node_stage(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from probe import check

    return _answered(lambda say: nullcontext(check.node_stage(arguments.stage, say)), arguments)


def _node_failed(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from probe import check

    output = _tail(arguments.output) if arguments.output else ""
    return _answered(
        lambda say: nullcontext(check.node_failed(arguments.step, arguments.status, output, say)),
        arguments,
    )


def _answered(stage: Callable[[Say], AbstractContextManager[Answer]], arguments: argparse.Namespace) -> int:
    """Run a stage with progress on stderr, print its answer, and turn the verdict into an exit status."""
    from probe.board import BoardError
    from probe.place import DiscoverError

    try:
        with stage(_progress()) as answer:
            return _show(answer, arguments)
    except DiscoverError as error:
        return complain(str(error))
    except BoardError as error:
        return complain(str(error), EXIT_UNKNOWN)
    except KeyboardInterrupt:
        return complain("interrupted", EXIT_INTERRUPTED)
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means FAIL here; a crash knows nothing
        import traceback

        traceback.print_exc()
        return EXIT_UNKNOWN


def _show(answer: Answer, arguments: argparse.Namespace) -> int:
    """Print the answer where it is this process's to print; the exit status of its verdict."""
    from diagnosis import render  # after the stage, so that no peer waits for it

    if answer.shown:
        sys.stdout.write(_text(answer, as_json=getattr(arguments, "json", False)))
        sys.stdout.flush()
    return render.exit_code(answer.diagnosis.verdict)


def _progress() -> Say:
    """A line on stderr with the UTC time and the seconds since the start."""
    import contextlib
    import time

    started = time.monotonic()

    def say(text: str) -> None:
        now = time.strftime("%H:%M:%S", time.gmtime())
        with contextlib.suppress(OSError):  # a full disk below a log: progress is not the answer
            sys.stderr.write(f"{now} {time.monotonic() - started:7.3f} s  {text}\n")
            sys.stderr.flush()

    return say


def _text(answer: Answer, *, as_json: bool) -> str:
    from cluster.serial import encode
    from diagnosis import render

    if not as_json:
        return render.to_terminal(answer.diagnosis)
    if answer.row is None:
        return render.to_json(answer.diagnosis)
    import json

    # What nobody else has goes along, for --merge.
    return json.dumps({**render.document(answer.diagnosis), "row": encode(answer.row)}, indent=2) + "\n"


def _tail(path: str) -> str:
    """The last lines of a step's output; why there are none, where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError as error:
        return f"({path} cannot be read: {error.strerror})"
