"""idle-connection-dropped: a connection that was left alone is dead, and a new one works."""

from __future__ import annotations

from typing import Dict, List, Sequence, Set, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.matrix import Pair
from diagnosis.opinion import NOTHING, Opinion
from diagnosis.patterns import find
from diagnosis.report import ConnectOutcome, Finding, IdleConnection


def judge_idle(case: Case) -> Opinion:
    """By pair, node or cluster, where the idle connections died; open where a new one fails, too."""
    kept = _by_pair(case)
    if not kept:
        return NOTHING
    forgotten = {pair for pair, item in kept.items() if _forgotten(item)}
    open_ = [
        f"{case.pair_subject(pair)}: its idle connection is {item.kept.value} and a new one "
        f"{item.fresh.value if item.fresh else 'was not tried'}"
        for pair, item in sorted(kept.items())
        if item.kept is not ConnectOutcome.CONNECTED and pair not in forgotten
    ]
    open_ += [
        f"{member.subject}: it kept no connection idle"
        for member in case.members
        if member.report is not None and member.report.idle is None
    ]
    return Opinion(causes=tuple(_named(case, kept, forgotten)), unanswered=tuple(open_))


def _by_pair(case: Case) -> Dict[Pair, IdleConnection]:
    places = {member.member_id: place for place, member in enumerate(case.members)}
    return {
        (place, places[item.destination]): item
        for place, member in enumerate(case.members)
        for item in ((member.report.idle or ()) if member.report else ())
        if item.destination in places
    }


def _forgotten(item: IdleConnection) -> bool:
    """A peer that merely does not answer is no proof: its kernel acknowledges what it is sent."""
    died = item.kept is ConnectOutcome.RESET or (
        item.kept is ConnectOutcome.SILENT and bool(item.unacknowledged)
    )
    return died and item.fresh is ConnectOutcome.CONNECTED


def _named(case: Case, kept: Dict[Pair, IdleConnection], forgotten: Set[Pair]) -> List[Finding]:
    if not forgotten:
        return []
    pattern = find(forgotten, set(kept))
    if pattern.whole:
        return [_finding(case, "cluster", sorted(forgotten), kept)]
    found = [_finding(case, case.subject(i.node), sorted(i.pairs), kept) for i in pattern.isolated]
    rest = forgotten.difference(*(item.pairs for item in pattern.isolated))
    both: Dict[Tuple[int, int], List[Pair]] = {}
    for pair in sorted(rest):
        both.setdefault((min(pair), max(pair)), []).append(pair)
    return found + [
        _finding(case, case.pair_subject(low_high if len(pairs) > 1 else pairs[0]), pairs, kept)
        for low_high, pairs in sorted(both.items())
    ]


def _finding(case: Case, subject: str, pairs: Sequence[Pair], kept: Dict[Pair, IdleConnection]) -> Finding:
    first = kept[pairs[0]]
    lines = [
        f"{case.pair_subject(pair)} port {kept[pair].port}: {kept[pair].kept.value} after "
        f"{kept[pair].idle_s:g} s idle, a new connection CONNECTED"
        for pair in pairs[:NAMED_AT_MOST]
    ]
    return finding(
        "idle-connection-dropped",
        subject,
        summary=f"connections that idled for {first.idle_s:g} s are dead, and new ones work "
        f"({len(pairs)} of {len(kept)} that were kept)",
        evidence=lines,
        fields=case.fields(pairs[0][0], pairs[0][1]),
        at_s=min((kept[pair].at_s for pair in pairs), default=None),
    )
