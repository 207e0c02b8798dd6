"""What an audit found, as one answer: JSON, exit status and the report for a terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from audit.difference import Difference, Meaning
from audit.documents import Documents
from audit.drift import Drift, OurStack, find_drift, members_of
from audit.members import Members
from audit.render_drift import drift_lines, tally
from cluster.ports import PortRange
from cluster.serial import encode
from cluster.snapshot import ClusterSnapshot
from diagnosis import render
from diagnosis.report import SCHEMA_VERSION, Diagnosis, Verdict
from diagnosis.static import StaticFindings, judge_rules

NO_EXPECTATION = "drift: there is no stack of ours to compare with"


@dataclass(frozen=True)
class Audit:
    """drift: None = there is no stack to compare with.

    fail_on: differences below it do not fail the audit. skipped: questions that were left out on
    purpose, and why.
    """

    findings: StaticFindings
    drift: Drift | None = None
    fail_on: Meaning = Meaning.COSMETIC
    skipped: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        return self.drift.differences if self.drift else ()

    @property
    def verdict(self) -> Verdict:
        """FAIL: the mesh cannot form, or what stands differs by `fail_on` or more; UNKNOWN before PASS."""
        found = self.findings
        opened = bool(found.exposed) and self.fail_on.grade <= Meaning.OPENS_CLUSTER.grade
        drifted = any(item.meaning.grade >= self.fail_on.grade for item in self._told)
        if found.mesh_possible is False or opened or drifted:
            return Verdict.FAIL
        untold = len(self._told) < len(self.differences) or bool(self.unanswered)
        if not found.mesh_possible or not found.exposure_known or untold:
            return Verdict.UNKNOWN
        return Verdict.PASS

    @property
    def _told(self) -> list[Difference]:
        return [item for item in self.differences if item.meaning is not Meaning.UNDETERMINED]

    @property
    def unanswered(self) -> tuple[str, ...]:
        unread = self.drift.unread if self.drift else ()
        return tuple(dict.fromkeys((*self.findings.unanswered, *unread)))

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
            "unanswered": list(self.unanswered),
            "skipped": list(self.skipped),
            "members": sorted(found.ranks, key=found.ranks.__getitem__),
            "mesh_possible": found.mesh_possible,
            "blocked": list(found.blocked()),
            "exposed": found.exposed_documents(),
            "drift": [item.document() for item in self.differences],
        }

    def to_json(self) -> str:
        return json.dumps(self.document(), indent=2) + "\n"

    def to_terminal(self) -> str:
        found = self.findings
        diagnosis = Diagnosis(
            verdict=self.verdict,
            causes=found.causes,
            consequences=found.advisories,
            candidates=found.candidates,
            next_command=found.next_command,
            unanswered=self.unanswered,
            skipped=self.skipped,
            exposed=found.exposed_lines(),
        )
        text = render.to_terminal(diagnosis, said=self._headline())
        lines = drift_lines(self.differences)
        return text + ("\n" + "\n".join(lines) + "\n" if lines else "")

    def _headline(self) -> str:
        if self.differences:
            return tally(self.differences)
        if self.verdict is Verdict.PASS:
            standing = "what stands is what the stack was told; " if self.drift else ""
            return f"{standing}the rules let every pair pass, and nobody else in"
        return ""


def attach(snapshot: ClusterSnapshot, members: Members, *, master_port: int, ephemeral: PortRange) -> Audit:
    """Judge a cluster that something else made: can the mesh form, is it too open."""
    findings = _judged(snapshot, members, master_port, ephemeral)
    return Audit(findings=findings, skipped=(NO_EXPECTATION,))


def audit_stack(documents: Documents, ours: OurStack, *, fail_on: Meaning = Meaning.COSMETIC) -> Audit:
    """Judge a stack of ours: its mesh, who else gets in, and every difference from what it was told."""
    snapshot = documents.snapshot()
    members = members_of(documents, ours, snapshot)
    return Audit(
        findings=_judged(snapshot, members, ours.master_port, ours.ephemeral_ports),
        drift=find_drift(documents, ours, snapshot, members),
        fail_on=fail_on,
    )


def _judged(
    snapshot: ClusterSnapshot, members: Members, master_port: int, ephemeral: PortRange
) -> StaticFindings:
    return judge_rules(
        snapshot,
        members.ids,
        master_port,
        ephemeral,
        unread_members=members.unread,
        fellows=members.fellows,
    )
