"""What an audit says at the constructs of a synthesis (`-c live=true`): one line a difference."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from audit.answer import Audit, audit_stack
from audit.difference import Difference, Meaning
from audit.drift import our_stack
from audit.live import NO_STACK, read_stack


class Level(str, Enum):
    """An ERROR makes `cdk diff`, `synth` and `deploy` exit 1; a WARNING only with --strict."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Note:
    """key: what it is about, for whoever acknowledges it. logical_id: whose it is; blank = the stack's."""

    level: Level
    text: str
    key: str = "fullmesh:live"
    logical_id: str = ""


def live_notes(session: Any, name: str, account: str = "") -> list[Note]:
    """Audit the deployed stack and say what was found; a stack that is not there yet is no fault.

    session: boto3's. name: the stack's. account: the one that is synthesised for; blank = any.
    """
    documents = read_stack(session, name)
    asked = str(documents.documents.get("identity", {}).get("Account") or "")
    if account and asked and account != asked:
        told = f"live: not looked at: the credentials are account {asked}'s, not {account}'s"
        return [Note(Level.ERROR, f"{told}; set AWS_PROFILE")]
    ours = our_stack(documents, name)
    if ours.stack is None and ours.problem.startswith(NO_STACK):
        return [Note(Level.INFO, f"live: {ours.problem}")]
    return notes(audit_stack(documents, ours))


def notes(found: Audit) -> list[Note]:
    """One note a difference and one a gap; where all is well, one that says so."""
    said = [_note(item) for item in found.differences]
    if found.findings.mesh_possible is False and not any(item.meaning.breaks for item in found.differences):
        said += [Note(Level.ERROR, f"live: {item.id}: {item.summary}") for item in found.findings.causes]
    said += [Note(Level.ERROR, f"live: not looked at: {gap}") for gap in found.unanswered]
    return said or [Note(Level.INFO, "live: what stands is what the stack was told")]


def _note(item: Difference) -> Note:
    found = item.deviation
    return Note(
        level=Level.WARNING if item.meaning is Meaning.COSMETIC else Level.ERROR,
        text=f"live: {item.meaning.value}: {found.resource} {found.attribute}: {item.detail}",
        key=f"fullmesh:live:{found.resource}:{found.attribute}",
        logical_id=found.logical_id,
    )
