"""What one line of questioning found: causes that are certain, or candidates that are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Sequence, Tuple

from diagnosis.causes import finding
from diagnosis.report import Finding


@dataclass(frozen=True)
class Opinion:
    """causes: certain. candidates: in order, where something is wrong and nothing is certain.

    next_command: the one command that decides between the candidates.
    unanswered: questions that stayed open.
    """

    causes: Tuple[Finding, ...] = ()
    candidates: Tuple[Finding, ...] = ()
    next_command: Optional[str] = None
    unanswered: Tuple[str, ...] = ()

    def __add__(self, other: Opinion) -> Opinion:
        return Opinion(
            causes=(*self.causes, *other.causes),
            candidates=tuple(dict.fromkeys((*self.candidates, *other.candidates))),
            next_command=self.next_command or other.next_command,
            unanswered=tuple(dict.fromkeys((*self.unanswered, *other.unanswered))),
        )


NOTHING = Opinion()


def total(opinions: Iterable[Opinion]) -> Opinion:
    """All opinions as one, in order."""
    whole = NOTHING
    for opinion in opinions:
        whole = whole + opinion
    return whole


def undetermined(
    options: Sequence[Tuple[str, str]],
    *,
    why: str,
    evidence: Sequence[str],
    next_command: str,
    fields: Optional[dict[str, object]] = None,
    at_s: Optional[float] = None,
) -> Opinion:
    """Candidates in order: `options` are (cause id, subject)."""
    return Opinion(
        candidates=tuple(
            finding(cause_id, subject, summary=why, evidence=evidence, fields=fields, at_s=at_s)
            for cause_id, subject in options
        ),
        next_command=next_command,
    )
