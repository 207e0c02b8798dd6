"""Claims -> the answer: first causes, what follows from them, candidates, or no fault."""

from __future__ import annotations

from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

from diagnosis.causes import CATALOGUE, fill
from diagnosis.logs.address import address_claims
from diagnosis.logs.between import between_claims
from diagnosis.logs.claims import EVERY_LOG, PROBE, Claim, Tier, View
from diagnosis.logs.elastic import elastic_claims
from diagnosis.logs.facts import Book, Fact, Place
from diagnosis.logs.kinds import FAILURES, LEAVING, OVERCOME, RETRIED, Kind
from diagnosis.logs.meanings import meaning_claims
from diagnosis.logs.members import member_claims
from diagnosis.logs.mesh import mesh_claims
from diagnosis.logs.rendezvous import rendezvous_claims
from diagnosis.logs.runtime import runtime_claims

SCHEMA_VERSION = 1
RULES = (
    address_claims,
    member_claims,
    between_claims,
    meaning_claims,
    rendezvous_claims,
    elastic_claims,
    runtime_claims,
    mesh_claims,
)


class Outcome(str, Enum):
    DETERMINED = "determined"
    UNDETERMINED = "undetermined"
    NO_FAULT = "no-fault"


class Explained(NamedTuple):
    """A cause with its evidence; the same shape for causes, consequences and candidates."""

    id: str
    subject: str
    summary: str
    evidence: Tuple[Place, ...]
    remediation: str
    commands: Tuple[str, ...]


class Note(NamedTuple):
    """What is worth saying beside the causes: known lines that are none, and what could not be told."""

    summary: str
    evidence: Tuple[Place, ...] = ()


class Unread(NamedTuple):
    """A log that was not read to its end, and why."""

    file: str
    reason: str


class Explanation(NamedTuple):
    """The answer. `causes` is empty when undetermined; then `candidates` are in order."""

    verdict: Outcome
    causes: Tuple[Explained, ...] = ()
    consequences: Tuple[Explained, ...] = ()
    candidates: Tuple[Explained, ...] = ()
    next_command: Optional[str] = None
    notes: Tuple[Note, ...] = ()
    lines: int = 0
    files: Tuple[str, ...] = ()
    unread: Tuple[Unread, ...] = ()
    schema_version: int = SCHEMA_VERSION


def decide(book: Book) -> Explanation:
    """Judge all facts. Pure: the same facts give the same answer."""
    view = View(book)
    claims = [claim for rule in RULES for claim in rule(view)]
    # A claim without a line is a defect of a rule; it must never become an answer.
    claims = [claim for claim in claims if claim.facts and claim.id in CATALOGUE]
    side = [claim for claim in claims if claim.tier is Tier.SIDE]
    sure = [claim for claim in claims if claim.sure and claim.tier is not Tier.SIDE]
    open_ = [claim for claim in claims if not claim.sure]
    answer = Explanation(
        verdict=Outcome.UNDETERMINED,
        notes=_notes(view, bool(claims)),
        lines=book.lines,
        files=tuple(book.files),
        unread=tuple(Unread(file=file, reason=reason) for file, reason in book.unread),
    )
    if sure:
        causes, consequences = _first(sure)
        return answer._replace(
            verdict=Outcome.DETERMINED,
            causes=_shown(view, [*causes, *side]),
            consequences=_shown(view, consequences),
        )
    benign = _benign(view, bool(open_))
    if benign is not None and not _fails(view) and not book.unread:
        return answer._replace(verdict=Outcome.NO_FAULT, causes=_shown(view, [benign]))
    if open_:
        return answer._replace(
            candidates=_shown(view, open_),
            consequences=_shown(view, side),
            next_command=_command(view, next((claim.ask for claim in open_ if claim.ask), PROBE)),
        )
    if side and not _fails(view):
        return answer._replace(verdict=Outcome.DETERMINED, causes=_shown(view, side))
    return answer._replace(
        candidates=_shown(view, [benign] if benign is not None and not _fails(view) else []),
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
    excused = RETRIED | (LEAVING if view.left_after_work else frozenset())
    excused |= {kind for kind in OVERCOME if view.overcome(view.book.all(kind))}
    return view.book.some(FAILURES - excused - {Kind.ECHO})


def _benign(view: View, doubtful: bool) -> Optional[Claim]:
    """That nothing is wrong, if the text shows it."""
    book = view.book
    noise = book.all(Kind.NOISE)
    retried = book.all(*RETRIED, *(kind for kind in OVERCOME if view.overcome(book.all(kind))))
    progress = book.progress_after([*retried, *noise]) if retried or noise else None
    if view.left_after_work and book.finished is not None:
        lost = book.all(*LEAVING)
        summary = "the job ended well, and its processes left one after the other"
        return Claim(id="benign-shutdown", facts=(book.finished, lost[0]), summary=summary)
    if retried and progress is not None:
        others = [fact for fact in retried if fact.kind is not Kind.STORE_GAI]
        summary = "early lines failed, and a later line shows the job at work"
        shown: Tuple[Fact, ...] = ((others or retried)[0], progress)
        return Claim(id="benign-retry" if others else "benign-ipv6-warning", facts=shown, summary=summary)
    if retried or doubtful:
        return None
    if noise:
        return _harmless(noise, progress)
    working = next((fact for fact in reversed(book.all(Kind.PROGRESS)) if not fact.get("met")), None)
    if working is None:
        return None
    return Claim(id="benign-success", facts=(working,), summary="the job is at work, and nothing failed")


def _harmless(noise: List[Fact], progress: Optional[Fact]) -> Optional[Claim]:
    """Lines that mean nothing by themselves. Only about IPv6 they say so; others need the success."""
    about = {fact.get("about"): fact for fact in reversed(noise)}
    ipv6 = about.get("ipv6")
    after = (progress,) if progress is not None else ()
    if ipv6 is not None:
        summary = "this host has no IPv6, and torch goes on with IPv4; nothing in the text failed"
        return Claim(id="benign-ipv6-warning", facts=(ipv6, *after), summary=summary)
    if progress is None:
        return None
    summary = "a line that failed for a log message or an agent's store only, and the job at work behind it"
    return Claim(id="benign-retry", facts=(noise[0], progress), summary=summary)


def _notes(view: View, claimed: bool) -> Tuple[Note, ...]:
    book = view.book
    notes = [
        Note(fact.get("says"), fact.places)
        for fact in {fact.get("says"): fact for fact in reversed(book.all(Kind.NOTE))}.values()
    ]
    for fact in book.all(Kind.NOISE):
        if fact.get("about") == "reverse lookup":
            notes.append(Note("reverse look-ups fail: harmless, and slow where the resolver is", fact.places))
            break
    own = book.all(Kind.OTHER_ERROR)
    if own and not claimed:
        notes.append(
            Note(
                "an error of the program's own; nothing of torch.distributed stands beside it", own[0].places
            )
        )
    if not book.kept and not book.has(Kind.PROGRESS):
        notes.append(
            Note(f"none of the {book.lines} lines is a known one of torch.distributed, Gloo or a launcher")
        )
    return tuple(notes)


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
            evidence=tuple(dict.fromkeys(place for fact in claim.facts for place in fact.places)),
            remediation=claim.remediation or declared.remediation,
            commands=fill(declared.commands, fields),
        )
    return tuple(found.values())


def _command(view: View, template: str) -> str:
    return fill((template,), view.fields())[-1]
