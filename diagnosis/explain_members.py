"""Rules about ranks: who is missing, doubled, counted wrongly or left over from before."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Optional, Set

from diagnosis.explain_claims import UNREACHABLE, Claim, Tier, View, listed_ranks, node, suspects
from diagnosis.explain_facts import Fact, Kind, compiled

EVERY_LOG = "fullmesh explain LOG_OF_EACH_RANK..."
_GROUP_KEY = r"/?default_pg/\d+/(?:/(?P<group>[^/]+)/)?/\w+//\d+/(?P<rank>\d{1,6})"


def member_claims(view: View) -> List[Claim]:
    """Everything about ranks and the size of the world."""
    return [*_sizes(view), *_doubled(view), *_came(view), *_keys(view), *_barriers(view)]


def _sizes(view: View) -> List[Claim]:
    claims: List[Claim] = []
    for fact in view.book.all(Kind.RANK_RANGE):
        claims.append(
            Claim(
                id="world-size-mismatch",
                facts=(fact,),
                subject=node(fact.number("rank")),
                summary=f"rank {fact.get('rank')} does not exist in a world of "
                f"{fact.get('size') or 'that size'}",
            )
        )
    barriers = [fact for fact in view.book.all(Kind.STORE_BARRIER) if fact.get("joined")]
    beyond = [f for f in barriers if (f.number("rank") or 0) >= (f.number("size") or 0)]
    crowded = [f for f in barriers if (f.number("joined") or 0) > (f.number("size") or 0)]
    over = [
        f for f in view.book.all(Kind.STORE_JOINED) if (f.number("joined") or 0) > (f.number("size") or 0)
    ]
    if beyond:
        fact = beyond[0]
        joined = f", and {fact.get('joined')} came" if fact in crowded else ""
        claims.append(
            Claim(
                id="world-size-mismatch",
                facts=(fact, *view.book.settings("srun")[:1]),
                subject=node(fact.number("rank")),
                summary=f"there is a rank {fact.get('rank')} in a world of {fact.get('size')}{joined}: "
                "launcher and "
                "script both multiply processes",
                fields={"world_size": fact.get("joined")},
            )
        )
    elif crowded or over:
        fact = (crowded or over)[0]
        files = view.book.all(Kind.FILE_EXISTS)
        claims.append(
            Claim(
                id="stale-store",
                facts=(fact, *files[:1]),
                summary=f"{fact.get('joined')} workers are counted in a world of {fact.get('size')}: the "
                "store holds "
                "an earlier attempt's" + (f" ({files[0].get('name')} existed already)" if files else ""),
                fields={"name": files[0].get("name") if files else None},
            )
        )
    return claims


def _doubled(view: View) -> List[Claim]:
    """One rank announced by two processes while others of the world are never announced."""
    members = view.book.all(Kind.MEMBER)
    sizes = {fact.number("size") for fact in members}
    if len(sizes) == 1 and members:
        size = next(iter(sizes)) or 0
        count = Counter(fact.number("rank") for fact in members)
        twice = [rank for rank, times in count.items() if times > 1]
        if twice and len(count) < size and len(members) > len(count) + len(count) // 2 and _all_double(count):
            shown = [fact for fact in members if fact.number("rank") == twice[0]][:2]
            named = ", ".join(str(rank) for rank in sorted(rank for rank in twice if rank is not None))
            return [
                Claim(
                    id="duplicate-rank",
                    facts=tuple(shown),
                    subject=node(twice[0]),
                    summary=f"ranks {named} are announced twice in a world of {size}, the other "
                    f"{size - len(count)} "
                    "never: a node did not get its own node rank",
                )
            ]
    if view.book.has(Kind.SELF):
        return suspects(
            ("duplicate-rank", "duplicate-address", "stale-store"),
            view.book.all(Kind.SELF)[:1],
            "a rank was told to connect to its own address: two ranks published the same one",
            ask=EVERY_LOG,
        )
    alone = members and len({fact.number("rank") for fact in members}) < (members[0].number("size") or 0)
    if alone and not view.book.has(Kind.PROGRESS):
        hint = ("env-leftover",) if view.book.settings("srun unused") else ()
        came = len({fact.number("rank") for fact in members})
        return suspects(
            tuple(dict.fromkeys((*hint, "peer-missing", "world-size-mismatch", "env-leftover"))),
            (*members[:1], *view.book.settings("srun unused")[:1]),
            f"{came} of {members[0].get('size')} ranks announced themselves in these logs; the others' "
            "logs would "
            "tell",
            ask="env | grep -E 'SLURM|RANK|WORLD_SIZE|MASTER|OMPI'",
        )
    return []


def _all_double(count: Counter[Optional[int]]) -> bool:
    return sum(times > 1 for times in count.values()) * 2 > len(count)


def _came(view: View) -> List[Claim]:
    """k of n came to the store."""
    facts: List[Fact] = []
    for fact in view.book.all(Kind.STORE_JOINED, Kind.STORE_BARRIER):
        joined, size = fact.number("joined"), fact.number("size")
        if (joined is not None and size is not None and joined < size) or fact.get("ranks"):
            facts.append(fact)
    facts = [fact for fact in facts if (fact.number("rank") or 0) < (fact.number("size") or 1 << 30)]
    if not facts:
        return []
    fact = facts[0]
    # Others tried and found nobody: then they are not missing, the way is closed.
    tried = [
        other
        for other in view.book.all(Kind.STORE_TIMEOUT, Kind.STORE_ERRNO, Kind.STORE_GAI)
        if other.kind is not Kind.STORE_ERRNO or other.get("errno") in UNREACHABLE
    ]
    if tried:
        came = f"{fact.get('joined')} of {fact.get('size')} came to the store"
        return suspects(
            ("master-unreachable", "sg-no-self-ingress", "master-addr-not-a-member", "os-firewall-drop"),
            (fact, tried[0]),
            f"{came}, and the others looked for it elsewhere or did not get through",
            ask="nc -zv -w 3 {master_address} {master_port}",
        )
    late = _late(view, fact)
    if late is not None:
        return [
            Claim(
                id="peer-late",
                facts=(fact, late),
                subject=node(late.rank),
                summary="the first line of another member is younger than the time-out: it came too late",
            )
        ]
    missing = _missing(view, fact)
    who = f"rank {', '.join(map(str, missing))} never came" if missing else "which ranks is not in the text"
    count = f"{fact.get('joined')} of {fact.get('size')}" if fact.get("joined") else "not all"
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


def _missing(view: View, fact: Fact) -> List[int]:
    if fact.get("ranks"):
        return list(listed_ranks(fact.get("ranks")))[:16]
    size, joined = fact.number("size") or 0, fact.number("joined") or 0
    speakers = {rank for rank in view.ranks if rank < size}
    if size - len(speakers) == size - joined and size <= 4096:
        return sorted(set(range(size)) - speakers)[:16]
    return []


def _late(view: View, fact: Fact) -> Optional[Fact]:
    """A member all of whose lines are younger than the time-out of those who waited."""
    if fact.at is None:
        return None
    late: List[Fact] = []
    speakers: Set[object] = set()
    for facts in view.book.facts.values():
        for other in facts:
            if other.at is None or (other.place.file == fact.place.file and other.rank in (None, fact.rank)):
                continue
            began = view.book.began.get((other.place.file, other.rank), other.at)
            speakers.add((other.place.file, other.rank))
            if began > fact.at + 1:
                late.append(other)
    who: Dict[object, Fact] = {(other.place.file, other.rank): other for other in reversed(late)}
    # A clear case only: one file or rank a member, and each of them began after the end of waiting.
    return min(late, key=lambda other: other.at or 0) if late and set(who) == speakers else None


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
        rank, group = int(found.group("rank")), found.group("group")
        size = view.world_size
        if group is not None:
            claims.append(
                Claim(
                    id="peer-not-in-collective",
                    facts=(fact,),
                    summary=f"member {rank} of the sub-group {group} never entered new_group (nothing of "
                    "it is in the "
                    "store, which works)",
                    tier=Tier.ABSENCE,
                )
            )
        elif size is not None and rank >= size:
            claims.append(
                Claim(
                    id="world-size-mismatch",
                    facts=(fact,),
                    subject=node(fact.rank),
                    summary=f"a rank waits for rank {rank} in a world of {size}",
                    fields={"world_size": size},
                )
            )
        elif not (counted and (rank in view.ranks or rank == 0)):
            # Where the store counts its clients, rank 0 publishes only when all have come.
            claims.append(
                Claim(
                    id="peer-missing",
                    facts=(fact,),
                    subject=node(rank),
                    summary=f"rank {rank} never published its address: it did not start, came too late "
                    "or failed "
                    "before",
                    tier=Tier.ABSENCE,
                    fields={"rank": rank},
                )
            )
    return claims[:8]


def _barriers(view: View) -> List[Claim]:
    named = [fact for fact in view.book.all(Kind.BARRIER_RANKS) if fact.get("ranks")]
    if not named:
        return []
    ranks = listed_ranks(max((fact.get("ranks") for fact in named), key=len))
    return [
        Claim(
            id="peer-not-in-collective",
            facts=(named[0],),
            subject=node(ranks[0]) if len(ranks) == 1 else "cluster",
            summary=f"monitored_barrier names rank {', '.join(map(str, ranks[:16]))}: it never got there",
            tier=Tier.ABSENCE,
        )
    ]
