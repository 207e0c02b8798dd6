"""Rules about what stands between members: proxies, firewalls that answer, hosts that do not, trackers."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from diagnosis.logs.claims import (
    EVERY_LOG,
    PROBE,
    PROXY_ADDRESS,
    Claim,
    View,
    errno_of,
    host_of,
    node,
    suspects,
)
from diagnosis.logs.facts import Fact
from diagnosis.logs.kinds import Kind

# How connections fail that a proxy took and did not pass on.
_CUT = (
    Kind.STORE_RESET,
    Kind.STORE_CLOSED,
    Kind.PEER_RESET,
    Kind.PEER_CLOSED,
    Kind.PAIR_BROKEN,
    Kind.PAIR_HIDDEN,
)
# A firewall that rejects answers each attempt at once; for an address without a host the kernel asks the
# link for about 3 s before each. Gloo's attempts follow each other without a pause.
_AT_ONCE_S, _ASKED_S = 0.5, 2.0
# Connection tracking forgets an idle connection after 350 s at the earliest (EC2, Nitro v6).
IDLE_S = 300.0


def between_claims(view: View) -> List[Claim]:
    """Everything about the way between two members."""
    return [*_proxies(view), *_rejected(view), *_nobody(view), *_idled(view), *_versions(view)]


def _proxies(view: View) -> List[Claim]:
    book = view.book
    cuts = book.all(*_CUT)
    own = [fact for fact in book.all(*_CUT, Kind.PAIR_ERROR) if fact.get("ip") == PROXY_ADDRESS]
    logged = book.all(Kind.PROXY_CUT)
    if own:
        summary = f"the peer has the address {PROXY_ADDRESS}: it is Istio's proxy in place of the member"
        return [Claim(id="proxy-sidecar", facts=(own[0],), summary=summary)]
    if logged and cuts:
        summary = "the proxy's log shows that it ended connections, and the members lost theirs"
        return [Claim(id="proxy-sidecar", facts=(logged[0], cuts[0]), summary=summary)]
    named = book.all(Kind.PROXY)
    return suspects(
        ("proxy-sidecar",) if named and cuts else (),
        (*named[:1], *cuts[:1]),
        "a service mesh is named in the logs, and its proxy may stand between the members",
        ask=PROBE,
    )


def _no_route(view: View) -> List[Fact]:
    return [fact for fact in view.book.all(Kind.PAIR_ERROR) if "route" in fact.get("error").lower()]


def _attempts(view: View) -> Optional[Tuple[Fact, Fact, float]]:
    """First and last of several attempts without a route at one address, and seconds for each."""
    tries: Dict[Tuple[object, ...], List[Fact]] = {}
    for fact in _no_route(view):
        if fact.at is not None and fact.get("retry"):
            tries.setdefault((fact.speaker, fact.get("ip")), []).append(fact)
    for facts in tries.values():
        first, last = min(facts, key=lambda one: one.at or 0), max(facts, key=lambda one: one.at or 0)
        if len(facts) > 2 and first.at is not None and last.at is not None:
            return first, last, (last.at - first.at) / (len(facts) - 1)
    return None


def _rejected(view: View) -> List[Claim]:
    """A host firewall that rejects: it says so, or no attempt took any time."""
    refused = [fact for fact in view.book.all(Kind.PAIR_ERROR) if "refused" in fact.get("error").lower()]
    at_store = [fact for fact in view.book.all(Kind.STORE_ERRNO) if errno_of(fact) == "113"]
    failed = [*_no_route(view), *at_store, *refused]
    said = view.book.all(Kind.PROHIBITED)
    if said and failed:
        summary = "a firewall's own words or rules show that it rejects, and connections were rejected"
        return [Claim(id="os-firewall-reject", facts=(said[0], failed[0]), summary=summary)]
    attempts = _attempts(view)
    if attempts is not None and attempts[2] < _AT_ONCE_S:
        first, last, each = attempts
        summary = (
            f"each attempt at {first.get('ip')} got 'no route to host' within {each:.1g} s: a firewall that "
            "rejects; an address without a host takes 3 s"
        )
        return [Claim(id="os-firewall-reject", facts=(first, last), summary=summary)]
    return []


def _nobody(view: View) -> List[Claim]:
    """An address at which no host answers on the link."""
    said = view.book.all(Kind.UNREACHABLE)
    failed = [
        *view.book.all(Kind.PAIR_ERROR, Kind.STORE_TIMEOUT),
        *(fact for fact in view.book.all(Kind.STORE_ERRNO) if errno_of(fact) in ("110", "113")),
    ]
    for fact in said:
        ip = fact.get("ip")
        same = [one for one in failed if not ip or ip in (one.get("ip"), host_of(one).strip())]
        if same:
            summary = (
                f"{ip or 'the host'} does not answer on the link, and this is what connections to it ran into"
            )
            return [Claim(id="host-unreachable", facts=(fact, same[0]), summary=summary)]
    attempts = _attempts(view)
    if attempts is not None and attempts[2] >= _ASKED_S:
        first, last, each = attempts
        summary = (
            f"each attempt at {first.get('ip')} took {each:.1f} s until 'no route to host': nobody answers "
            "on the link; a firewall rejects at once"
        )
        return [Claim(id="host-unreachable", facts=(first, last), summary=summary)]
    return []


def silence_s(fact: Fact) -> float:
    """Seconds without a line before a connection failed, the operation's own time-out taken away."""
    return (fact.quiet_s or 0.0) - (fact.number("ms") or 0) / 1000


def _idled(view: View) -> List[Claim]:
    """An old connection is dead after a long silence, and work goes on over new ones."""
    if view.book.has(Kind.EXIT, Kind.SIGNAL, Kind.MEMORY):
        return []
    for fact in view.book.all(Kind.PAIR_BROKEN, Kind.PEER_RESET, Kind.OPERATION_TIMEOUT):
        again = view.book.progress_after([fact])
        if silence_s(fact) >= IDLE_S and again is not None:
            summary = (
                f"a connection was dead after {silence_s(fact) / 60:.0f} min without a line, and new ones "
                "work: it was forgotten on the way"
            )
            return [
                Claim(
                    id="idle-connection-dropped",
                    facts=(fact, again),
                    subject=node(fact.rank),
                    summary=summary,
                )
            ]
    return []


def _versions(view: View) -> List[Claim]:
    """Releases of torch that differ between speakers."""
    by_value: Dict[str, Fact] = {}
    speakers: Dict[object, str] = {}
    for fact in view.book.all(Kind.VERSION):
        if fact.speaker not in speakers:
            speakers[fact.speaker] = fact.get("value")
            by_value.setdefault(fact.get("value"), fact)
    if len(by_value) < 2:
        return []
    (first, one), (second, other) = list(by_value.items())[:2]
    summary = f"members run different releases of torch, {first} and {second}"
    broken = view.book.all(Kind.RECORD, Kind.ODD_CLIENT, Kind.STORE_STRANGER, Kind.SIZE_MISMATCH)
    if broken:
        return [Claim(id="version-mismatch", facts=(one, other, broken[0]), summary=summary)]
    return suspects(("version-mismatch",), (one, other), summary, ask=EVERY_LOG)
