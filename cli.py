"""`fullmesh`: parses, calls, renders. Every decision is made in the packages below it.

Imports happen inside the commands: `fullmesh explain` and `--help` must start as fast as a
bare Python, and only `demo` and `lab` may need the lab's dependencies.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import probe.cli
from cluster.serial import encode

CHECKOUT = Path(__file__).resolve().parent
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it

EPILOG = """\
examples:
  fullmesh doctor                             can this machine run the lab?
  fullmesh demo                               a proven cluster of four nodes, here
  fullmesh demo --fault sg-only-master-port   the famous failure, named
  fullmesh causes hostname-loopback           what a cause means and how to mend it

exit codes: 0 PASS, 1 FAIL, 2 usage, 3 UNKNOWN (not looked at is never PASS)
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fullmesh",
        description="A PyTorch Gloo cluster on EC2 that is known to be good.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_lab(commands)
    probe.cli.add_parsers(commands)
    _add_causes(commands)
    doctor = _command(
        commands,
        "doctor",
        "check this machine's prerequisites in 2 s, or an account's before a deploy",
        "fullmesh doctor --json",
        "fullmesh doctor --account -c cluster.instance_type=c7i.4xlarge",
    )
    _json_option(doctor)
    doctor.add_argument(
        "--account", action="store_true", help="ask the AWS account of this environment instead"
    )
    doctor.add_argument(
        "-c", dest="context", action="append", default=[], metavar="KEY=VALUE", help="as for cdk deploy"
    )
    doctor.set_defaults(run=_doctor)
    return parser


def _command(commands: Any, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "".join(f"  {example}\n" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable answer on standard output")


def _state_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=CHECKOUT / ".fullmesh",
        metavar="DIR",
        help="where the lab keeps its state and logs (default: .fullmesh in the checkout)",
    )


def _add_demo(commands: Any) -> None:
    demo = _command(
        commands,
        "demo",
        "deploy the real stack on the lab and show its verdict",
        "fullmesh demo",
        "fullmesh demo --nodes 8 --keep",
        "fullmesh demo --fault sg-only-master-port",
    )
    demo.add_argument(
        "--nodes", type=int, default=4, metavar="N", help="instances in the cluster (default 4)"
    )
    demo.add_argument(
        "--fault", metavar="CAUSE", help="provoke this cause (see: fullmesh demo --list-faults)"
    )
    demo.add_argument("--list-faults", action="store_true", help="print the faults that can be provoked")
    demo.add_argument(
        "--keep", action="store_true", help="keep the lab up until Ctrl-C, to break things by hand"
    )
    _json_option(demo)
    _state_option(demo)
    demo.set_defaults(run=_demo)


def _add_lab(commands: Any) -> None:
    lab = _command(
        commands,
        "lab",
        "the local stand-in for AWS: run it, look into it, probe it again",
        "fullmesh lab up",
        'eval "$(fullmesh lab env)" && aws ec2 describe-instances',
        "fullmesh lab exec 2 -- ip address",
        "fullmesh lab check",
        "fullmesh lab down",
    )
    actions = lab.add_subparsers(dest="action", metavar="ACTION", required=True)
    up = _command(
        actions,
        "up",
        "start the lab in the foreground; Ctrl-C ends it",
        "fullmesh lab up",
        "fullmesh lab up --nodes 4",
    )
    up.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        help="also deploy the stack with N nodes (default: an empty account)",
    )
    up.add_argument(
        "--port", type=int, default=0, help="loopback port of the control plane (default: any free one)"
    )
    up.set_defaults(run=_lab_up)
    env = _command(
        actions, "env", "print shell exports that point AWS clients at the lab", 'eval "$(fullmesh lab env)"'
    )
    env.set_defaults(run=_lab_env)
    status = _command(actions, "status", "list the lab's nodes", "fullmesh lab status --json")
    _json_option(status)
    status.set_defaults(run=_lab_status)
    execute = _command(
        actions, "exec", "run a command inside a node", "fullmesh lab exec 0 -- cat /etc/hostname"
    )
    execute.add_argument("node", type=int, metavar="NODE", help="rank of the node")
    execute.add_argument("argv", nargs="+", metavar="COMMAND", help="what to run, after --")
    execute.set_defaults(run=_lab_exec)
    check = _command(actions, "check", "probe again on all nodes and judge", "fullmesh lab check --json")
    _json_option(check)
    check.add_argument("--no-collective", action="store_true", help="the mesh only, without torch")
    check.set_defaults(run=_lab_check)
    down = _command(actions, "down", "end a running lab", "fullmesh lab down")
    down.set_defaults(run=_lab_down)
    for parser in (up, env, status, execute, check, down):
        _state_option(parser)


def _add_causes(commands: Any) -> None:
    causes = _command(
        commands,
        "causes",
        "list the causes a verdict can name, or explain one",
        "fullmesh causes",
        "fullmesh causes sg-only-master-port",
    )
    causes.add_argument("id", nargs="?", metavar="ID", help="one cause")
    _json_option(causes)
    causes.set_defaults(run=_causes)


def _write_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _complain(text: str, status: int = EXIT_USAGE) -> int:
    sys.stderr.write(f"fullmesh: {text}\n")
    return status


def _doctor(options: argparse.Namespace) -> int:
    from lab import doctor

    if not options.account:
        return doctor.answer(doctor.examine(), as_json=options.json)
    import boto3

    from cluster.spec import ClusterSpec, SpecError
    from stacks.account_check import examine_account

    context = json.loads((CHECKOUT / "cdk.json").read_text())["context"]
    try:
        overrides = dict(item.split("=", 1) for item in options.context)
        spec = ClusterSpec.from_context(context.get("cluster"), overrides)
    except SpecError as error:
        return _complain(str(error))
    except ValueError:
        return _complain(f"-c takes KEY=VALUE, got {options.context}; for example -c cluster.nodes=8")
    checks = examine_account(spec, boto3.Session())
    return doctor.answer([doctor.Check(**encode(check)) for check in checks], as_json=options.json)


def _causes(options: argparse.Namespace) -> int:
    from diagnosis import render_causes as render
    from diagnosis.causes import CATALOGUE

    if options.id is not None and options.id not in CATALOGUE:
        return _complain(f"there is no cause {options.id!r}; list them with: fullmesh causes")
    chosen = [CATALOGUE[options.id]] if options.id is not None else list(CATALOGUE.values())
    if options.json:
        _write_json([render.cause_document(cause) for cause in chosen])
    elif options.id is not None:
        sys.stdout.write(render.cause_text(chosen[0]))
    else:
        sys.stdout.write(render.causes_text(chosen))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from cluster.spec import ClusterSpec, SpecError
    from lab import demo, demo_answer, toolchain
    from lab.progress import Progress

    if options.list_faults:
        sys.stdout.write(demo_answer.faults_text())
        return 0
    try:
        ClusterSpec.from_context(overrides={"nodes": str(options.nodes)})
    except SpecError as error:
        return _complain(str(error))
    wanted = demo.DemoOptions(nodes=options.nodes, fault=options.fault, state_dir=options.state_dir)
    try:
        _ = wanted.chosen_fault
    except demo.DemoError as error:
        return _complain(str(error))
    progress = Progress()
    try:
        with demo.running_lab(wanted, progress) as state, contextlib.ExitStack() as afterwards:
            result = demo.run(wanted, state, progress, afterwards)
            if options.json:
                _write_json(demo_answer.document(result))
            else:
                sys.stdout.write(demo_answer.text(wanted, result, keep=options.keep))
                sys.stdout.flush()
            if options.keep:
                progress.say("the lab is up; press Ctrl-C to end it")
                demo.wait_until_gone(options.state_dir)
    except KeyboardInterrupt:
        progress.say("interrupted: the lab was ended, nothing is left running")
        return EXIT_INTERRUPTED
    except (demo.DemoError, toolchain.ToolchainError) as error:
        return _complain(str(error), EXIT_UNKNOWN)
    return demo.exit_status(result)


def _lab_up(options: argparse.Namespace) -> int:
    from lab import demo, demo_answer, supervisor, toolchain
    from lab.progress import Progress

    progress = Progress()
    wanted = demo.DemoOptions(nodes=options.nodes or 0, state_dir=options.state_dir, port=options.port)
    try:
        with demo.running_lab(wanted, progress) as state:
            if options.nodes:
                result = demo.run(wanted, state, progress)
                sys.stdout.write(demo_answer.text(wanted, result, keep=True))
            progress.say(demo_answer.how_to_use(state))
            demo.wait_until_gone(options.state_dir)
    except KeyboardInterrupt:
        progress.say("interrupted: the lab was ended, nothing is left running")
        return EXIT_INTERRUPTED
    except (demo.DemoError, supervisor.LabError, toolchain.ToolchainError) as error:
        return _complain(str(error), EXIT_UNKNOWN)
    return 0


def _running(options: argparse.Namespace) -> Any:
    """The state of the running lab.

    Raises:
        NoLab: none is running with this state folder.
    """
    from lab import supervisor

    state = supervisor.read_state(options.state_dir)
    if state is None:
        raise NoLab(f"no lab is running with {options.state_dir}; start one with: fullmesh lab up")
    return state


class NoLab(RuntimeError):
    """A command needs a running lab and there is none."""


def _lab_env(options: argparse.Namespace) -> int:
    from lab import toolchain

    state = _running(options)
    values = toolchain.environment(state.endpoint_url, state.region)
    values["PATH"] = f"{CHECKOUT / '.venv/bin'}:$PATH"
    for name, value in values.items():
        sys.stdout.write(f'export {name}="{value}"\n')
    return 0


def _lab_status(options: argparse.Namespace) -> int:
    state = _running(options)
    if options.json:
        _write_json(encode(state))
        return 0
    sys.stdout.write(f"lab: {state.endpoint_url}, region {state.region}, up since {state.started_at}\n")
    sys.stdout.write(f"logs: {state.log_dir}\n")
    for node in state.nodes:
        sys.stdout.write(f"node {node.rank:>3}  {node.address:<15} {node.instance_id}  {node.name}\n")
    if not state.nodes:
        sys.stdout.write("no nodes: nothing is deployed\n")
    return 0


def _lab_exec(options: argparse.Namespace) -> int:
    from lab import enter

    state = _running(options)
    try:
        node = state.node(options.node)
    except LookupError as error:
        return _complain(str(error.args[0]))
    return enter.enter(state, node, options.argv)


def _lab_check(options: argparse.Namespace) -> int:
    from diagnosis import render
    from lab import check

    state = _running(options)
    sys.stderr.write(f"probing on {len(state.nodes)} nodes (about 10 s) ...\n")
    try:
        diagnosis = check.run_check(state, collective=not options.no_collective)
    except check.CheckError as error:
        return _complain(str(error), EXIT_UNKNOWN)
    if options.json:
        sys.stdout.write(render.to_json(diagnosis))
    else:
        sys.stdout.write(render.to_terminal(diagnosis))
    return render.exit_code(diagnosis.verdict)


def _lab_down(options: argparse.Namespace) -> int:
    from lab import supervisor

    state = supervisor.read_state(options.state_dir)
    if state is None:
        sys.stdout.write("no lab is running\n")
        return 0
    try:
        supervisor.stop(state)
    except supervisor.LabError as error:
        return _complain(str(error), EXIT_UNKNOWN)
    sys.stdout.write("the lab was ended\n")
    return 0


def main(argv: list[str] | None = None) -> int:
    if sys.stdout is None or sys.stderr is None:
        return EXIT_USAGE  # started with a closed standard stream: there is nowhere to answer
    options = build_parser().parse_args(argv)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except NoLab as error:
        return _complain(str(error), EXIT_UNKNOWN)
    except BrokenPipeError:
        _abandon_stdout()  # the reader is gone: there is nobody to tell
        return EXIT_UNKNOWN
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _abandon_stdout()
        return _complain("the answer could not be written: no space left on the device", EXIT_UNKNOWN)
    return status


def _abandon_stdout() -> None:
    """Keep the interpreter from failing again on what is still buffered when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
