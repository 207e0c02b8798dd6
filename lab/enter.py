"""Runs a command inside a node of a running lab, from any process of the user who started it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from types import FrameType
from typing import Any, List, Sequence

from lab import image, processes
from lab.state import LabState, NodeState

_NAMESPACES = ("--mount", "--net", "--uts", "--ipc", "--pid")


def command(state: LabState, node: NodeState, argv: Sequence[str]) -> List[str]:
    """The argument list that runs `argv` inside the node as its root; for subprocess, never a shell.

    nsenter joins the namespaces (the user namespace first, which then allows the others), setpriv
    ties the command to nsenter's life and takes the rights a node does not have, and env gives it
    what a fresh login on the node would. (nsenter's own --wd would open the host's folder.)
    """
    user = ["--user", "--preserve-credentials"] if state.rootless else []
    variables = {
        "PATH": state.search_path,
        "HOME": "/root",
        "USER": "root",
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        **state.environment,
    }
    return [
        "nsenter", "--target", str(node.pid), *user, *_NAMESPACES, "--",
        "setpriv", "--pdeathsig", "KILL", "--bounding-set", image.bounding_set_argument(),
        # nsenter may ignore Ctrl-C (see `enter`), and what is ignored is inherited
        "env", "--default-signal=INT", "-i", "-C", "/root",
        *(f"{key}={value}" for key, value in variables.items()),
        *argv,
    ]  # fmt: skip


def uts_command(state: LabState, node: NodeState, argv: Sequence[str]) -> List[str]:
    """The argument list that runs `argv` of this machine where it may set the node's host name.

    A node's own root may not: that needs CAP_SYS_ADMIN, which nodes do not have.
    """
    user = ["--user", "--preserve-credentials"] if state.rootless else []
    return ["nsenter", "--target", str(node.pid), *user, "--uts", "--", *argv]


def network_command(state: LabState, argv: Sequence[str]) -> List[str]:
    """The argument list that runs `argv` of this machine in the VPC's network namespace.

    What is done there happens between the nodes, where none of them can see it.
    """
    user = [f"--user={state.network.rpartition('/fd/')[0]}/ns/user"] if state.rootless else []
    if user:
        user.append("--preserve-credentials")
    return ["nsenter", f"--net={state.network}", *user, "--", *argv]


def enter(state: LabState, node: NodeState, argv: Sequence[str]) -> int:
    """Run `argv` inside the node with this process's terminal; returns its exit status, as a shell does.

    Ctrl-C is the command's to hear, which shares the terminal: nsenter and this process wait for it.
    """
    interrupted = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True

    before = signal.signal(signal.SIGINT, note)
    process = subprocess.Popen(
        command(state, node, argv),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509 - no threads
    )
    try:
        status = process.wait()
    finally:
        end(process)
        signal.signal(signal.SIGINT, before)
    if interrupted and status == 1:
        return 128 + signal.SIGINT  # nsenter cannot end by a signal that it ignores
    return status if status >= 0 else 128 - status


def end(process: subprocess.Popen[Any]) -> None:
    """Kill what runs in a node by `command`, with all that it has started there, if it still runs.

    Not nsenter, its parent, which is to collect it: otherwise that falls to the machine's init, and a
    node cannot end before it is done.
    """
    if process.poll() is None:
        if processes.children(process.pid):
            processes.end_below(process.pid)
        else:
            process.kill()
        while process.poll() is None:
            process.send_signal(signal.SIGCONT)  # nsenter stops when its command was stopped
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
