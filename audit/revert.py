"""Bring back what the stack was told: the plan first, then the calls, then another look.

Only differences of the stack's own resources, and only those for which the call that mends is
certain. Everything else is listed with the reason why it is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from audit.aws_errors import AWS_ERRORS, code_of
from audit.difference import Change, Difference, Key, Meaning
from cluster import aws_codes
from diagnosis.prose import shell_lines, wrapped


@dataclass(frozen=True)
class Step:
    """One difference and the calls that undo it, in order."""

    difference: Difference
    changes: tuple[Change, ...]

    @property
    def key(self) -> Key:
        return self.difference.deviation.key


@dataclass(frozen=True)
class Plan:
    """left: what is not reverted, and why."""

    steps: tuple[Step, ...]
    left: tuple[tuple[Difference, str], ...]

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(step.key for step in self.steps)


@dataclass(frozen=True)
class Outcome:
    """What a call came to. problem: blank = it was made."""

    change: Change
    problem: str = ""


def plan(differences: Sequence[Difference]) -> Plan:
    """What to do about each difference. Whatever lets members pass comes before what takes something away."""
    steps, left = [], []
    for item in differences:
        found = item.deviation
        if not found.logical_id:
            left.append((item, "it is no resource of the stack"))
        elif item.meaning is Meaning.UNDETERMINED:
            left.append((item, "what it does cannot be told, so it is not touched"))
        elif not found.revert:
            left.append((item, "no single call brings it back: deploy the stack, or replace the resource"))
        else:
            steps.append(Step(item, found.revert))
    return Plan(steps=tuple(sorted(steps, key=_gives_first)), left=tuple(left))


def _gives_first(step: Step) -> tuple[int, int]:
    takes = any(change.operation.startswith(("revoke", "delete", "detach")) for change in step.changes)
    return (takes, -step.difference.meaning.grade)


def plan_lines(found: Plan) -> list[str]:
    """The plan in words and commands, for a terminal."""
    lines: list[str] = []
    for step in found.steps:
        told = step.difference.deviation
        lines += wrapped(f"{told.resource}, {told.attribute} ({step.difference.meaning.value}):")
        for change in step.changes:
            lines += shell_lines(str(change), indent=2)
    for item, why in found.left:
        told = item.deviation
        lines += wrapped(f"left alone: {told.resource}, {told.attribute}: {why}")
    return lines


def carry_out(session: Any, found: Plan) -> list[Outcome]:
    """Make the calls of each step; a step whose call fails is not continued, the others are.

    session: a boto3 session of the account and region that was audited.
    """
    outcomes = []
    clients: dict[str, Any] = {}
    for step in found.steps:
        for change in step.changes:
            if change.service not in clients:
                clients[change.service] = session.client(change.service)
            problem = _make(clients[change.service], change)
            outcomes.append(Outcome(change, problem))
            if problem:
                break
    return outcomes


def _make(client: Any, change: Change) -> str:
    try:
        getattr(client, change.operation)(**change.arguments)
    except AWS_ERRORS as error:
        words = "".join(word.capitalize() for word in change.operation.split("_"))
        if code_of(error) in aws_codes.FORBIDDEN:
            return f"not permitted: {change.service}:{words}"
        return " ".join(str(error).split())
    return ""


def actions(found: Plan) -> tuple[str, ...]:
    """The IAM actions that the plan needs."""
    named = {
        f"{change.service}:{''.join(word.capitalize() for word in change.operation.split('_'))}"
        for step in found.steps
        for change in step.changes
    }
    return tuple(sorted(named))
