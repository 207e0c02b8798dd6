"""`fullmesh demo`: the real CDK stack deployed on the lab, its verdict, and what to break next."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import re
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnosis import render
from diagnosis.report import Diagnosis, Verdict
from lab import deploy, pages, supervisor
from lab.check import CheckError
from lab.fault_scene import FaultError, Scene
from lab.faults import FAULTS, Fault, Way
from lab.progress import Progress
from lab.state import LabState

CHECKOUT = Path(__file__).resolve().parent.parent
RAW_TORCH_MEASUREMENTS = CHECKOUT / "bench" / "measurements" / "raw_torch.json"
LAB_START_TIMEOUT_S = 60.0  # the emulator starts in 3 s; a loaded machine takes several times that


class DemoError(RuntimeError):
    """A step of the demo could not run; the text names the step, the log and the next command."""


@dataclass(frozen=True)
class DemoOptions:
    """nodes: how many instances; fault: id of the cause to provoke, or None; state_dir: `.fullmesh`."""

    nodes: int = 4
    fault: str | None = None
    state_dir: Path = CHECKOUT / ".fullmesh"
    cluster: str = "fullmesh"
    port: int = 0

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
        boot_changes=fault.boot_changes(options.cluster) if fault is not None else (),
    )

    def hold() -> None:
        try:
            supervisor.run(wanted, answers.put)
        except Exception as error:  # noqa: BLE001 - crosses to the waiting thread, which raises it
            answers.put(error)

    # The lab ends with the thread that started it, so that thread does nothing else.
    holder = threading.Thread(target=hold, name="lab", daemon=True)
    with progress.step("start the lab", 4, options.logs / supervisor.SUPERVISOR_LOG):
        holder.start()
        try:
            answer = answers.get(timeout=LAB_START_TIMEOUT_S)
        except queue.Empty:
            raise DemoError(f"the lab did not answer within {LAB_START_TIMEOUT_S:.0f} s") from None
        if isinstance(answer, Exception):
            raise DemoError(str(answer)) from answer
    try:
        yield answer
    finally:
        with progress.step("stop the lab", 2):
            supervisor.stop(answer)
            holder.join()


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
        DemoError: the fault is unknown or could not be injected, or `cdk bootstrap` failed.
    """
    fault = options.chosen_fault
    context = {"cluster.nodes": str(options.nodes), "cluster.name": options.cluster}
    context.update(fault.deploy_context if fault is not None else {})
    log = options.logs / "cdk.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    with progress.step("cdk bootstrap", 8, log):
        if not deploy.bootstrap(state, log):
            raise DemoError(f"cdk bootstrap failed; its log is {log}:\n{tail(log)}")
    with progress.step(f"cdk deploy, {options.nodes} nodes", 35 if options.fault is None else 30, log):
        deployment = deploy.deploy(state, log, context)
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


def _broken(
    options: DemoOptions, fault: Fault, deployed: DemoResult, progress: Progress, undo: contextlib.ExitStack
) -> DemoResult:
    """The verdict of a check after a fault has come into the running cluster."""
    running = supervisor.read_state(options.state_dir)
    if running is None:
        raise DemoError(f"the lab ended by itself; its log is {options.logs / supervisor.SUPERVISOR_LOG}")
    scene = Scene(lab=running, cluster=options.cluster)
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


def plain_torch(fault: str) -> dict[str, Any] | None:
    """The stored measurement of what torch alone says to this fault; None when none was taken."""
    try:
        document: dict[str, Any] = json.loads(RAW_TORCH_MEASUREMENTS.read_text())
    except (OSError, ValueError):
        return None
    return document if document.get("fault") == fault else None


def document(result: DemoResult) -> dict[str, Any]:
    """The answer as JSON: the verdict's document, and what the deploy came to."""
    found = result.diagnosis if result.diagnosis is not None else Diagnosis(verdict=Verdict.UNKNOWN)
    answer = render.document(found)
    answer["timings_s"] = {**answer["timings_s"], **result.timings_s}
    answer["deploy"] = {
        "complete": result.complete,
        "event": result.event,
        "evidence": result.evidence,
        "outputs": result.outputs,
        "log": str(result.cdk_log),
    }
    if result.broken_by is not None:
        answer["broken_by"] = {"id": result.broken_by.id, "title": result.broken_by.title}
    answer["lab"] = True  # a lab PASS is not an AWS PASS
    if result.diagnosis is None:
        answer["unanswered"] = ["no node and no referee left a verdict"]
        answer["next_command"] = f"tail -n 40 {result.cdk_log}"
    return answer


def text(options: DemoOptions, result: DemoResult, keep: bool) -> str:
    """The answer for a terminal, and what to try next."""
    parts = []
    if result.diagnosis is None:
        parts.append(f"UNKNOWN  no node and no referee left a verdict; see {result.cdk_log}\n")
    else:
        parts.append(render.to_terminal(result.diagnosis))
    said = "CREATE_COMPLETE" if result.complete else "failed"
    lines = ["", f"cdk deploy: {said}"]
    if result.event:
        lines += ["  the stack's event in the terminal:", *_indented(result.event)]
    lines.append(f"  log        {result.cdk_log}")
    if result.report is not None:
        lines.append(f"  report     {result.report}")
    if result.broken_by is None:
        lines.append(f"  evidence   {result.evidence or 'none'}")
    else:
        lines[1] = f"cdk deploy: {said}; then broken on purpose, and checked again:"
        lines[2:2] = _indented(result.broken_by.title)
    if result.dashboard is not None:
        lines.append(f"  dashboard  {result.dashboard} (its widget, as the stack's function draws it)")
    lines.append("  This is a lab verdict: the kernel enforced the rules, not EC2.")
    measured = plain_torch(options.fault) if options.fault else None
    if measured is not None:
        lines += ["", *_plain_torch_lines(measured)]
    parts.append("\n".join([*lines, "", *_what_next(options, keep), ""]))
    return "".join(parts)


def _indented(long_text: str) -> list[str]:
    return textwrap.wrap(
        long_text, width=76, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


def _plain_torch_lines(measured: dict[str, Any]) -> list[str]:
    """What torch alone says to the same fault, as it was measured; ranks that say the same share a line."""
    lines = [
        "Plain torch on the same fault, as measured on",
        f"{measured['measured_at']} (again: .venv/bin/{measured['command']}):",
    ]
    for run_ in measured["runs"]:
        own = " (torch's own)" if run_.get("is_torch_default") else ""
        lines.append(
            f"  time-out {run_['timeout_s']} s{own}: first error after {run_['first_error_s']:.0f} s"
        )
        ranks_by_words: dict[str, list[str]] = {}
        for rank, said in run_["ranks"].items():
            words = said["message"] or f"still silent after {said['after_s']:.0f} s, then cut off"
            ranks_by_words.setdefault(_without_source_path(words), []).append(rank)
        for words, ranks in ranks_by_words.items():
            lines += textwrap.wrap(
                f"rank {', '.join(ranks)}: {words}", 76, initial_indent="    ", subsequent_indent="      "
            )
    return lines


def _without_source_path(message: str) -> str:
    """torch's message with only the file's name of where in its source it was raised."""
    return re.sub(r"\[/\S*/([\w.]+:\d+)\]", r"[\1]", message)


def _what_next(options: DemoOptions, keep: bool) -> list[str]:
    fullmesh = ".venv/bin/fullmesh"
    if options.fault is not None:
        fault = options.chosen_fault
        causes = dict.fromkeys(cause for cause, _ in fault.expected) if fault is not None else ()
        return [f"What it means and how it is mended: {fullmesh} causes {cause}" for cause in causes]
    if not keep:
        return [
            "Break something on purpose:",
            f"  {fullmesh} demo --keep",
            f"  {fullmesh} demo --fault sg-only-master-port",
        ]
    return [
        "Break something on purpose, in another terminal:",
        f'  eval "$({fullmesh} lab env)"',
        "  GROUP=$(aws cloudformation describe-stacks --stack-name fullmesh \\",
        "    --query \"Stacks[0].Outputs[?OutputKey=='MemberGroupId'].OutputValue\" --output text)",
        "  aws ec2 revoke-security-group-ingress --group-id $GROUP \\",
        '    --ip-permissions "IpProtocol=tcp,FromPort=0,ToPort=65535,UserIdGroupPairs=[{GroupId=$GROUP}]"',
        "or the firewall of one node:",
        f"  {fullmesh} lab exec 2 -- nft -f - <<< \\",
        "    'table inet t { chain c { type filter hook input priority 0;",
        "      ct state new tcp dport 32768-60999 drop; }; }'",
        "then see it named:",
        f"  {fullmesh} lab check",
    ]


def faults_text() -> str:
    """Every fault that can be provoked, by when it gets in."""
    lines = []
    for way in Way:
        lines += [f"{way.value}:", *(f"  {f.id:<30} {f.title}" for f in FAULTS.values() if f.way is way)]
    return "\n".join([*lines, ""])


def how_to_use(state: LabState) -> str:
    """What a terminal that runs `lab up` shows."""
    return "\n".join(
        [
            f"the lab answers at {state.endpoint_url}; in another terminal:",
            '  eval "$(.venv/bin/fullmesh lab env)"',
            "  cdk bootstrap && cdk deploy --all",
            "  fullmesh lab status",
            "press Ctrl-C here, or run `fullmesh lab down` there, to end it",
        ]
    )


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
