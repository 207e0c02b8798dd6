"""Rules about ranks: who is missing, doubled, counted wrongly or left over from before."""

from __future__ import annotations

from typing import Dict, List, Optional

from diagnosis.logs.arrival import SHOWN_RANKS, arrival_claims
from diagnosis.logs.claims import Claim, Tier, View, listed_ranks, node, suspects
from diagnosis.logs.facts import Fact
from diagnosis.logs.kinds import Kind


def member_claims(view: View) -> List[Claim]:
    """Everything about ranks and the size of the world."""
    return [
        *_sizes(view),
        *_doubled(view),
        *_alone(view),
        *arrival_claims(view),
        *_barriers(view),
        *_groups(view),
    ]


def _sizes(view: View) -> List[Claim]:
    claims: List[Claim] = []
    for fact in view.book.all(Kind.RANK_RANGE):
        last = fact.number("last")
        size = fact.get("size") or (str(last + 1) if last is not None else "that size")
        summary = f"rank {fact.get('rank')} does not exist in a world of {size}"
        subject = node(fact.number("rank"))
        claims.append(Claim(id="world-size-mismatch", facts=(fact,), subject=subject, summary=summary))
    barriers = [fact for fact in view.book.all(Kind.STORE_BARRIER, Kind.STORE_WAITS) if fact.get("joined")]
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
                "launcher and script both multiply processes",
                fields={"world_size": fact.get("joined")},
            )
        )
    elif crowded or over:
        fact = (crowded or over)[0]
        files = view.book.all(Kind.FILE_EXISTS)
        existed = f" ({files[0].get('name')} existed already)" if files else ""
        claims.append(
            Claim(
                id="stale-store",
                facts=(fact, *files[:1]),
                summary=f"{fact.get('joined')} workers are counted in a world of {fact.get('size')}: the "
                f"store holds an earlier attempt's{existed}",
                fields={"name": files[0].get("name") if files else None},
            )
        )
    return claims


def _doubled(view: View) -> List[Claim]:
    """One rank announced by two processes while others of the world are never announced."""
    members = view.book.all(Kind.MEMBER)
    sizes = {fact.number("size") for fact in members}
    if len(sizes) != 1:
        return []
    size = next(iter(sizes)) or 0
    count: Dict[Optional[int], int] = {}
    for fact in members:
        count[fact.number("rank")] = count.get(fact.number("rank"), 0) + 1
    twice = sorted(rank for rank, times in count.items() if times > 1 and rank is not None)
    half = len(twice) * 2 > len(count) and len(members) > len(count) + len(count) // 2
    if not twice or len(count) >= size or not half:
        return []
    shown = [fact for fact in members if fact.number("rank") == twice[0]][:2]
    return [
        Claim(
            id="duplicate-rank",
            facts=tuple(shown),
            subject=node(twice[0]),
            summary=f"ranks {', '.join(map(str, twice[:SHOWN_RANKS]))} are announced twice in a world of "
            f"{size}, the other {size - len(count)} never: a node did not get its own node rank",
        )
    ]


def _alone(view: View) -> List[Claim]:
    """Fewer members announce themselves than the world has, and what the environment says of that."""
    book = view.book
    members = book.all(Kind.MEMBER)
    unused = book.settings("srun unused")
    came = {fact.number("rank") for fact in members}
    size = members[0].number("size") or 0 if members else 0
    joined = [f for f in book.all(Kind.STORE_JOINED, Kind.STORE_BARRIER) if f.get("joined") == "1"]
    inherited = [f for f in book.settings("launcher size") if (f.number("value") or 0) > 1]
    claims: List[Claim] = []
    # One process by itself that waits for as many as another launcher's variable counts.
    for fact in inherited:
        waits = [one for one in joined if one.get("size") == fact.get("value")]
        if waits and view.ranks <= {0} and not book.settings("srun"):
            summary = (
                f"{fact.get('from')}={fact.get('value')} is inherited from another launcher: one process "
                f"came and waits for {fact.get('value')}"
            )
            return [Claim(id="env-leftover", facts=(fact, waits[0]), summary=summary)]
    if unused and joined and came <= {0}:
        summary = "Slurm's variables give the size of the world, and the script was not started by srun"
        return [Claim(id="env-leftover", facts=(unused[0], joined[0]), summary=summary)]
    if members and len(came) < size and not book.has(Kind.PROGRESS):
        hint = ("env-leftover",) if unused or inherited else ()
        claims += suspects(
            tuple(dict.fromkeys((*hint, "peer-missing", "world-size-mismatch", "env-leftover"))),
            (members[0], *unused[:1]),
            f"{len(came)} of {size} ranks announced themselves in these logs; the others' logs would tell",
            ask="env | grep -E 'SLURM|RANK|WORLD_SIZE|MASTER|OMPI'",
        )
    return claims


def _barriers(view: View) -> List[Claim]:
    """monitored_barrier names who did not come, or who did."""
    named = [fact for fact in view.book.all(Kind.BARRIER_RANKS) if fact.get("ranks")]
    if named:
        ranks = listed_ranks(max((fact.get("ranks") for fact in named), key=len))
        shown, who = named[:1], f"names rank {', '.join(map(str, ranks[:SHOWN_RANKS]))}: it never got there"
    else:
        came = view.book.all(Kind.BARRIER_CAME)
        if not came or view.book.has(Kind.BARRIER_NONE):
            return []
        present = {0, *(rank for fact in came for rank in listed_ranks(fact.get("ranks")))}
        ranks = tuple(sorted(set(range(view.world_size or 0)) - present))
        listed = f"rank {', '.join(map(str, ranks[:SHOWN_RANKS]))}" if ranks else "those it does not list"
        shown, who = came[:2], f"lists who came: {listed} did not"
    return [
        Claim(
            id="peer-not-in-collective",
            facts=tuple(shown),
            subject=node(ranks[0]) if len(ranks) == 1 else "cluster",
            summary=f"monitored_barrier {who}",
            tier=Tier.ABSENCE,
        )
    ]


def _groups(view: View) -> List[Claim]:
    """new_group fails, and ranks show that they called it with different lists."""
    inside = [fact for fact in view.book.all(Kind.FRAME) if fact.get("function") == "new_group"]
    failed = view.book.all(Kind.PAIR_ERROR, Kind.PAIR_HIDDEN, Kind.PAIR_TIMEOUT, Kind.RANK_RANGE)
    keys = [fact for fact in view.book.all(Kind.STORE_KEY) if "//" in fact.get("keys").partition("//cpu")[0]]
    lists: Dict[object, List[Fact]] = {}
    for fact in view.book.all(Kind.GROUP_CALL):
        lists.setdefault(fact.speaker, []).append(fact)
    once = [facts[0] for facts in lists.values() if len({one.get("ranks") for one in facts}) == 1]
    different = len({listed_ranks(fact.get("ranks")) for fact in once}) > 1
    if not different or len(once) < len(lists) or not ((inside and failed) or keys):
        return []
    other = next(f for f in once if listed_ranks(f.get("ranks")) != listed_ranks(once[0].get("ranks")))
    summary = (
        f"one rank calls new_group with [{once[0].get('ranks')}], another with [{other.get('ranks')}], and "
        "neither with any other list: every rank has to make every group"
    )
    return [Claim(id="group-mismatch", facts=(once[0], other, *keys[:1], *failed[:1]), summary=summary)]
