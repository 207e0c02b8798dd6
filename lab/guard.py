"""`python -m lab.guard`: the two processes under `lab.supervisor.run`, the guard and the lab's init."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Dict, NoReturn, Optional, Tuple

from cluster.serial import decode, encode
from lab import control_plane, fabric, fleet, image, observe, sandbox, services, state, syscalls
from lab.state import LabState, NodeState
from lab.supervisor import CONTROL_PLANE_LOG, SUPERVISOR_LOG, LabError, LabOptions

POLL_S = 0.3
_HEALTHY_TIMEOUT_S = 60.0


class _Stopped(Exception):
    """The guard was asked to end the lab."""


def main(news: int, caller: int, options: LabOptions) -> int:
    """The guard: makes the lab's namespaces, waits for its init, and leaves no file behind."""

    def stop(_number: int, _frame: Optional[FrameType]) -> NoReturn:
        raise _Stopped

    signal.signal(signal.SIGTERM, stop)
    sandbox.die_with_parent(signal.SIGTERM, caller)
    state_dir = Path(options.state_dir)
    held = state.lock(state_dir)
    if held is None:
        _tell(news, {"error": f"another lab is just starting with this folder ({state_dir})"})
        return 1
    work = state_dir / state.WORK
    work.mkdir(exist_ok=True)
    init = 0
    code = 1
    try:
        rootless = sandbox.needs_user_namespace()
        guard_pid = os.getpid()
        init = sandbox.contain()
        if init == 0:
            os.close(held)
            _init(news, caller, guard_pid, rootless, options)
        # a user namespace counts as a change of rights, which clears the request made above
        sandbox.die_with_parent(signal.SIGTERM, caller)
        os.waitpid(init, 0)
        init = 0
        _tell(news, {"error": f"the lab ended by itself; its log is in {options.log_dir}"})
    except sandbox.SandboxError as error:
        _tell(news, {"error": str(error)})
    except _Stopped:
        code = 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if init:
            os.kill(init, signal.SIGKILL)
            os.waitpid(init, 0)
        state.tidy(state_dir)
    _tell(news, {"stopped": True})
    return code


def _tell(news: int, message: Dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the caller is gone: nobody listens
        os.write(news, json.dumps(message).encode() + b"\n")


def _init(news: int, caller: int, guard_pid: int, rootless: bool, options: LabOptions) -> NoReturn:
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # not SIG_IGN: that is inherited by every program started from here
            signal.signal(number, lambda *_: None)
        _hold_lab(news, caller, guard_pid, rootless, options)
        code = 0
    except Exception as error:  # noqa: BLE001 - told to the caller, who shows it
        _tell(news, {"error": _reason(error, options)})
        _say(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _reason(error: Exception, options: LabOptions) -> str:
    if isinstance(error, (FileNotFoundError, PermissionError)) and error.filename in ("nft", "ip"):
        return (
            f"{error.filename} cannot be run ({error.strerror}); run: sudo apt-get install nftables iproute2"
        )
    full = state.no_space(error, Path(options.state_dir)) if isinstance(error, OSError) else ""
    return full or str(error) or type(error).__name__


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk ends nothing by itself
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
        sys.stderr.flush()


def _hold_lab(news: int, caller: int, guard_pid: int, rootless: bool, options: LabOptions) -> None:
    """Start everything, then follow the control plane until killed."""
    work = Path(options.state_dir) / state.WORK
    # in this mount namespace only: temporary files of all parts go with it
    syscalls.mount("lab", str(work), "tmpfs", syscalls.MS_NOSUID, "mode=700")
    (work / "root").mkdir()
    (work / "tmp").mkdir()
    os.environ["TMPDIR"] = str(work / "tmp")
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = "/dev/null"
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

    plane_log = Path(options.log_dir) / CONTROL_PLANE_LOG
    plane = control_plane.start(options.port, plane_log, work / "tmp" / "control-plane")
    network = fabric.Fabric()
    served = services.Services(network.namespace, options.port)
    system = image.Image.of_this_machine()
    url = f"http://127.0.0.1:{options.port}"
    current = LabState(
        pid=guard_pid,
        caller_pid=caller,
        endpoint_url=url,
        region=options.region,
        started_at=observe.utc_text(time.time()),
        log_dir=options.log_dir,
        state_dir=options.state_dir,
        rootless=rootless,
        search_path=system.search_path,
        environment=fleet.node_environment(options.region),
        network=f"/proc/{sandbox.host_pid()}/fd/{network.namespace}",
    )
    state_file = Path(options.state_dir) / state.FILE_NAME

    def changed(nodes: Tuple[NodeState, ...], firewall_loads: int) -> None:
        now = dataclasses.replace(current, nodes=nodes, firewall_loads=firewall_loads)
        state.write(state_file, now)

    crew = fleet.Fleet(
        observer=observe.Observer(url, options.region),
        network=network,
        services=served,
        system=system,
        region=options.region,
        workspace=work / "root",
        log_dir=Path(options.log_dir),
        boot_changes=options.boot_changes,
        say=_say,
        changed=changed,
    )
    parts = {
        plane.pid: ("control plane", plane_log),
        served.pid: ("metadata, DNS and relay process", Path(options.log_dir) / SUPERVISOR_LOG),
    }
    control_plane.wait_healthy(url, _HEALTHY_TIMEOUT_S, plane)
    changed((), 0)
    _tell(news, {"ready": encode(current)})
    _say(f"ready: {url}, {'rootless' if rootless else 'as root'}")
    while True:
        started = time.monotonic()
        try:
            crew.follow()
        except observe.UNREACHABLE as error:
            _say(f"the control plane did not answer: {error}")
        took = time.monotonic() - started
        _reap(crew, parts)
        # a round that takes long (many nodes, a loaded machine) must not eat the machine
        time.sleep(max(POLL_S, took))


def _reap(crew: fleet.Fleet, parts: Dict[int, Tuple[str, Path]]) -> None:
    """Collect what has ended: orphans, nodes, and the lab's own parts, without which it cannot go on.

    parts: pid -> what it is, and its log.

    Raises:
        LabError: one of the parts ended.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in parts:
            name, log = parts[pid]
            raise LabError(
                f"the {name} ended with status {os.waitstatus_to_exitcode(status)}; its log is {log}"
            )
        crew.reaped(pid)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), decode(LabOptions, json.loads(sys.argv[3]))))
