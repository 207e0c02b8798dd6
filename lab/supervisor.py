"""Holds a whole lab: the control plane, the VPC, the nodes. Foreground, and nothing outlives it.

`run` starts a guard process and waits. The guard makes the namespaces (`lab.sandbox`) and waits in
turn for the lab's init, which does the work. Whoever is killed, the rest goes: the init and all it
started with the guard, by the kernel; the guard with the caller, after it has removed the state file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from cluster.serial import decode, encode
from lab import interrupts, sandbox, state
from lab.boot_change import BootChange
from lab.state import LabState

REPOSITORY = Path(__file__).resolve().parent.parent
SUPERVISOR_LOG = "supervisor.log"
CONTROL_PLANE_LOG = "control-plane.log"
_PASSED_ON = ("LANG", "PYTHONPATH", "HOME")
_STOP_TIMEOUT_S = 15.0


class LabError(RuntimeError):
    """The lab did not start, or ended by itself; says why and what to do."""


@dataclass(frozen=True)
class LabOptions:
    """port: of the control plane on 127.0.0.1, 0 = any free one. boot_changes: faults of nodes."""

    state_dir: str
    log_dir: str
    port: int = 0
    region: str = "us-east-1"
    boot_changes: Tuple[BootChange, ...] = ()


def read_state(state_dir: Path) -> Optional[LabState]:
    """The lab that runs with this state folder; None when none does, also if one was killed there."""
    return state.read(state_dir)


def run(options: LabOptions, ready: Callable[[LabState], None], stop: Optional[int] = None) -> None:
    """Run a lab until it is stopped; calls `ready` once its control plane answers.

    Call it from a thread that lives as long as the lab. It returns when all of the lab is gone, and
    on KeyboardInterrupt the lab is ended before the exception goes on.

    stop: a descriptor; the lab is ended when it can be read (a pipe whose other end was closed, say).

    Raises:
        LabError: another lab runs with this folder, the port is taken, the kernel refuses
            namespaces, or the lab ended by itself.
    """
    state_dir, log_dir = Path(options.state_dir).resolve(), Path(options.log_dir).resolve()
    for folder in (state_dir, log_dir):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(
                f"{folder} cannot be created ({error.strerror}); choose another folder with --state-dir"
            ) from error
    if not os.access(state_dir, os.W_OK):
        raise LabError(f"{state_dir} is not writable; choose another folder with --state-dir")
    running = read_state(state_dir)
    if running is not None:
        raise LabError(_already(running))
    options = dataclasses.replace(
        options, state_dir=str(state_dir), log_dir=str(log_dir), port=_free_port(options.port)
    )
    news, theirs = os.pipe()
    environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    environment["PATH"] = sandbox.search_path()
    log = log_dir / SUPERVISOR_LOG
    with log.open("ab") as output:
        guard = subprocess.Popen(
            [sys.executable, "-m", "lab.guard", str(theirs), str(os.getpid()), json.dumps(encode(options))],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs,),
            start_new_session=True,  # Ctrl-C reaches the caller only, which then ends the lab in order
        )
    os.close(theirs)
    try:
        _follow(news, ready, log, stop)
    finally:
        with interrupts.put_off():
            with contextlib.suppress(ProcessLookupError):
                guard.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                guard.send_signal(signal.SIGCONT)  # one that was stopped does not hear
                guard.wait(_STOP_TIMEOUT_S)
            os.close(news)
            state.tidy_after(state_dir)  # for a guard that was killed
        if guard.poll() is None:
            raise LabError(_does_not_end(guard.pid))


def _follow(news: int, ready: Callable[[LabState], None], log: Path, stop: Optional[int]) -> None:
    """Pass the lab's news on until it ends, or is to."""
    unfinished = b""
    watched = [news] if stop is None else [news, stop]
    while True:
        there = select.select(watched, [], [])[0]
        if stop in there:
            return
        data = os.read(news, 65536)
        if not data:
            raise LabError(f"the lab ended by itself; its log is {log}")
        *lines, unfinished = (unfinished + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "error" in message:
                raise LabError(message["error"])
            if "stopped" in message:
                return
            ready(decode(LabState, message["ready"]))


def stop(pid: int) -> None:
    """End a running lab, whose guard is `pid`, and wait until it is gone.

    Raises:
        LabError: it did not end.
    """
    try:
        guard = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(guard, signal.SIGTERM)
        signal.pidfd_send_signal(guard, signal.SIGCONT)  # one that was stopped does not hear
        if not select.select([guard], [], [], _STOP_TIMEOUT_S)[0]:
            raise LabError(_does_not_end(pid))
    finally:
        os.close(guard)


def _does_not_end(pid: int) -> str:
    return (
        f"the lab (process {pid}) did not end within {_STOP_TIMEOUT_S:g} s; a process that was started "
        f"inside it waits to be collected by its parent: ps -e -o pid,ppid,state,args | grep ' Z '"
    )


def _already(running: LabState) -> str:
    here = state.state_option(Path(running.state_dir))
    return (
        f"a lab is running already with this folder ({running.state_dir}, process {running.pid}, "
        f"since {running.started_at}); end it with: fullmesh lab down{here}"
    )


def _free_port(port: int) -> int:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError as error:
            raise LabError(
                f"port {port} on 127.0.0.1 cannot be used ({error.strerror}); "
                "choose another one, or 0 for any that is free"
            ) from error
        chosen: int = attempt.getsockname()[1]
        return chosen


def log_paths(log_dir: str) -> Dict[str, Path]:
    """The logs of a lab's own parts, by name."""
    return {
        "supervisor": Path(log_dir) / SUPERVISOR_LOG,
        "control plane": Path(log_dir) / CONTROL_PLANE_LOG,
    }
