"""The dashboard's custom widget: the pair matrix of the latest verdict, as HTML.

CloudWatch strips scripts, iframes and <use> from what a widget returns, so this is plain
HTML; the viewer allows the widget once and needs lambda:InvokeFunction.
"""

from __future__ import annotations

import html
import os
import time
from typing import Any, Dict, Union

import boto3

from diagnosis.render import html_report
from stacks.runtime.rows import Rows

ABOUT = "### The latest verdict on every ordered pair of the cluster\nTakes no parameters.\n"


def handler(event: Dict[str, Any], _context: Any) -> Union[str, Dict[str, str]]:
    """HTML for the widget; with `describe`, the text that the console's editor shows."""
    if event.get("describe"):
        return {"markdown": ABOUT}
    rows = Rows(boto3.client("s3"), os.environ["EVIDENCE_BUCKET"])
    return page(rows, os.environ["CLUSTER"], os.environ["RUN"], time.time())


def page(rows: Rows, cluster: str, run: str, now_s: float) -> str:
    """The newest run that has a verdict; the runs after it that have none are said, not hidden."""
    unjudged = 0
    for name in reversed(rows.runs(run)):
        standing = rows.latest_verdict(rows.list(name))
        if standing is None:
            unjudged += 1
            continue
        age = f"{(now_s - standing.written_at_s) / 60:.0f} min old"
        later = f"; {unjudged} later runs without a verdict" if unjudged else ""
        head = f"<p>{html.escape(name)}, {standing.stage} stage, {age}{later}</p>"
        return head + html_report(standing.diagnosis)
    return f"<p>{html.escape(cluster)}: UNKNOWN. No verdict stands for {html.escape(run)} yet.</p>"
