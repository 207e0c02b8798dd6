"""Rules about a mesh that does not hold, and about processes that end."""

from __future__ import annotations

import re
from typing import Dict, List, Set

from diagnosis.logs.between import IDLE_S, silence_s
from diagnosis.logs.claims import EVERY_LOG, PROBE, Claim, Tier, View, apart, is_loopback, node, suspects
from diagnosis.logs.facts import Fact
from diagnosis.logs.kinds import Kind

_DETAIL = "export TORCH_DISTRIBUTED_DEBUG=DETAIL  # and run again: it names both calls"
_SHORT_MS = 60_000
_SIGNALS = {
    "1": "SIGHUP",
    "4": "SIGILL",
    "6": "SIGABRT",
    "7": "SIGBUS",
    "8": "SIGFPE",
    "9": "SIGKILL",
    "11": "SIGSEGV",
    "15": "SIGTERM",
}
# Sent by an agent, a scheduler or a person: whoever got it ended because something else was over.
_POLITE = ("15", "SIGTERM", "2", "SIGINT")
_HARD = (-4, -6, -7, -8, -9, -11)
# Exceptions that only report the end of another process, or wrap an error that stands elsewhere.
_WRAPPERS = re.compile(
    r"(?:\w+\.)*(?:ChildFailedError|Process(?:Raised|Exited)Exception|CalledProcessError|SystemExit|Ray\w*Error"
    r"|Actor\w*Error|Worker\w*Error|Engine\w*Error|BrokenPipeError|Connection\w*Error|EOFError|TimeoutError"
    r"|Dist\w*Error|CancelledError|KeyboardInterrupt|Interrupt|ActorHandleNotFoundError|Rendezvous\w*Error)"
)
_LOST = (Kind.PEER_CLOSED, Kind.PEER_RESET, Kind.PAIR_TIMEOUT, Kind.STORE_CLOSED, Kind.STORE_RESET)


def runtime_claims(view: View) -> List[Claim]:
    """Everything about limits, ends of processes, lost pairs and waiting."""
    return [*_ports(view), *_ends(view), *_broken(view), *_waiting(view)]


def _ports(view: View) -> List[Claim]:
    """Gloo's own sockets find no local port, or no local address."""
    for fact in view.book.all(Kind.GLOO_BIND)[:1]:
        if fact.get("call") == "bind" and fact.get("error").startswith("Cannot"):
            summary = "Gloo could not bind to the address it chose"
            ids = ("hostname-stale-ip", "port-exhaustion")
            return suspects(ids, (fact,), summary, ask="ip -br address")
        summary = (
            f"Gloo's own sockets found no free local port ({fact.get('call')}: {fact.get('error')}); "
            "MASTER_PORT has nothing to do with it"
        )
        return [Claim(id="port-exhaustion", facts=(fact,), subject=node(fact.rank), summary=summary)]
    return []


def _clock(fact: Fact) -> tuple[bool, float, int]:
    return (fact.at is None, fact.at or 0.0, fact.order)


def _ends(view: View) -> List[Claim]:
    """Exit statuses and signals. -15 and exit 1 follow from something; a hard kill does not."""
    book = view.book
    forced = {fact.get("pid") for fact in book.all(Kind.FORCED)}
    own = [fact for fact in book.all(Kind.EXIT, Kind.SIGNAL) if fact.get("pid") not in forced or not forced]
    exits = sorted((fact for fact in own if fact.kind is Kind.EXIT), key=_clock)
    for fact in exits:
        code = fact.number("code") or 0
        if code == -6 and book.has(Kind.PEER_RESET):
            return suspects(
                ("collective-mismatch", "peer-died"),
                (fact, book.all(Kind.PEER_RESET)[0]),
                "one rank aborted and others were reset: typical of collectives that do not match",
                ask=_DETAIL,
            )
        if code in _HARD:
            name = _SIGNALS.get(str(-code), f"signal {-code}")
            return [_died(fact, f"its process was ended by {name}")]
    signals = [fact for fact in own if fact.kind is Kind.SIGNAL]
    hard = [
        fact
        for fact in signals
        if fact.get("signal") not in _POLITE and fact.get("why") not in ("TIME LIMIT", "PREEMPTION")
    ]
    if hard:
        name = _SIGNALS.get(hard[0].get("signal"), hard[0].get("signal"))
        return [_died(hard[0], f"a process was ended ({name})")]
    lost = book.all(*_LOST)
    speakers = {fact.rank for fact in lost}
    if exits and lost and exits[0].rank is not None and exits[0].rank not in speakers != {None}:
        return [_died(exits[0], "its process ended first, and the others lost it", lost[0])]
    raised = _raised(view, lost)
    if not raised and signals:
        summary = "the agent was told to end from outside: a scheduler, a spot interruption, or a person"
        return suspects(("peer-died",), signals[:1], summary, ask=EVERY_LOG)
    return raised


def _raised(view: View, lost: List[Fact]) -> List[Claim]:
    """A rank with an error of the program's own, before others lost it or missed it."""
    errors = [f for f in view.book.all(Kind.OTHER_ERROR) if not _WRAPPERS.fullmatch(f.get("name"))]
    echoing = {(fact.place.file, fact.rank) for fact in lost}
    for fact in sorted(errors, key=_clock):
        others = [one for one in lost if apart(fact, one)]
        first = min(others, key=_clock, default=None)
        late = first is not None and None not in (fact.at, first.at) and (fact.at or 0) > (first.at or 0) + 1
        if first is not None and not late and (fact.place.file, fact.rank) not in echoing:
            return [_died(fact, f"it ended with {fact.get('name')[:60]}, and the others lost it", first)]
        missed = [
            one
            for one in view.book.all(Kind.STORE_KEY)
            if fact.rank is not None and re.search(rf"//\d+/{fact.rank}$", one.get("keys"))
        ]
        if missed and missed[0].rank != fact.rank:
            summary = f"it ended with {fact.get('name')[:60]}, and the others waited for it"
            return [_died(fact, summary, missed[0])._replace(tier=Tier.ABSENCE)]
    return []


def _died(fact: Fact, summary: str, *more: Fact) -> Claim:
    return Claim(
        id="peer-died", facts=(fact, *more), subject=node(fact.rank), summary=summary, tier=Tier.ENDED
    )


def _broken(view: View) -> List[Claim]:
    """Pairs that worked and were lost."""
    lost = view.book.all(Kind.PEER_CLOSED, Kind.PEER_RESET)
    claims: List[Claim] = []
    if lost:
        blamed: Dict[str, Set[object]] = {}
        for fact in lost:
            if fact.get("ip") and not is_loopback(fact.get("ip")):
                blamed.setdefault(fact.get("ip"), set()).add((fact.place.file, fact.rank))
        first = min(lost, key=_clock)
        top = max(blamed, key=lambda ip: len(blamed[ip]), default="")
        if top and len(blamed[top]) > 1 and first.get("ip") == top:
            who = f"{len(blamed[top])} ranks lost {top} first"
            claims.append(
                Claim(id="peer-died", facts=(first,), summary=f"{who}: its process ended", tier=Tier.ENDED)
            )
        else:
            claims += _lost_somehow(view, first)
    for fact in view.book.all(Kind.PAIR_BROKEN)[:1]:
        ids = ["peer-died", "host-unreachable", "idle-connection-dropped", "proxy-sidecar"]
        if "not connected" in fact.get("error"):
            ids = ["peer-died", "pair-blocked"]
        summary = f"an established connection was lost: {fact.get('error')}"
        claims += suspects(_after_silence(ids, fact), (fact,), summary, ask=PROBE)
    return claims


def _lost_somehow(view: View, first: Fact) -> List[Claim]:
    frames = {fact.get("function") for fact in view.book.all(Kind.FRAME)}
    if not first.get("ip") and "init_process_group" in frames and not view.mesh_begun:
        return suspects(
            ("store-host-exited", "proxy-sidecar", "peer-died"),
            (first,),
            "the connection was reset inside init_process_group, before any mesh: by the store's host, or by "
            "something in front of it",
            ask=PROBE,
        )
    return suspects(
        _after_silence(["peer-died", "collective-mismatch", "idle-connection-dropped"], first),
        (first,),
        "a peer closed or reset the connection; why is in the log of the rank that failed first",
        ask=EVERY_LOG,
    )


def _after_silence(ids: List[str], fact: Fact) -> List[str]:
    """After a long silence the tracker that forgets comes first."""
    if silence_s(fact) < IDLE_S or fact.kind is Kind.PEER_CLOSED:
        return ids
    return list(dict.fromkeys(("idle-connection-dropped", *ids)))


def _waiting(view: View) -> List[Claim]:
    """Operations that got no data in time; every cause of it looks the same from here."""
    facts = view.book.all(Kind.OPERATION_TIMEOUT)
    claims: List[Claim] = []
    if facts:
        ids = ["peer-not-in-collective", "collective-mismatch", "mtu-black-hole", "peer-frozen"]
        waited = facts[0].number("ms")
        if waited is not None and waited <= _SHORT_MS:
            ids.append("timeout-too-short")
        length = f"{waited / 1000:g} s" if waited is not None else "its time-out"
        summary = (
            f"no data came for {length}: a rank is elsewhere in its program or stuck, or full-size packets "
            "vanish"
        )
        claims += suspects(_after_silence(ids, facts[0]), facts[:1], summary, ask=_DETAIL)
    waits = view.book.all(Kind.STORE_WAIT)
    if waits and not view.book.has(Kind.STORE_KEY):
        nccl = [fact for fact in waits if fact.get("root")]
        summary = "a key of the store was not set in time; which one is not in the text"
        order = ["peer-missing", "peer-not-in-collective", "peer-late"]
        if nccl:
            order = ["peer-not-in-collective", "peer-missing", "peer-late"]
            summary = f"rank {nccl[0].get('root')} of the group did not put NCCL's id into the store in time"
        claims += suspects(order, (nccl or waits)[:1], summary, ask=EVERY_LOG)
    return claims
