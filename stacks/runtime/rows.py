"""Reads and writes the evidence bucket for the functions (keys: docs/architecture.md)."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from botocore.exceptions import BotoCoreError, ClientError

from cluster import serial
from cluster.keys import (
    COLLECTIVE_ROW,
    FAILED_ROW,
    MESH_ROW,
    STAGES,
    read_registration,
    run_prefix,
    verdict_name,
)
from diagnosis.report import Diagnosis, NodeReport, Verdict

REFEREE = "referee"
ROW_NAMES = (FAILED_ROW, MESH_ROW, COLLECTIVE_ROW)


@dataclass(frozen=True)
class Row:
    """One object below rows/RUN/: whose it is, what it is called, and when it was written."""

    key: str
    member: str
    name: str
    written_at_s: float

    @property
    def instance_id(self) -> str:
        """MEMBER is ROLE_ID:INSTANCE_ID; blank for the referee's own."""
        return self.member.partition(":")[2]


@dataclass(frozen=True)
class Standing:
    """A verdict object and when it was written."""

    stage: str
    key: str
    written_at_s: float
    diagnosis: Diagnosis

    @property
    def ends_proof(self) -> bool:
        """A mesh that passed still owes the collective; everything else is the end."""
        return self.stage == "collective" or self.diagnosis.verdict is not Verdict.PASS


class Rows:
    """The objects of one evidence bucket. `client` is a boto3 S3 client."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self.bucket = bucket

    def runs(self, run: str) -> List[str]:
        """`run` and its later checks that left anything, oldest first."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"rows/{run}", Delimiter="/", StartAfter="rows/"
        )
        found = [entry["Prefix"].split("/")[1] for page in pages for entry in page.get("CommonPrefixes", ())]
        mine = [name for name in found if name == run or name.startswith(f"{run}-check-")]
        return sorted(mine, key=lambda name: _epoch(name, run))

    def list(self, run: str) -> List[Row]:
        """Everything that one run left."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=run_prefix(run)
        )
        rows = []
        for page in pages:
            for entry in page.get("Contents", ()):
                parts = entry["Key"].split("/", 3)
                if len(parts) == 4:
                    rows.append(Row(entry["Key"], parts[2], parts[3], entry["LastModified"].timestamp()))
        return rows

    def read(self, key: str) -> Any:
        """One JSON object."""
        return json.loads(self._client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def reports(self, rows: List[Row]) -> Tuple[List[NodeReport], List[str]]:
        """The latest report of each member, and what could not be read."""
        best: Dict[str, Row] = {}
        for name in ROW_NAMES:
            for row in rows:
                if row.name == name:
                    best[row.member] = row
        reports, problems = [], []
        for row in best.values():
            try:
                reports.append(serial.decode(NodeReport, self.read(row.key)))
            except (ValueError, BotoCoreError, ClientError) as error:
                problems.append(f"s3://{self.bucket}/{row.key} cannot be read: {error}")
        return reports, problems

    def latest_verdict(self, rows: List[Row]) -> Optional[Standing]:
        """The verdict that stands: of the later stage, and there the one that knows most members.

        A member that a FAIL left out gives it again, with itself (peer-late). Of equals the first counts.
        """
        for stage in reversed(STAGES):
            found = [self._standing(stage, row) for row in rows if row.name == verdict_name(stage)]
            if found:
                return min(found, key=lambda item: (-len(item.diagnosis.nodes), item.written_at_s))
        return None

    def _standing(self, stage: str, row: Row) -> Standing:
        return Standing(stage, row.key, row.written_at_s, serial.decode(Diagnosis, self.read(row.key)))

    def write_verdict(self, run: str, stage: str, diagnosis: Diagnosis) -> str:
        """The referee's own verdict; gives the key."""
        key = f"{run_prefix(run)}{REFEREE}/{verdict_name(stage)}"
        body = json.dumps(serial.encode(diagnosis)).encode()
        self._client.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType="application/json")
        return key


def registered(rows: List[Row]) -> Dict[str, str]:
    """Instance id -> address of every member that registered; a name that does not read is none."""
    found: Dict[str, str] = {}
    for row in rows:
        with contextlib.suppress(ValueError):
            read = read_registration(row.name)
            if read is not None:
                found[row.instance_id] = read[0]
    return found


def _epoch(name: str, run: str) -> int:
    """When a check began; the deploy's own run comes before all of them."""
    digits = name[len(run) :].rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
