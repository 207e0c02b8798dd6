"""Rules about a mesh that does not come up or does not hold, and about processes that end."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Set

from diagnosis.explain_address import PROBE
from diagnosis.explain_claims import (
    Claim,
    Tier,
    View,
    is_loopback,
    is_unroutable,
    node,
    numeric_name,
    real_port,
    suspects,
)
from diagnosis.explain_facts import Fact, Kind
from diagnosis.explain_members import EVERY_LOG

_DETAIL = "export TORCH_DISTRIBUTED_DEBUG=DETAIL  # and run again: it names both calls"
_SHORT_MS = 60_000
_SIGNALS = {"1": "SIGHUP", "6": "SIGABRT", "7": "SIGBUS", "9": "SIGKILL", "11": "SIGSEGV", "15": "SIGTERM"}


def runtime_claims(view: View) -> List[Claim]:
    """Everything about the mesh, collectives, limits and ends of processes."""
    return [
        *_limits(view),
        *_mismatches(view),
        *_ends(view),
        *_mesh(view),
        *_broken(view),
        *_waiting(view),
    ]


def _limits(view: View) -> List[Claim]:
    claims: List[Claim] = []
    for fact in view.book.all(Kind.FILES)[:1]:
        summary = "the limit of open files is reached"
        claims.append(Claim(id="fd-limit", facts=(fact,), summary=summary, subject=node(fact.rank)))
    for fact in view.book.all(Kind.GLOO_BIND)[:1]:
        if fact.get("call") == "bind" and fact.get("error").startswith("Cannot"):
            summary = "Gloo could not bind to the address it chose"
            claims += suspects(
                ("hostname-stale-ip", "port-exhaustion"), (fact,), summary, ask="ip -br address"
            )
            continue
        claims.append(
            Claim(
                id="port-exhaustion",
                facts=(fact,),
                subject=node(fact.rank),
                summary=f"Gloo's own sockets found no free local port ({fact.get('call')}: "
                f"{fact.get('error')}); "
                "MASTER_PORT has nothing to do with it",
            )
        )
    for fact in view.book.all(Kind.MEMORY)[:1]:
        summary = "a process was ended, or failed, for want of memory"
        claims.append(Claim(id="peer-out-of-memory", facts=(fact,), summary=summary, subject=node(fact.rank)))
    for fact in view.book.all(Kind.TRANSPORT)[:1]:
        summary = "GLOO_DEVICE_TRANSPORT (or lazy init) asks for a transport that this build lacks"
        claims.append(
            Claim(id="transport-unsupported", facts=(fact,), summary=summary, subject=node(fact.rank))
        )
    return claims


def _mismatches(view: View) -> List[Claim]:
    claims: List[Claim] = []
    records = view.book.all(Kind.RECORD)
    strong = [fact for fact in records if not fact.get("weak")]
    if strong:
        summary = "a peer's record in the store has another layout: another build of torch or Gloo wrote it"
        claims.append(Claim(id="version-mismatch", facts=(strong[0],), summary=summary))
    elif records:
        summary = "the store was sent, or holds, what this build does not understand"
        claims += suspects(
            ("version-mismatch", "stale-store", "proxy-sidecar"), records[:1], summary, ask=EVERY_LOG
        )
    for fact in view.book.all(Kind.SIZE_MISMATCH, Kind.FINGERPRINT)[:1]:
        sizes = (
            f": {fact.get('received')} bytes came, {fact.get('expected')} were expected"
            if fact.get("expected")
            else ""
        )
        claims.append(
            Claim(
                id="collective-mismatch",
                facts=(fact,),
                subject=node(fact.rank),
                summary=f"ranks called different collectives, shapes or orders{sizes}",
            )
        )
    return claims


def _ends(view: View) -> List[Claim]:
    """Exit statuses and signals. -15 and exit 1 follow from something; a hard kill does not."""
    exits = view.book.all(Kind.EXIT)
    echoes = view.book.all(Kind.PEER_CLOSED, Kind.PEER_RESET, Kind.PAIR_TIMEOUT)
    ordered = sorted(exits, key=lambda fact: (fact.at is None, fact.at or 0.0, fact.order))
    for fact in ordered:
        code = fact.number("code") or 0
        if code == -6 and view.book.has(Kind.PEER_RESET):
            return suspects(
                ("collective-mismatch", "peer-died"),
                (fact, view.book.all(Kind.PEER_RESET)[0]),
                "one rank aborted and others were reset: typical of collectives that do not match",
                ask=_DETAIL,
            )
        if code in (-6, -7, -9, -11, -4, -8):
            name = _SIGNALS.get(str(-code), f"signal {-code}")
            return [_died(fact, f"its process was ended by {name}")]
    signals = [
        fact
        for fact in view.book.all(Kind.SIGNAL)
        if fact.get("signal") not in ("15", "SIGTERM", "2", "SIGINT")
    ]
    if signals:
        fact = signals[0]
        name = _SIGNALS.get(fact.get("signal"), fact.get("signal"))
        return [_died(fact, f"a process was ended ({name})")]
    if ordered and echoes:
        first = ordered[0]
        speakers = {fact.rank for fact in echoes}
        if first.rank is not None and first.rank not in speakers and speakers != {None}:
            return [_died(first, "its process ended first, and the others lost it", echoes[0])]
    return _raised(view, echoes)


def _raised(view: View, echoes: List[Fact]) -> List[Claim]:
    """A rank with an error of the program's own, before others lost it."""
    for fact in view.book.all(Kind.OTHER_ERROR):
        lost = [echo for echo in echoes if echo.rank not in (None, fact.rank)]
        if fact.rank is not None and lost and fact.rank not in {echo.rank for echo in echoes}:
            return [_died(fact, f"it ended with {fact.get('name')[:60]}, and the others lost it", lost[0])]
    return []


def _died(fact: Fact, summary: str, *more: Fact) -> Claim:
    return Claim(
        id="peer-died", facts=(fact, *more), subject=node(fact.rank), summary=summary, tier=Tier.ENDED
    )


def _mesh(view: View) -> List[Claim]:
    """Connections between members that did not come up, where the address itself is not the reason."""
    book = view.book
    claims: List[Claim] = []
    plain = [fact for fact in book.all(Kind.PAIR_ERROR) if not _explained(fact.get("ip"))]
    frames = {fact.get("function") for fact in book.all(Kind.FRAME)}
    by_error: Dict[str, Fact] = {}
    for fact in plain:
        by_error.setdefault(fact.get("error").lower(), fact)
    for error, fact in by_error.items():
        where = f"{fact.get('ip') or 'a peer'} port {real_port(fact.get('port'))}"
        if "refused" in error:
            ids = ["peer-died", "os-firewall-reject", "stale-store", "wrong-interface"]
            if "new_group" in frames:
                ids = ["group-mismatch", *ids]
            place = (
                "in new_group, after init had worked" if "new_group" in frames else "while the mesh was built"
            )
            summary = f"{where} refused the connection {place}; a security group never refuses"
        elif "timed out" in error:
            ids = ["sg-only-master-port", "os-firewall-drop", "nacl-deny", "wrong-interface", "one-way-block"]
            summary = (
                f"{where} did not answer, though the store worked: packets are dropped, or the "
                "address is wrong"
            )
        elif "route" in error:
            ids = ["os-firewall-reject", "host-unreachable", "wrong-interface"]
            summary = (
                f"no route to {where}: a firewall that rejects answers at once, an address without "
                "a host after 3 s"
            )
        elif "unreachable" in error:
            ids = ["wrong-interface", "route-missing", "ipv4-ipv6-mismatch"]
            summary = f"this host has no route to {where}, which the peer published"
        elif "assign" in error:
            ids = ["port-exhaustion", "hostname-stale-ip"]
            summary = f"no local address or port for a connection to {where}"
        else:
            ids = ["peer-died", "proxy-sidecar", "os-firewall-reject"]
            summary = f"the connection to {where} failed: {fact.get('error')}"
        claims += suspects(ids, (fact,), summary, ask=PROBE)
    hidden = book.all(Kind.PAIR_HIDDEN)
    if hidden:
        claims += suspects(
            ("sg-only-master-port", "hostname-loopback", "wrong-interface", "os-firewall-drop", "peer-died"),
            hidden[:1],
            "a connection between members failed after the store had worked, and this text hides the "
            "error: torch "
            "before 2.8 prints 'no error' for each (and GLOO_DISABLE_CONNECTION_RETRIES hides it later); "
            "refused, "
            "timed out and unreachable look the same",
            ask=PROBE,
        )
    silent = book.all(Kind.PAIR_TIMEOUT) or (book.all(Kind.MESH_FAILED) if not claims else [])
    if silent and not plain and not hidden:
        claims += suspects(
            ("sg-only-master-port", "hostname-loopback", "pair-blocked", "peer-died", "os-firewall-drop"),
            silent[:1],
            "a peer never connected within 5 x the time-out; Gloo does not know which, the rank with the "
            "higher "
            "address dials and prints why",
            ask=PROBE,
        )
    return claims


def _explained(ip: str) -> bool:
    return is_loopback(ip) or is_unroutable(ip) is not None or numeric_name(ip) is not None


def _broken(view: View) -> List[Claim]:
    """Pairs that worked and were lost."""
    lost = view.book.all(Kind.PEER_CLOSED, Kind.PEER_RESET)
    claims: List[Claim] = []
    if lost:
        blamed = Counter(
            fact.get("ip") for fact in lost if fact.get("ip") and not is_loopback(fact.get("ip"))
        )
        speakers: Dict[str, Set[object]] = {}
        for fact in lost:
            speakers.setdefault(fact.get("ip"), set()).add((fact.place.file, fact.rank))
        first = min(lost, key=lambda fact: (fact.at is None, fact.at or 0.0, fact.order))
        top = blamed.most_common(1)
        if top and len(speakers[top[0][0]]) > 1 and first.get("ip") == top[0][0]:
            who = f"{len(speakers[top[0][0]])} ranks lost {top[0][0]} first"
            claims.append(
                Claim(id="peer-died", facts=(first,), summary=f"{who}: its process ended", tier=Tier.ENDED)
            )
        else:
            claims += suspects(
                ("peer-died", "collective-mismatch", "idle-connection-dropped"),
                (first,),
                "a peer closed or reset the connection; why is in the log of the rank that failed first",
                ask=EVERY_LOG,
            )
    for fact in view.book.all(Kind.PAIR_BROKEN)[:1]:
        claims += suspects(
            ("peer-died", "host-unreachable", "idle-connection-dropped", "proxy-sidecar"),
            (fact,),
            f"an established connection was lost: {fact.get('error')}",
            ask=PROBE,
        )
    return claims


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
            f"no data came for {length}: a rank is elsewhere in its program or stuck, or full-size "
            "packets vanish"
        )
        claims += suspects(ids, facts[:1], summary, ask=_DETAIL)
    waits = view.book.all(Kind.STORE_WAIT)
    if waits and not view.book.has(Kind.STORE_KEY):
        summary = "a key of the store was not set in time; which one is not in the text"
        claims += suspects(
            ("peer-missing", "peer-not-in-collective", "peer-late"), waits[:1], summary, ask=EVERY_LOG
        )
    return claims
