"""`fullmesh demo`: the real CDK stack deployed on the lab, its verdict, and what to break next."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from diagnosis import render
from diagnosis.report import Diagnosis, Verdict
from lab import deploy, interrupts, pages, supervisor
from lab.boot_change import BootChange
from lab.check import CheckError
from lab.fault_scene import FaultError, Scene
from lab.faults import FAULTS, Fault, Way
from lab.progress import Progress
from lab.state import DEFAULT_STATE_DIR, LabState, no_space

LAB_START_TIMEOUT_S = 60.0  # the emulator starts in 3 s; a loaded machine takes several times that


class DemoError(RuntimeError):
    """A step of the demo could not run; the text names the step, the log and the next command."""


@dataclass(frozen=True)
class DemoOptions:
    """nodes: how many instances; fault: id of the cause to provoke, or None; state_dir: `.fullmesh`.

    boot_changes: of other clusters in the same lab.
    """

    nodes: int = 4
    fault: str | None = None
    state_dir: Path = DEFAULT_STATE_DIR
    cluster: str = "fullmesh"
    port: int = 0
    boot_changes: tuple[BootChange, ...] = ()

    @property
    def chosen_fault(self) -> Fault | None:
        """The fault to provoke.

        Raises:
            DemoError: there is none of that id, or the cluster is too small for it.
        """
        if self.fault is None:
            return None
        found = FAULTS.get(self.fault)
        if found is None:
            raise DemoError(
                f"{self.fault!r} cannot be provoked; what can is listed by: fullmesh demo --list-faults"
            )
        if self.nodes < found.least_nodes:
            raise DemoError(f"{found.id} needs {found.least_nodes} nodes, not {self.nodes}")
        return found

    @property
    def logs(self) -> Path:
        return self.state_dir / "logs"


@dataclass(frozen=True)
class DemoResult:
    """What the deploy came to. diagnosis None = neither a node nor the referee left a verdict.

    broken_by: the fault that came after the deploy; the diagnosis is then that of a check.
    """

    complete: bool
    event: str
    diagnosis: Diagnosis | None
    evidence: str
    outputs: dict[str, str]
    cdk_log: Path
    report: Path | None = None  # pages for a browser
    dashboard: Path | None = None
    timings_s: dict[str, float] = field(default_factory=dict)
    broken_by: Fault | None = None


@contextlib.contextmanager
def running_lab(options: DemoOptions, progress: Progress) -> Iterator[LabState]:
    """A lab for as long as the context lasts; it also ends when this process is killed.

    Raises:
        DemoError: the lab did not start; says why.
    """
    answers: queue.Queue[LabState | Exception] = queue.Queue()
    fault = options.chosen_fault
    wanted = supervisor.LabOptions(
        state_dir=str(options.state_dir),
        log_dir=str(options.logs),
        port=options.port,
        boot_changes=(
            *options.boot_changes,
            *(fault.boot_changes(options.cluster) if fault is not None else ()),
        ),
    )

    stop, keep = os.pipe()

    def hold() -> None:
        try:
            supervisor.run(wanted, answers.put, stop)
        except Exception as error:  # noqa: BLE001 - crosses to the waiting thread, which raises it
            answers.put(error)

    # The lab ends with the thread that started it, so that thread does nothing else.
    holder = threading.Thread(target=hold, name="lab", daemon=True)
    holder.start()
    try:
        with progress.step("start the lab", 4, options.logs / supervisor.SUPERVISOR_LOG):
            try:
                answer = answers.get(timeout=LAB_START_TIMEOUT_S)
            except queue.Empty:
                raise DemoError(f"the lab did not answer within {LAB_START_TIMEOUT_S:.0f} s") from None
            if isinstance(answer, Exception):
                raise DemoError(str(answer)) from answer
        yield answer
    finally:
        with interrupts.put_off(progress.say):
            ending = progress.step("stop the lab", 2) if holder.is_alive() else contextlib.nullcontext()
            with ending:
                os.close(keep)
                holder.join()
                os.close(stop)
        _raise_from(answers)


def _raise_from(answers: queue.Queue[LabState | Exception]) -> None:
    """Raise DemoError where the lab ended by itself: that explains whatever else went wrong meanwhile."""
    with contextlib.suppress(queue.Empty):
        while True:
            said = answers.get_nowait()
            if isinstance(said, Exception):
                raise DemoError(str(said)) from said


def run(
    options: DemoOptions,
    state: LabState,
    progress: Progress,
    afterwards: contextlib.ExitStack | None = None,
) -> DemoResult:
    """Bootstrap and deploy on a running lab, and read the verdict that the nodes left.

    A fault of a running cluster is injected after that, and its verdict is that of a check.
    afterwards: undoes such a fault; left out, it is undone at once.

    Raises:
        DemoError: the fault is unknown or could not be injected, `cdk bootstrap` failed, or the disk is full.
    """
    try:
        return _deployed(options, state, progress, afterwards)
    except OSError as error:
        full = no_space(error, options.state_dir)
        if not full:
            raise
        raise DemoError(full) from error


def _deployed(
    options: DemoOptions, state: LabState, progress: Progress, afterwards: contextlib.ExitStack | None
) -> DemoResult:
    fault = options.chosen_fault
    context = {"cluster.nodes": str(options.nodes), "cluster.name": options.cluster}
    context.update(fault.deploy_context if fault is not None else {})
    log = options.logs / "cdk.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    with progress.step("cdk bootstrap", 8, log):
        if not deploy.bootstrap(state, log):
            raise DemoError(f"cdk bootstrap failed; its log is {log}:\n{tail(log)}")
    _still_running(options)
    with progress.step(f"cdk deploy, {options.nodes} nodes", 35 if options.fault is None else 30, log):
        deployment = deploy.deploy(state, log, context)
    _still_running(options)
    newest = deploy.newest_verdict(state, options.cluster)
    if newest is None and not deployment.complete:
        progress.say(tail(log))
    diagnosis, evidence = newest if newest is not None else (None, "")
    if diagnosis is not None and not deployment.complete and diagnosis.verdict is Verdict.PASS:
        # The nodes proved one stage and the deploy failed all the same: that is not a good cluster.
        told = f"cdk deploy failed although the last verdict is PASS: {deployment.event or tail(log, 3)}"
        diagnosis = dataclasses.replace(
            diagnosis, verdict=Verdict.UNKNOWN, unanswered=(*diagnosis.unanswered, told)
        )
    result = DemoResult(
        complete=deployment.complete,
        event=deployment.event,
        diagnosis=diagnosis,
        evidence=evidence,
        outputs=deploy.outputs(state, options.cluster),
        cdk_log=log,
        timings_s=dict(progress.timings_s),
    )
    if fault is not None and fault.way not in (Way.STACK, Way.BOOT) and deployment.complete:
        with contextlib.ExitStack() as at_once:
            result = _broken(options, fault, result, progress, afterwards or at_once)
    return dataclasses.replace(
        result,
        report=pages.write_report(result.diagnosis, options.state_dir) if result.diagnosis else None,
        dashboard=pages.write_dashboard(state, options.cluster, options.state_dir),
    )


def _still_running(options: DemoOptions) -> LabState:
    """The lab as it is now; raises DemoError where it ended meanwhile."""
    running = supervisor.read_state(options.state_dir)
    if running is None:
        raise DemoError(f"the lab ended by itself; its log is {options.logs / supervisor.SUPERVISOR_LOG}")
    return running


def _broken(
    options: DemoOptions, fault: Fault, deployed: DemoResult, progress: Progress, undo: contextlib.ExitStack
) -> DemoResult:
    """The verdict of a check after a fault has come into the running cluster."""
    scene = Scene(lab=_still_running(options), cluster=options.cluster)
    in_force = fault.provoked(scene)
    try:
        with progress.step(f"break it: {fault.title}", 2):
            in_force.__enter__()
        undo.callback(_end, in_force)
        with progress.step("lab check", 10):
            diagnosis = fault.check(scene, collective=True)
    except (FaultError, CheckError) as error:
        raise DemoError(f"{fault.id}: {error}") from error
    return dataclasses.replace(
        deployed, diagnosis=diagnosis, evidence="", timings_s=dict(progress.timings_s), broken_by=fault
    )


def _end(in_force: contextlib.AbstractContextManager[None]) -> None:
    with contextlib.suppress(Exception):  # what cannot be undone goes with the lab, which ends after this
        in_force.__exit__(None, None, None)


def wait_until_gone(state_dir: Path) -> None:
    """Block until the lab with this state folder has ended."""
    while supervisor.read_state(state_dir) is not None:
        time.sleep(0.5)


def exit_status(result: DemoResult) -> int:
    return render.exit_code(result.diagnosis.verdict if result.diagnosis is not None else Verdict.UNKNOWN)


def tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(the log cannot be read: {error})"
