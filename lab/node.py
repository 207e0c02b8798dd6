"""One node: the namespaces of an instance, its PID 1, and its first boot.

The launcher forks twice, so that the node's init is PID 1 of the node's own PID namespace and a
direct child of the lab's init, which reaps it. The node's init sets up its end of the network and
its root file system, runs the user data as cloud-init would, copies that output to the node's
own log and to the host's, and reaps what is orphaned, until it is killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Dict, List, NoReturn, Optional

from lab import fabric, image, sandbox, syscalls

CLOUD_INIT_LOG = "/var/log/cloud-init-output.log"
_SCRIPT = "/var/lib/cloud/instance/scripts/part-001"
_USER_DATA = "/var/lib/cloud/instance/user-data.txt"
_FINISHED = "/var/lib/cloud/instance/boot-finished"
_NAMESPACES = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWPID
)


class NodeError(RuntimeError):
    """A node did not come up; says at which step."""


@dataclass(frozen=True)
class NodePlan:
    """All that a node needs to boot.

    user_data: as the instance has it, decoded; log: on the host, gets the user data's output;
    workspace: an empty directory on the host that the node mounts its root on, in its own namespace;
    before: a script of the lab's own that user data waits for (see `boot_change`).
    """

    instance_id: str
    link: fabric.Link
    identity: image.Identity
    user_data: bytes
    log: Path
    workspace: Path
    before: str = ""


@dataclass(frozen=True)
class StartedNode:
    """A node that has its namespaces and waits for its link.

    pid: as the lab's init sees it; host_pid: as the host does; go: write a byte to let it boot;
    report: yields "ready" or what went wrong, then end of file.
    """

    pid: int
    host_pid: int
    go: int
    report: int

    def boot(self) -> None:
        """Let the node go on: its link is there."""
        os.write(self.go, b"g")
        os.close(self.go)

    def wait_ready(self) -> None:
        """Wait until the node's network and root are up and its user data has started.

        Raises:
            NodeError: what went wrong on the node.
        """
        with os.fdopen(self.report, "rb") as report:
            answer = report.read().decode(errors="replace")
        if answer != "ready":
            raise NodeError(answer or "the node's init died before it could say why")


def start(plan: NodePlan, system: image.Image) -> StartedNode:
    """Fork a node's init into namespaces of its own. Call from a process without other threads."""
    go_r, go_w = os.pipe()
    report_r, report_w = os.pipe()
    pids_r, pids_w = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        _launch(plan, system, go_r, report_w, pids_w)
    for fd in (go_r, report_w, pids_w):
        os.close(fd)
    with os.fdopen(pids_r, "rb") as pids:
        answer = pids.read().split()
    os.waitpid(launcher, 0)
    if len(answer) != 2:
        os.close(go_w)
        with os.fdopen(report_r, "rb") as report:
            reason = report.read().decode(errors="replace")
        raise NodeError(f"{plan.instance_id}: no namespaces: {reason or 'the launcher died'}")
    # the init reports its host pid before or after the launcher reports its own: told apart by tag
    found = {item[:1]: int(item[1:]) for item in answer}
    return StartedNode(pid=found[b"p"], host_pid=found[b"h"], go=go_w, report=report_r)


def _launch(plan: NodePlan, system: image.Image, go: int, report: int, pids: int) -> NoReturn:
    try:
        syscalls.unshare(_NAMESPACES)
        init = os.fork()
        if init:
            os.write(pids, b"p%d " % init)
            os._exit(0)
        os.write(pids, b"h%d " % sandbox.host_pid())
        os.close(pids)
        _close_all_but(go, report)
        if os.read(go, 1) != b"g":
            os._exit(1)
        os.close(go)
        _init(plan, system, report)
    except BaseException:  # noqa: BLE001 - this process has nobody above it to tell
        os.write(report, traceback.format_exc().encode())
        os._exit(1)


def _close_all_but(*kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:  # the descriptor of the listing itself
                continue


def _init(plan: NodePlan, system: image.Image, report: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    syscalls.set_host_name(plan.identity.host_name)
    commands = "\n".join(fabric.node_commands(plan.link)) + "\n"
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    sandbox.run_in(own, ["ip", "-batch", "-"], commands)
    os.close(own)
    fabric.turn_off_segmentation_offload(fabric.NODE_INTERFACE)
    host_log = plan.log.open("ab", buffering=0)
    image.build(system, plan.identity, plan.workspace)
    image.drop_capabilities()
    os.umask(0o022)
    # the init of a machine hears nothing from the terminal the lab was started on
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.setsid()
    node_log = open(CLOUD_INIT_LOG, "ab", buffering=0)  # noqa: SIM115 - open as long as the node is
    output, child = _first_boot(plan, system)
    os.write(report, b"ready")
    os.close(report)
    _reap_for_ever(child, output, [node_log, host_log])


def _first_boot(plan: NodePlan, system: image.Image) -> tuple[int, Optional[int]]:
    """Start the user data; returns the reading end of its output, and its pid (None: nothing to run)."""
    output, write = os.pipe()
    Path(_USER_DATA).write_bytes(plan.user_data)
    if not plan.user_data.startswith(b"#!"):
        kind = plan.user_data[:40].split(b"\n")[0].decode(errors="replace")
        if plan.user_data:
            text = f"user data is not a script (it starts with {kind!r}); this lab runs scripts (#!) only\n"
            os.write(write, text.encode())
        os.close(write)
        return output, None
    Path(_SCRIPT).write_bytes(plan.user_data)
    os.chmod(_SCRIPT, 0o700)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.dup2(write, 1)
            os.dup2(write, 2)
            os.closerange(3, 1024)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, and so by all it starts
                signal.signal(number, signal.SIG_DFL)
            environment = boot_environment(plan.identity, system)
            if plan.before:
                subprocess.run(["bash", "-ec", plan.before], env=environment, check=True)
            os.execve(_SCRIPT, [_SCRIPT], environment)  # noqa: S606 - the user data is the program
        except (OSError, subprocess.CalledProcessError) as error:
            os.write(2, f"cannot run the user data: {error}\n".encode())
        finally:
            os._exit(127)
    os.close(write)
    return output, child


def boot_environment(identity: image.Identity, system: image.Image) -> Dict[str, str]:
    """What cloud-init gives to user data: no HOME, as on EC2, and the image's /etc/environment."""
    return {"PATH": system.search_path, "LANG": "C.UTF-8", **identity.environment}


def _reap_for_ever(child: Optional[int], output: int, logs: List[BinaryIO]) -> NoReturn:
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    watched = [wake_r, output]
    if child is None:
        Path(_FINISHED).write_text("0\n")
    while True:
        child = _reap(child)
        for fd in select.select(watched, [], [])[0]:
            data = os.read(fd, 65536)
            if fd == output:
                if not data:
                    watched.remove(output)
                for log in logs:
                    _write_what_fits(log, data)


def _reap(child: Optional[int]) -> Optional[int]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return child
        if pid == 0:
            return child
        if pid == child:
            child = None
            try:
                Path(_FINISHED).write_text(f"{os.waitstatus_to_exitcode(status)}\n")
            except OSError as error:  # a full disk is a fault that a node may have
                sys.stderr.write(f"{error}\n")


def _write_what_fits(log: BinaryIO, data: bytes) -> None:
    try:
        log.write(data)
    except OSError:  # the node's disk is full; the other log still gets it
        return
