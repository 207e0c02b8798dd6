"""`demo` and `lab`: the stand-in for AWS, mounted in the program's command line.

Imports happen inside the commands: --help must not need the lab's dependencies.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.serial import encode
from diagnosis.command_line import (
    EXIT_INTERRUPTED,
    EXIT_UNKNOWN,
    CommandError,
    add_command,
    complain,
    json_option,
    write_json,
)
from lab import CHECKOUT

if TYPE_CHECKING:
    from lab.state import LabState

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parsers(commands: Commands) -> None:
    """Mount `demo` and `lab`; each sets `run`, a function of the parsed arguments to an exit status."""
    _add_demo(commands)
    _add_lab(commands)


def _folder(text: str) -> Path:
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not the path of a folder")
    return Path(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535, or 0 for any that is free")
    return int(text)


def _state_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=_folder,
        default=CHECKOUT / ".fullmesh",
        metavar="DIR",
        help="where the lab keeps its state and logs (default: .fullmesh in the checkout)",
    )


def _add_demo(commands: Commands) -> None:
    demo = add_command(
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
    json_option(demo)
    _state_option(demo)
    demo.set_defaults(run=_demo)


def _add_lab(commands: Commands) -> None:
    lab = add_command(
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
    up = add_command(
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
        "--port",
        type=_port,
        default=0,
        metavar="PORT",
        help="loopback port of the control plane (default: any free one)",
    )
    up.set_defaults(run=_lab_up)
    env = add_command(
        actions, "env", "print shell exports that point AWS clients at the lab", 'eval "$(fullmesh lab env)"'
    )
    env.set_defaults(run=_lab_env)
    status = add_command(actions, "status", "list the lab's nodes", "fullmesh lab status --json")
    json_option(status)
    status.set_defaults(run=_lab_status)
    execute = add_command(
        actions, "exec", "run a command inside a node", "fullmesh lab exec 0 -- cat /etc/hostname"
    )
    execute.add_argument("node", type=int, metavar="NODE", help="rank of the node")
    execute.add_argument("argv", nargs="+", metavar="COMMAND", help="what to run, after --")
    execute.set_defaults(run=_lab_exec)
    check = add_command(actions, "check", "probe again on all nodes and judge", "fullmesh lab check --json")
    json_option(check)
    check.add_argument("--no-collective", action="store_true", help="the mesh only, without torch")
    check.set_defaults(run=_lab_check)
    down = add_command(actions, "down", "end a running lab", "fullmesh lab down")
    down.set_defaults(run=_lab_down)
    for parser in (up, env, status, execute, check, down):
        _state_option(parser)


def _demo(options: argparse.Namespace) -> int:
    from lab import demo, demo_answer, toolchain
    from lab.progress import Progress

    if options.list_faults:
        sys.stdout.write(demo_answer.faults_text())
        return 0
    problem = _wrong_count(options.nodes)
    if problem:
        return complain(problem)
    wanted = demo.DemoOptions(nodes=options.nodes, fault=options.fault, state_dir=options.state_dir)
    try:
        _ = wanted.chosen_fault
    except demo.DemoError as error:
        return complain(str(error))
    progress = Progress()
    try:
        with demo.running_lab(wanted, progress) as state, contextlib.ExitStack() as afterwards:
            result = demo.run(wanted, state, progress, afterwards)
            if options.json:
                write_json(demo_answer.document(result))
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
        return complain(str(error), EXIT_UNKNOWN)
    return demo.exit_status(result)


def _wrong_count(nodes: int) -> str:
    """Why no cluster can have so many nodes; "" where one can."""
    from cluster.spec import ClusterSpec, SpecError

    try:
        ClusterSpec.from_context(overrides={"nodes": str(nodes)})
    except SpecError as error:
        return str(error)
    return ""


def _lab_up(options: argparse.Namespace) -> int:
    from lab import demo, demo_answer, supervisor, toolchain
    from lab.progress import Progress

    problem = "" if options.nodes is None else _wrong_count(options.nodes)
    if problem:
        return complain(problem)
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
        return complain(str(error), EXIT_UNKNOWN)
    return 0


def _running(options: argparse.Namespace) -> LabState:
    """The state of the running lab.

    Raises:
        CommandError: none is running with this state folder.
    """
    from lab.state import FILE_NAME, holder, read, state_option

    state = read(options.state_dir)
    if state is None:
        pid, here = holder(options.state_dir), state_option(options.state_dir)
        if pid is not None:
            raise CommandError(
                f"a lab (process {pid}) holds {options.state_dir}, but its {FILE_NAME} there cannot be read: "
                f"it is just starting, or the file is damaged; end it with: fullmesh lab down{here}"
            )
        raise CommandError(
            f"no lab is running with {options.state_dir}; start one with: fullmesh lab up{here}"
        )
    return state


def _lab_env(options: argparse.Namespace) -> int:
    from lab import toolchain

    state = _running(options)
    for name, value in toolchain.environment(state.endpoint_url, state.region).items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
    sys.stdout.write(f'export PATH={shlex.quote(str(CHECKOUT / ".venv/bin"))}:"$PATH"\n')
    return 0


def _lab_status(options: argparse.Namespace) -> int:
    state = _running(options)
    if options.json:
        write_json(encode(state))
        return 0
    sys.stdout.write(f"lab: {state.endpoint_url}, region {state.region}, up since {state.started_at}\n")
    sys.stdout.write(f"logs: {state.log_dir}\n")
    for node in state.nodes:
        sys.stdout.write(f"node {node.rank:>3}  {node.address:<15} {node.instance_id}  {node.name}\n")
    if not state.nodes:
        sys.stdout.write("no nodes: nothing is deployed\n")
    return 0


def _lab_exec(options: argparse.Namespace) -> int:
    from lab import enter, twin

    state = _running(options)
    try:
        node = state.node(options.node)
    except LookupError as error:
        return complain(str(error.args[0]))
    status = twin.watch()
    if status is not None:
        return status if status >= 0 else 128 - status
    return enter.enter(state, node, options.argv)


def _lab_check(options: argparse.Namespace) -> int:
    from diagnosis import render
    from lab import check, twin

    state = _running(options)
    status = twin.watch()
    if status is not None:
        if status < 0:
            said = f"the check was killed (signal {-status}) before its verdict; run it again"
            return complain(said, EXIT_UNKNOWN)
        return status
    sys.stderr.write(f"probing on {len(state.nodes)} nodes (about 10 s) ...\n")
    try:
        diagnosis = check.run_check(state, collective=not options.no_collective)
    except check.CheckError as error:
        return complain(str(error), EXIT_UNKNOWN)
    if options.json:
        sys.stdout.write(render.to_json(diagnosis))
    else:
        sys.stdout.write(render.to_terminal(diagnosis))
    return render.exit_code(diagnosis.verdict)


def _lab_down(options: argparse.Namespace) -> int:
    from lab import supervisor
    from lab.state import holder

    pid = holder(options.state_dir)
    if pid is None:
        sys.stdout.write("no lab is running\n")
        return 0
    try:
        supervisor.stop(pid)
    except supervisor.LabError as error:
        return complain(str(error), EXIT_UNKNOWN)
    sys.stdout.write("the lab was ended\n")
    return 0
