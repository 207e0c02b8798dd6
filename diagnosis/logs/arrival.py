"""Rules about who came to the store in time: counts, keys that nobody set, members that were late."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from diagnosis.logs.claims import (
    EVERY_LOG,
    UNREACHABLE,
    Claim,
    Tier,
    View,
    apart,
    errno_of,
    listed_ranks,
    node,
    seconds_of,
    suspects,
)
from diagnosis.logs.facts import Fact, compiled
from diagnosis.logs.kinds import Kind

_GROUP_KEY = r"/?default_pg/\d+/(?:/(?P<group>[^/]+)/)?/\w+//\d+/(?P<rank>\d{1,6})"
_BARRIER_KEY = r"store_based_barrier_key:(?P<number>\d{1,6})"
# A member that began this much after the others had given up was late by minutes; below that, and with a
# time-out of at most so much, it is the time-out that is short.
_LATE_S, _SHORT_S = 60.0, 60.0
SHOWN_RANKS = 16
_ATTEMPTS = (Kind.STORE_ERRNO, Kind.STORE_GAI, Kind.STORE_TIMEOUT)


def arrival_claims(view: View) -> List[Claim]:
    """Everything about members that came too late or never."""
    return [*_came(view), *_keys(view)]


def _came(view: View) -> List[Claim]:
    """k of n came to the store."""
    facts: List[Fact] = []
    for fact in view.book.all(Kind.STORE_JOINED, Kind.STORE_BARRIER):
        joined, size = fact.number("joined"), fact.number("size")
        if (joined is not None and size is not None and joined < size) or fact.get("ranks"):
            facts.append(fact)
    facts = [fact for fact in facts if (fact.number("rank") or 0) < (fact.number("size") or 1 << 30)]
    if not facts:
        return _waits(view)
    fact = facts[0]
    late = _late(view, fact)
    if late:
        return late
    # Others tried and found nobody: then they are not missing, the way is closed.
    tried = [
        other
        for other in view.book.all(Kind.STORE_TIMEOUT, Kind.STORE_ERRNO, Kind.STORE_GAI)
        if other.kind is not Kind.STORE_ERRNO or errno_of(other) in UNREACHABLE
    ]
    count = f"{fact.get('joined')} of {fact.get('size')}" if fact.get("joined") else "not all"
    if tried:
        return suspects(
            ("master-unreachable", "sg-no-self-ingress", "master-addr-not-a-member", "os-firewall-drop"),
            (fact, tried[0]),
            f"{count} came to the store, and the others looked for it elsewhere or did not get through",
            ask="nc -zv -w 3 {master_address} {master_port}",
        )
    key = compiled(_BARRIER_KEY).search(fact.get("key"))
    if key is not None and int(key.group("number")) > 1:
        summary = (
            f"{count} ranks came to the barrier of group {key.group('number')}, and all of them to the first "
            "one: the others never created that group"
        )
        return [Claim(id="peer-not-in-collective", facts=(fact,), summary=summary, tier=Tier.ABSENCE)]
    missing = _missing(view, fact)
    who = f"rank {', '.join(map(str, missing))} never came" if missing else "which ranks is not in the text"
    return [
        Claim(
            id="peer-missing",
            facts=(fact,),
            subject=node(missing[0]) if len(missing) == 1 else "cluster",
            summary=f"{count} ranks came to the store in time; {who}",
            tier=Tier.ABSENCE,
            fields=view.fields(),
        )
    ]


def _waits(view: View) -> List[Claim]:
    """Members still wait for others: nothing has failed, and nothing goes on either."""
    facts = view.book.all(Kind.STORE_WAITS)
    short = [f for f in facts if (f.number("joined") or 0) < (f.number("size") or 0)]
    if not short or view.book.progress_after(short):
        return []
    fact = short[-1]
    summary = (
        f"{fact.get('joined')} of {fact.get('size')} ranks had come when the text ends, and they still wait"
    )
    ids = ("peer-missing", "peer-not-in-collective", "peer-late")
    return suspects(ids, (fact,), summary, ask=EVERY_LOG)


def _missing(view: View, fact: Fact) -> List[int]:
    if fact.get("ranks"):
        return list(listed_ranks(fact.get("ranks")))[:SHOWN_RANKS]
    size, joined = fact.number("size") or 0, fact.number("joined") or 0
    speakers = {rank for rank in view.ranks if rank < size}
    if len(speakers) == joined and size <= 4096:
        return sorted(set(range(size)) - speakers)[:SHOWN_RANKS]
    return []


def _late(view: View, waited: Fact) -> List[Claim]:
    """A member that began only after the others had given up."""
    if waited.at is None:
        return []
    first: Dict[Tuple[str, Optional[int]], float] = {}
    shown: Dict[Tuple[str, Optional[int]], Fact] = {}
    for facts in view.book.facts.values():
        for other in facts:
            if other.at is None or not apart(waited, other):
                continue
            # Whoever ran into a time-out had been trying for all of it. What a member does before it tries
            # counts as being late; a line that is no attempt tells nothing of when it tried.
            began = other.at - (seconds_of(other.get("after")) or (other.number("ms") or 0) / 1000)
            if other.kind not in _ATTEMPTS:
                began = min(began, view.book.first_at.get(other.place.file, began))
            who = (other.place.file, other.rank)
            if began <= first.get(who, began):
                first[who] = began
            shown[who] = min(shown.get(who, other), other, key=lambda fact: fact.order)
    # A clear case only: each of the others began after the end of waiting.
    if not first or min(first.values()) <= waited.at + 1:
        return []
    who = min(first, key=lambda one: first[one])
    waited_s = waited.number("after") or (waited.number("ms") or 0) / 1000
    gap_s = first[who] - waited.at
    short = 0 < waited_s <= _SHORT_S and gap_s < _LATE_S
    came = f"{gap_s:.0f} s after the others had given up"
    return [
        Claim(
            id="timeout-too-short" if short else "peer-late",
            facts=(waited, shown[who]),
            subject="cluster" if short else node(shown[who].rank),
            summary=f"another member began {came}: "
            + (f"{waited_s:g} s is less than the start-up's skew" if short else "it came too late"),
        )
    ]


def _keys(view: View) -> List[Claim]:
    """Keys of the store that nobody set: the last part of Gloo's is the rank that never published."""
    claims: List[Claim] = []
    counted = view.book.all(Kind.STORE_JOINED)
    for fact in view.book.all(Kind.STORE_KEY):
        found = compiled(_GROUP_KEY).search(fact.get("keys"))
        if found is None:
            summary = (
                f"the key {fact.get('keys')[:80]} was not set in time: not every member reached that point"
            )
            claims += suspects(("peer-missing", "peer-not-in-collective"), (fact,), summary, ask=EVERY_LOG)
            continue
        late = _late(view, fact)
        if late:
            return late
        rank, group, size = int(found.group("rank")), found.group("group"), view.world_size
        if group is not None:
            summary = (
                f"member {rank} of the sub-group {group} never entered new_group (nothing of it is in the "
                "store, which works)"
            )
            claims.append(
                Claim(id="peer-not-in-collective", facts=(fact,), summary=summary, tier=Tier.ABSENCE)
            )
        elif size is not None and rank >= size:
            summary = f"a rank waits for rank {rank} in a world of {size}"
            claims.append(
                Claim(
                    id="world-size-mismatch",
                    facts=(fact,),
                    subject=node(fact.rank),
                    summary=summary,
                    fields={"world_size": size},
                )
            )
        elif not (counted and (rank in view.ranks or rank == 0)):
            # Where the store counts its clients, rank 0 publishes only when all have come.
            summary = (
                f"rank {rank} never published its address: it did not start, came too late or failed before"
            )
            claims.append(
                Claim(
                    id="peer-missing",
                    facts=(fact,),
                    subject=node(rank),
                    summary=summary,
                    tier=Tier.ABSENCE,
                    fields={"rank": rank},
                )
            )
    return claims[:8]
