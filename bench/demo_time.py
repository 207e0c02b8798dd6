"""`fullmesh demo`: lab start to CREATE_COMPLETE, and the famous failure to its named cause.

The demo's own functions run here, so that the nodes' rows and the stack's events can be read
before the lab ends.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import record
from bench.options import Options
from bench.record import BenchError, Comparison, Figure, Result, Target
from diagnosis.report import Verdict
from lab import demo, deploy
from lab.progress import Progress
from lab.state import LabState

NODES = 4
FAULT = "sg-only-master-port"
COMPLETE_TARGET = Target(limit=60.0)
NAMED_TARGET = Target(limit=5.0)


@dataclass(frozen=True)
class NamedCause:
    """The famous failure as a terminal shows it.

    named_after_boot_s: from the start of the last node's first process to the stack event that
    names the cause. A node knows its own start to one second, rounded so that this is never too short.
    parts_s: that time, cut where the last node began to probe and where the last node had its row.
    """

    cause: str
    named_after_boot_s: float
    parts_s: dict[str, float]
    event: str
    timings_s: dict[str, float]

    def document(self) -> dict[str, Any]:
        return {
            "measured_at": record.now(),
            "cause": self.cause,
            "named_after_boot_s": round(self.named_after_boot_s, 2),
            "parts_s": self.parts_s,
            "event": self.event,
            "timings_s": self.timings_s,
        }


def measure(_options: Options) -> Result:
    total_s, steps = create_complete(NODES)
    named = famous_failure(NODES)
    return Result(
        comparisons=(
            Comparison(
                what=f"fullmesh demo, {NODES} nodes, lab start to CREATE_COMPLETE",
                ours=Figure(label="fullmesh demo", value=total_s),
                target=COMPLETE_TARGET,
            ),
            Comparison(
                what=f"famous failure, {NODES} nodes",
                ours=Figure(
                    label="fullmesh: last node's boot to the stack event that names the cause",
                    value=named.named_after_boot_s,
                    note=named.cause,
                ),
                theirs=stored_torch(),
                target=NAMED_TARGET,
            ),
        ),
        data={"nodes": NODES, "steps_s": steps, "famous_failure": named.document()},
        notes=(
            "lab start to CREATE_COMPLETE: " + _listed(steps),
            "boot to the named cause: " + _listed(named.parts_s),
        ),
    )


def _listed(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())


def create_complete(nodes: int) -> tuple[float, dict[str, float]]:
    """Seconds from lab start to CREATE_COMPLETE, and of each step.

    Raises:
        BenchError: the deploy did not complete, or its verdict is not PASS.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        options = demo.DemoOptions(nodes=nodes, state_dir=Path(folder))
        progress = Progress(quiet=True)
        started = time.monotonic()
        try:
            with demo.running_lab(options, progress) as state:
                result = demo.run(options, state, progress)
                total_s = time.monotonic() - started
        except demo.DemoError as error:
            raise BenchError(f"the demo could not run: {error}") from error
        verdict = result.diagnosis.verdict if result.diagnosis is not None else None
        if not result.complete or verdict is not Verdict.PASS:
            raise BenchError(f"the demo's verdict is {verdict}: {result.event or demo.tail(result.cdk_log)}")
        return total_s, dict(result.timings_s)


def famous_failure(nodes: int) -> NamedCause:
    """Deploy with a group that opens MASTER_PORT only, and time the cause in the stack's event.

    Raises:
        BenchError: the deploy completed, or named anything else.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        options = demo.DemoOptions(nodes=nodes, fault=FAULT, state_dir=Path(folder))
        progress = Progress(quiet=True)
        try:
            with demo.running_lab(options, progress) as state:
                result = demo.run(options, state, progress)
                causes = [cause.id for cause in result.diagnosis.causes] if result.diagnosis else []
                if result.complete or causes != [FAULT]:
                    raise BenchError(f"the demo named {causes or 'nothing'}, not {FAULT}: {result.event}")
                named_at = _failure_event_at(state, options.cluster)
                rows = _rows(state, result.evidence, nodes)
        except demo.DemoError as error:
            raise BenchError(f"the demo could not run: {error}") from error
        booted_at, started_at, finished_at = (
            max(row[moment] for row in rows) for moment in ("booted_at", "started_at", "finished_at")
        )
        return NamedCause(
            cause=causes[0],
            named_after_boot_s=named_at - booted_at,
            parts_s={
                "boot to probe": round(started_at - booted_at, 2),
                "probe to row": round(finished_at - started_at, 2),
                "row to event": round(named_at - finished_at, 2),
            },
            event=result.event,
            timings_s=dict(result.timings_s),
        )


def stored_torch() -> Figure:
    """Plain torch's first error with its own time-out, from the record that --default-timeout left."""
    kept = record.read(record.MEASUREMENTS, "raw_torch") or {}
    label = "plain torch with its own time-out: first error (stored)"
    for run in kept.get("runs", []):
        if run["is_torch_default"]:
            return Figure(label=label, value=run["first_error_s"], note=f"measured {run['measured_at']}")
    return Figure(label=label, value=None, note="run python -m bench raw_torch --default-timeout")


def _failure_event_at(state: LabState, stack: str) -> float:
    """When the wait condition's failure stood in the stack's events, in seconds since the epoch."""
    cloudformation = deploy.client(state, "cloudformation")
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
    moments: list[float] = [
        event["Timestamp"].timestamp()
        for page in pages
        for event in page["StackEvents"]
        if "received failed message" in event.get("ResourceStatusReason", "")
    ]
    if not moments:
        raise BenchError(f"no event of stack {stack} tells of the wait condition's failure")
    return min(moments)


def _rows(state: LabState, verdict: str, nodes: int) -> list[dict[str, Any]]:
    """Every node's row of the mesh, from beside the verdict.

    Raises:
        BenchError: a row is missing, or does not tell when its node began.
    """
    bucket, _, key = verdict.removeprefix("s3://").partition("/")
    prefix = "/".join(key.split("/")[:2]) + "/"  # rows/RUN/
    s3 = deploy.client(state, "s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    rows: list[dict[str, Any]] = [
        json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        for key in keys
        if key.endswith("/mesh.json")
    ]
    telling = [row for row in rows if row.get("booted_at") is not None]
    if len(telling) != nodes:
        raise BenchError(
            f"{len(telling)} of {nodes} rows in s3://{bucket}/{prefix} tell when their node began"
        )
    return telling
