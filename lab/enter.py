"""Runs a command inside a node of a running lab, from any process of the user who started it."""

from __future__ import annotations

import subprocess
from typing import List, Sequence

from lab import image
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
        "env", "-i", "-C", "/root", *(f"{key}={value}" for key, value in variables.items()),
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
    """Run `argv` inside the node with this process's terminal; returns its exit status."""
    return subprocess.run(command(state, node, argv), check=False).returncode
