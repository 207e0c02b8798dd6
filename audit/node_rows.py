"""What the nodes said of themselves last: their rows in the evidence bucket.

docs/architecture.md, "Keys in the evidence bucket", has the names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from audit import readings
from audit.account import Account
from audit.documents import Json
from cluster.keys import COLLECTIVE_ROW, JOINED, MESH_ROW, read_registration, run_prefix

RECENT_S = 2 * 3600
"""Checks come every 60 minutes or more often: two intervals back there is one of each node that lives."""

ROWS = (MESH_ROW, COLLECTIVE_ROW)
DEPTH = 3  # rows/RUN/MEMBER/NAME


def read(account: Account, outputs: Mapping[str, str], now_s: float | None = None) -> Json:
    """What each member of the stack's run left: {"Nodes": [{MemberId, Registered, Joined, Key, Row}]}.

    outputs: the stack's. Registered: it took part in the deploy's proof. Joined: the later run that has
    proven it; blank = none. Row: the newest, of a check where there was one lately; null = none.

    Raises:
        Unread: the bucket's keys or a row could not be read.
    """
    bucket, run = _place(outputs)
    if not bucket:
        return {"Nodes": []}
    now_s = time.time() if now_s is None else now_s
    deploy = _keys(account, bucket, run_prefix(run), run_prefix(run))
    checks = _keys(account, bucket, f"rows/{run}-check-", f"rows/{run}-check-{int(now_s - RECENT_S)}")
    nodes: dict[str, Json] = {}
    for member, name in ((key.split("/")[2], key.split("/")[3]) for key in deploy):
        entry = nodes.setdefault(member, _node(member))
        entry["Registered"] |= _registers(name)
        if name.startswith(JOINED):
            entry["Joined"] = name[len(JOINED) :]
    for key in sorted((key for key in (*deploy, *checks) if key.split("/")[3] in ROWS), key=_age):
        member = key.split("/")[2]
        nodes.setdefault(member, _node(member))["Key"] = key
    for entry in nodes.values():
        if entry["Key"]:
            entry["Row"] = _row(account, bucket, entry["Key"])
    return {"Nodes": [entry for _, entry in sorted(nodes.items()) if entry["MemberId"]]}


def _node(member: str) -> Json:
    """member: ROLE_ID:INSTANCE_ID; the referee's own folder has no instance."""
    return {"MemberId": member.partition(":")[2], "Registered": False, "Joined": "", "Key": "", "Row": None}


def _registers(name: str) -> bool:
    try:
        return read_registration(name) is not None
    except ValueError:
        return False


def _place(outputs: Mapping[str, str]) -> tuple[str, str]:
    """Bucket and run, as the stack's outputs tell them: s3://BUCKET/rows/RUN/."""
    where = outputs.get("Evidence", "")
    bucket = where[len("s3://") :].partition("/")[0] if where.startswith("s3://") else ""
    return bucket, outputs.get("Run", "")


def _keys(account: Account, bucket: str, prefix: str, after: str) -> list[str]:
    """Keys of objects that members left below rows/RUN/MEMBER/."""
    answer = account.pages(readings.ROW_KEYS, Bucket=bucket, Prefix=prefix, StartAfter=after)
    keys = [str(entry["Key"]) for entry in answer.get("Contents", ())]
    return [key for key in keys if key.count("/") == DEPTH]


def _age(key: str) -> tuple[int, int]:
    """Sorts by the moment of the check, the deploy's own run first; the later stage last."""
    _, run, _, name = key.split("/")
    moment = run.rpartition("-check-")[2] if "-check-" in run else "0"
    return (int(moment) if moment.isdigit() else 0, ROWS.index(name))


def _row(account: Account, bucket: str, key: str) -> Json | None:
    """The part of a row that the audit compares: probes of a thousand peers would only weigh."""
    answer = account.call(readings.ROWS, Bucket=bucket, Key=key)
    try:
        row = json.loads(answer["Body"].read() if answer else b"")
    except ValueError:
        return None  # half-written: as if it were not there
    if not isinstance(row, dict):
        return None
    host = row.get("host")
    ports = host.get("local_port_range") if isinstance(host, dict) else None
    kept = ("run", "member_id", "address", "name", "finished_at")
    return {**{name: row.get(name) for name in kept}, "host": {"local_port_range": ports}}
