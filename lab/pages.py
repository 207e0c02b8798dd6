"""The verdict as pages to open in a browser: the report, and what the dashboard's widget shows.

The widget's page comes from the widget's own Lambda, invoked through the control plane as CloudWatch
would invoke it. CloudWatch's graphs are not drawn here.
"""

from __future__ import annotations

import json
from pathlib import Path

from diagnosis import render
from diagnosis.report import Diagnosis
from lab import deploy
from lab.state import LabState


def write_report(diagnosis: Diagnosis, folder: Path) -> Path:
    """`report.html` in the folder."""
    return _write(folder / "report.html", "fullmesh report", render.html_report(diagnosis))


def write_dashboard(state: LabState, cluster: str, folder: Path) -> Path | None:
    """`dashboard.html` in the folder; None where no widget is deployed (a failed deploy is rolled back).

    Raises:
        RuntimeError: the widget's code failed; holds what it said.
    """
    function = deploy.function_name(state, cluster, "Widget")
    if function is None:
        return None
    answer = deploy.client(state, "lambda").invoke(FunctionName=function, Payload=b"{}")
    body = answer["Payload"].read().decode()
    if "FunctionError" in answer:
        raise RuntimeError(f"the dashboard's widget failed: {body}")
    return _write(folder / "dashboard.html", f"{cluster} dashboard", json.loads(body))


def _write(path: Path, title: str, body: str) -> Path:
    path.write_text(render.html_page(title, body))
    return path
