"""What the demo answers: JSON, the terminal's text, plain torch's words beside it, what to try next."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from diagnosis import render
from diagnosis.prose import beside
from diagnosis.report import Diagnosis, Verdict
from lab import CHECKOUT
from lab.demo import DemoOptions, DemoResult
from lab.faults import FAULTS, Way
from lab.state import LabState, state_option

RAW_TORCH_MEASUREMENTS = CHECKOUT / "bench" / "measurements" / "raw_torch.json"


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
    if result.broken_by is None and keep:  # it is in the lab, and goes with it
        lines.append(f"  evidence   {result.evidence or 'none'}")
    if result.broken_by is not None:
        lines[1] = f"cdk deploy: {said}; then broken on purpose, and checked again:"
        lines[2:2] = _indented(result.broken_by.title)
    if result.dashboard is not None:
        lines.append(f"  dashboard  {result.dashboard}")
    lines.append("  This is a lab verdict: the kernel enforced the rules, not EC2.")
    measured = plain_torch(options.fault) if options.fault else None
    if measured is not None:
        lines += ["", *_plain_torch_lines(measured)]
    parts.append("\n".join([*lines, "", *_what_next(options, keep), ""]))
    return "".join(parts)


def _indented(long_text: str) -> list[str]:
    return textwrap.wrap(
        long_text,
        width=76,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
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
            f"  {fullmesh} demo --fault sg-only-master-port",
            "or keep the lab up, break it by hand, and have it named:",
            f"  {fullmesh} demo --keep",
        ]
    here = state_option(options.state_dir)
    return [
        "Break something on purpose, in another terminal:",
        f'  eval "$({fullmesh} lab env{here})"',
        "  GROUP=$(aws cloudformation describe-stacks --stack-name fullmesh \\",
        "    --query \"Stacks[0].Outputs[?OutputKey=='MemberGroupId'].OutputValue\" \\",
        "    --output text)",
        "  aws ec2 revoke-security-group-ingress --group-id $GROUP \\",
        "    --protocol tcp --port 0-65535 --source-group $GROUP",
        "or the firewall of one node:",
        f"  {fullmesh} lab exec{here} {min(2, options.nodes - 1)} -- nft -f - <<< \\",
        "    'table inet t { chain c { type filter hook input priority 0;",
        "      ct state new tcp dport 32768-60999 drop; }; }'",
        "then see it named:",
        f"  {fullmesh} lab check{here}",
    ]


def faults_text() -> str:
    """Every fault that can be provoked, by when it gets in."""
    lines = []
    for way in Way:
        lines.append(f"{way.value}:")
        for fault in FAULTS.values():
            if fault.way is way:
                lines += beside(f"  {fault.id}", fault.title, 33)
    return "\n".join([*lines, ""])


def how_to_use(state: LabState) -> str:
    """What a terminal that runs `lab up` shows."""
    here = state_option(Path(state.state_dir))
    return "\n".join(
        [
            f"the lab answers at {state.endpoint_url}; in another terminal:",
            f'  eval "$(.venv/bin/fullmesh lab env{here})"',
            "  cdk bootstrap && cdk deploy --all",
            f"  fullmesh lab status{here}",
            f"press Ctrl-C here, or run `fullmesh lab down{here}` there, to end it",
        ]
    )
