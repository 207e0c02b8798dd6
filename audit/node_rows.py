"""What the nodes said of themselves last: their rows in the evidence bucket.

docs/architecture.md, "Keys in the evidence bucket", has the names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from audit import readings
from audit.account import Account
from audit.documents import Json
from cluster.keys import COLLECTIVE_ROW, MESH_ROW, run_prefix
from diagnosis.report import SCHEMA_VERSION

RECENT_S = 2 * 3600
"""Checks come every 60 minutes or more often: two intervals back there is one of each node that lives."""

ROWS = (MESH_ROW, COLLECTIVE_ROW)


def read(account: Account, outputs: Mapping[str, str], now_s: float | None = None) -> Json:
    """The newest row of each member of the stack's run: {"Nodes": [{MemberId, Key, Row}]}.

    outputs: the stack's. Rows of the deploy itself count where no later check left one.

    Raises:
        Unread: the bucket's keys or a row could not be read.
    """
    bucket, run = _place(outputs)
    if not bucket:
        return {"Nodes": []}
    now_s = time.time() if now_s is None else now_s
    recent = f"rows/{run}-check-{int(now_s - RECENT_S)}"
    keys = [
        *_keys(account, bucket, run_prefix(run), run_prefix(run)),
        *_keys(account, bucket, f"rows/{run}-check-", recent),
    ]
    newest: dict[str, str] = {}
    for key in sorted(keys, key=_age):
        newest[key.split("/")[2]] = key
    nodes = []
    for member, key in sorted(newest.items()):
        answer = account.call(readings.ROWS, Bucket=bucket, Key=key)
        body = answer["Body"].read() if answer else b""
        try:
            row = json.loads(body)
        except ValueError:
            row = None  # half-written, or of something else: as if it were not there
        if isinstance(row, dict) and row.get("schema_version") == SCHEMA_VERSION:
            nodes.append({"MemberId": member.partition(":")[2] or member, "Key": key, "Row": _kept(row)})
    return {"Nodes": nodes}


def _place(outputs: Mapping[str, str]) -> tuple[str, str]:
    """Bucket and run, as the stack's outputs tell them: s3://BUCKET/rows/RUN/."""
    where = outputs.get("Evidence", "")
    bucket = where[len("s3://") :].partition("/")[0] if where.startswith("s3://") else ""
    return bucket, outputs.get("Run", "")


def _keys(account: Account, bucket: str, prefix: str, after: str) -> list[str]:
    found: list[str] = []
    answer = account.pages(readings.ROW_KEYS, Bucket=bucket, Prefix=prefix, StartAfter=after)
    for entry in answer.get("Contents", ()):
        parts = entry["Key"].split("/")
        if len(parts) == 4 and parts[3] in ROWS:
            found.append(entry["Key"])
    return found


def _age(key: str) -> tuple[int, int]:
    """Sorts by the moment of the check, the deploy's own run first; the later stage last."""
    _, run, _, name = key.split("/")
    moment = run.rpartition("-check-")[2] if "-check-" in run else "0"
    return (int(moment) if moment.isdigit() else 0, ROWS.index(name))


def _kept(row: Json) -> Any:
    """What the audit compares; probes of a thousand peers would only weigh."""
    kept = ("run", "member_id", "address", "name", "finished_at")
    host = row.get("host") if isinstance(row.get("host"), dict) else {}
    return {
        **{key: row.get(key) for key in kept},
        "host": {"local_port_range": (host or {}).get("local_port_range")},
    }
