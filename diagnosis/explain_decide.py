"""Claims -> the answer: first causes, what follows from them, candidates, or no fault."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from typing import Dict, List, Optional, Tuple

from diagnosis.causes import CATALOGUE, fill
from diagnosis.explain_address import PROBE, address_claims
from diagnosis.explain_claims import Claim, Tier, View
from diagnosis.explain_facts import FAILURES, RETRIED, Book, Fact, Kind, Place
from diagnosis.explain_members import EVERY_LOG, member_claims
from diagnosis.explain_rendezvous import rendezvous_claims
from diagnosis.explain_runtime import runtime_claims

SCHEMA_VERSION = 1


class Outcome(str, Enum):
    DETERMINED = "determined"
    UNDETERMINED = "undetermined"
    NO_FAULT = "no-fault"


@dataclass(frozen=True)
class Explained:
    """A cause with its evidence; the same shape for causes, consequences and candidates."""

    id: str
    subject: str
    summary: str
    evidence: Tuple[Place, ...]
    remediation: str
    commands: Tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """The answer. `causes` is empty when undetermined; then `candidates` are in order."""

    verdict: Outcome
    causes: Tuple[Explained, ...] = ()
    consequences: Tuple[Explained, ...] = ()
    candidates: Tuple[Explained, ...] = ()
    next_command: Optional[str] = None
    lines: int = 0
    files: Tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION


def decide(book: Book) -> Explanation:
    """Judge all facts. Pure: the same facts give the same answer."""
    view = View(book)
    claims = [*address_claims(view), *member_claims(view), *rendezvous_claims(view), *runtime_claims(view)]
    # A claim without a line is a defect of a rule; it must never become an answer.
    claims = [claim for claim in claims if claim.facts and claim.id in CATALOGUE]
    side = [claim for claim in claims if claim.tier is Tier.SIDE]
    sure = [claim for claim in claims if claim.sure and claim.tier is not Tier.SIDE]
    open_ = [claim for claim in claims if not claim.sure]
    answer = functools.partial(Explanation, lines=book.lines, files=tuple(book.files))
    if sure:
        causes, consequences = _first(sure)
        return answer(
            verdict=Outcome.DETERMINED,
            causes=_shown(view, [*causes, *side]),
            consequences=_shown(view, consequences),
        )
    benign = _benign(view, bool(open_))
    if benign is not None and not _fails(view):
        return answer(verdict=Outcome.NO_FAULT, causes=_shown(view, [benign]))
    if open_:
        return answer(
            verdict=Outcome.UNDETERMINED,
            candidates=_shown(view, open_),
            consequences=_shown(view, side),
            next_command=_command(view, next((claim.ask for claim in open_ if claim.ask), PROBE)),
        )
    if side and not _fails(view):
        return answer(verdict=Outcome.DETERMINED, causes=_shown(view, side))
    return answer(
        verdict=Outcome.UNDETERMINED,
        consequences=_shown(view, side),
        next_command=_command(view, EVERY_LOG),
    )


def _first(sure: List[Claim]) -> Tuple[List[Claim], List[Claim]]:
    """First causes in order of time, and what they explain.

    A cause explains what its declaration says, and what stands further from the root: a rank that
    is missing or ended is the usual end of a wrong name.
    """
    best: Dict[Tuple[str, str], Claim] = {}
    for claim in sorted(sure, key=_moment):
        best.setdefault((claim.id, claim.subject), claim)
    kept = list(best.values())
    nearest = min(claim.tier for claim in kept)
    explained = {echo for claim in kept if claim.tier is nearest for echo in CATALOGUE[claim.id].explains}
    ids = {claim.id for claim in kept}
    # Two causes that name each other as an echo would silence both.
    explained -= {item for item in explained if item in ids and _mutual(item, ids)}
    causes = [claim for claim in kept if claim.tier is nearest and claim.id not in explained]
    if not causes:
        causes = [claim for claim in kept if claim.tier is nearest][:1]
    return causes, [claim for claim in kept if claim not in causes]


def _mutual(item: str, ids: set[str]) -> bool:
    return any(
        item in CATALOGUE[other].explains and other in CATALOGUE[item].explains for other in ids - {item}
    )


def _moment(claim: Claim) -> Tuple[int, bool, float, int]:
    first = claim.facts[0]
    return (int(claim.tier), first.at is None, first.at or 0.0, first.order)


def _fails(view: View) -> bool:
    """Whether anything failed for good. Attempts are judged by `_benign`: a later success excuses them."""
    return any(view.book.has(kind) for kind in FAILURES - RETRIED - {Kind.ECHO})


def _benign(view: View, doubtful: bool) -> Optional[Claim]:
    book = view.book
    noise = book.all(Kind.NOISE)
    lookups = book.all(Kind.STORE_GAI)
    retried = book.all(*RETRIED)
    progress = book.progress_after([*retried, *noise]) if retried or noise else None
    if retried and progress is not None:
        others = [fact for fact in retried if fact.kind is not Kind.STORE_GAI]
        cause = "benign-retry" if others else "benign-ipv6-warning"
        shown: Tuple[Fact, ...] = ((others or lookups)[0], progress)
        return Claim(
            id=cause, facts=shown, summary="early lines failed, and a later line shows the job at work"
        )
    if noise and not retried and not doubtful:
        ipv6 = any(fact.get("about") == "ipv6" for fact in noise)
        what = (
            "this host has no IPv6, and torch goes on with IPv4"
            if ipv6
            else "a reverse look-up failed, for a log line only"
        )
        after = (progress,) if progress is not None else ()
        return Claim(
            id="benign-ipv6-warning", facts=(noise[0], *after), summary=f"{what}; nothing in the text failed"
        )
    return None


def _shown(view: View, claims: List[Claim]) -> Tuple[Explained, ...]:
    found: Dict[Tuple[str, str], Explained] = {}
    for claim in claims:
        if (claim.id, claim.subject) in found:
            continue
        declared = CATALOGUE[claim.id]
        fields = {**view.fields(), "rank": claim.facts[0].rank, **claim.fields}
        found[claim.id, claim.subject] = Explained(
            id=claim.id,
            subject=claim.subject,
            summary=claim.summary,
            evidence=tuple(dict.fromkeys(fact.place for fact in claim.facts)),
            remediation=claim.remediation or declared.remediation,
            commands=fill(declared.commands, fields),
        )
    return tuple(found.values())


def _command(view: View, template: str) -> str:
    return fill((template,), view.fields())[-1]
