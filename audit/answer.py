"""What an audit found, as one answer: JSON, exit status and the report for a terminal."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit import baseline, suggestion
from audit.baseline import ReviewedException
from audit.difference import Difference, Key, Meaning
from audit.documents import Documents, Json
from audit.drift import Drift, OurStack, find_drift, members_of
from audit.members import Members
from audit.render_drift import baseline_lines, drift_lines, tally
from audit.what_if import Prediction
from cluster.exposure import Exposed
from cluster.ports import PortRange
from cluster.serial import encode
from cluster.snapshot import ClusterSnapshot
from diagnosis import render
from diagnosis.report import SCHEMA_VERSION, Diagnosis, Verdict
from diagnosis.static import StaticFindings, exposed_line, judge_rules
from diagnosis.suggest import Suggestion

NO_EXPECTATION = "drift: there is no stack of ours to compare with"


@dataclass(frozen=True)
class Audit:
    """drift: None = there is no stack to compare with.

    fail_on: what is less grave does not fail the audit. accepted: differences that a reviewed exception
    lets be. baseline_problems: exceptions that expired or are stale. who: who made a difference, by its
    key; None = nobody asked. skipped: questions that were left out on purpose, and why.
    what_if: what some changes do, of which this is the world after; None = it is what stands.
    suggestions: rules for each profile; None = nobody asked.
    """

    findings: StaticFindings
    drift: Drift | None = None
    fail_on: Meaning = Meaning.COSMETIC
    accepted: tuple[tuple[Difference, ReviewedException], ...] = ()
    baseline_problems: tuple[str, ...] = ()
    who: Mapping[Key, Sequence[Json]] | None = None
    skipped: tuple[str, ...] = ()
    what_if: Prediction | None = None
    suggestions: tuple[Suggestion, ...] | None = None

    def with_baseline(self, exceptions: Sequence[ReviewedException], today: datetime.date) -> Audit:
        """The audit in which reviewed exceptions count."""
        if self.drift is None:
            return self
        found = baseline.apply(exceptions, self.drift.differences, today)
        return dataclasses.replace(
            self,
            drift=dataclasses.replace(self.drift, differences=found.remaining),
            accepted=found.accepted,
            baseline_problems=found.problems,
        )

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What differs and no exception lets be, the gravest first."""
        return self.drift.differences if self.drift else ()

    @property
    def exposed(self) -> tuple[Exposed, ...]:
        """Who gets in by anything else than what an exception lets be."""
        let = {
            (item["protocol"], item["ports"], item["source"])
            for difference, _ in self.accepted
            for item in difference.opens_to
        }
        return tuple(e for e in self.findings.exposed if (e.protocol, e.ports, e.source) not in let)

    @property
    def exposed_lines(self) -> tuple[str, ...]:
        return tuple(map(exposed_line, self.exposed))

    @property
    def opened(self) -> bool:
        """Whether who gets in fails the audit."""
        return bool(self.exposed) and self.fail_on.grade <= Meaning.OPENS_CLUSTER.grade

    def fails(self, item: Difference) -> bool:
        """Whether a difference fails the audit."""
        return item.meaning is not Meaning.UNDETERMINED and item.meaning.grade >= self.fail_on.grade

    @property
    def verdict(self) -> Verdict:
        """FAIL: the mesh cannot form, or what stands differs by `fail_on` or more; UNKNOWN before PASS."""
        found = self.findings
        drifted = any(map(self.fails, self.differences)) or bool(self.baseline_problems)
        if found.mesh_possible is False or self.opened or drifted:
            return Verdict.FAIL
        undetermined = any(item.meaning is Meaning.UNDETERMINED for item in self.differences)
        untold = undetermined or bool(self.unanswered)
        if not found.mesh_possible or not found.exposure_known or untold:
            return Verdict.UNKNOWN
        return Verdict.PASS

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
            "drift": [self._difference(item) for item in self.differences],
            "accepted": [
                {**self._difference(item), "reason": exception.reason, "expires": str(exception.expires)}
                for item, exception in self.accepted
            ],
            "baseline_problems": list(self.baseline_problems),
            **self._asked_for(),
        }

    def _asked_for(self) -> Json:
        """Members that are there only where `--what-if` or `--suggest` asked for them."""
        found: Json = {}
        if self.what_if is not None:
            found["what_if"] = self.what_if.document(self.verdict)
        if self.suggestions is not None:
            found["suggest"] = [suggestion.document(item) for item in self.suggestions]
        return found

    def _difference(self, item: Difference) -> Json:
        """who: the latest calls that may have made it; null where nobody asked, or could not."""
        told = None if self.who is None else self.who.get(item.deviation.key)
        return {**item.document(), "who": None if told is None else list(told)}

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
            exposed=self.exposed_lines,
        )
        text = render.to_terminal(diagnosis, said=self._headline())
        lines = drift_lines(self.differences, self.who or {})
        lines += baseline_lines(self.accepted, self.baseline_problems)
        if self.suggestions is not None:
            lines += suggestion.lines(self.suggestions)[0 if lines else 1 :]
        before = "\n".join(self.what_if.lines()) + "\n" if self.what_if else ""
        return before + text + ("\n" + "\n".join(lines) + "\n" if lines else "")

    def _headline(self) -> str:
        if self.differences:
            return tally(self.differences)
        if self.baseline_problems:
            return f"the reviewed exceptions have to be looked at: {self.baseline_problems[0]}"
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
