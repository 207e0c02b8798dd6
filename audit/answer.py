"""What an audit found, as one answer: JSON, exit status and the report for a terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from audit.members import Members
from cluster.ports import PortRange
from cluster.serial import encode
from cluster.snapshot import ClusterSnapshot
from diagnosis import render
from diagnosis.report import SCHEMA_VERSION, Diagnosis, Verdict
from diagnosis.static import StaticFindings, judge_rules

NO_EXPECTATION = "drift: there is no stack of ours to compare with"


@dataclass(frozen=True)
class Audit:
    """skipped: questions that were left out on purpose, and why."""

    findings: StaticFindings
    skipped: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return self.findings.verdict

    @property
    def exit_status(self) -> int:
        """0 PASS, 1 FAIL, 3 could not look."""
        return render.exit_code(self.verdict)

    def document(self) -> dict[str, Any]:
        """The public JSON document: ids and data are stable, prose is not."""
        found = self.findings
        return {
            "schema_version": SCHEMA_VERSION,
            "verdict": self.verdict.value,
            "causes": [encode(item) for item in found.causes],
            "consequences": [encode(item) for item in found.advisories],
            "candidates": [encode(item) for item in found.candidates],
            "next_command": found.next_command,
            "unanswered": list(found.unanswered),
            "skipped": list(self.skipped),
            "members": sorted(found.ranks, key=found.ranks.__getitem__),
            "mesh_possible": found.mesh_possible,
            "blocked": list(found.blocked()),
            "exposed": found.exposed_documents(),
            "drift": [],
        }

    def to_json(self) -> str:
        return json.dumps(self.document(), indent=2) + "\n"

    def to_terminal(self) -> str:
        found = self.findings
        return render.to_terminal(
            Diagnosis(
                verdict=self.verdict,
                causes=found.causes,
                consequences=found.advisories,
                candidates=found.candidates,
                next_command=found.next_command,
                unanswered=found.unanswered,
                skipped=self.skipped,
                exposed=found.exposed_lines(),
            )
        )


def attach(snapshot: ClusterSnapshot, members: Members, *, master_port: int, ephemeral: PortRange) -> Audit:
    """Judge a cluster that something else made: can the mesh form, is it too open."""
    findings = judge_rules(
        snapshot,
        members.ids,
        master_port,
        ephemeral,
        unread_members=members.unread,
        fellows=members.fellows,
    )
    return Audit(findings=findings, skipped=(NO_EXPECTATION,))
