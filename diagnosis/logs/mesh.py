"""Rules about a mesh that does not come up, where the published address itself is not the reason."""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from diagnosis.logs.claims import (
    PROBE,
    Claim,
    View,
    is_loopback,
    is_tunnel,
    is_unroutable,
    listed_ranks,
    numeric_name,
    real_port,
    setting,
    suspects,
)
from diagnosis.logs.facts import Fact
from diagnosis.logs.kinds import Kind

# (in the error, candidates in order, what the error means; {where} is the peer)
_ERRORS: Tuple[Tuple[str, Tuple[str, ...], str], ...] = (
    (
        "refused",
        ("peer-died", "os-firewall-reject", "stale-store", "wrong-interface"),
        "{where} refused the connection {place}; a security group never refuses",
    ),
    (
        "timed out",
        ("sg-only-master-port", "os-firewall-drop", "nacl-deny", "wrong-interface", "one-way-block"),
        "{where} did not answer, though the store worked: packets are dropped, or the address is wrong",
    ),
    (
        "route",
        ("os-firewall-reject", "host-unreachable", "wrong-interface"),
        "no route to {where}: a firewall that rejects answers at once, an address without a host after 3 s",
    ),
    (
        "unreachable",
        ("wrong-interface", "route-missing", "ipv4-ipv6-mismatch"),
        "this host has no route to {where}, which the peer published",
    ),
    (
        "assign",
        ("port-exhaustion", "hostname-stale-ip"),
        "no local address or port for a connection to {where}",
    ),
    ("", ("peer-died", "proxy-sidecar", "os-firewall-reject"), "the connection to {where} failed: {error}"),
)


def mesh_claims(view: View) -> List[Claim]:
    """Everything about pairs that never connected."""
    refusals = _refusals(view)
    return [*refusals, *_hidden(view), *_silent(view, bool(refusals)), *_partial(view)]


def _refusals(view: View) -> List[Claim]:
    """An error and an address that may be right."""
    claims: List[Claim] = []
    inside = any(fact.get("function") == "new_group" for fact in view.book.all(Kind.FRAME))
    place = "in new_group, after init had worked" if inside else "while the mesh was built"
    seen: Set[str] = set()
    for fact in view.book.all(Kind.PAIR_ERROR):
        ip, error = fact.get("ip"), fact.get("error")
        if error.lower() in seen or explained(ip):
            continue
        seen.add(error.lower())
        text, ids, says = next(row for row in _ERRORS if row[0] in error.lower())
        if text == "refused" and inside:
            ids = ("group-mismatch", *ids)
        range_ = is_tunnel(ip)
        if range_ is not None:
            ids = tuple(dict.fromkeys(("wrong-interface", *ids)))
        where = f"{ip or 'a peer'} port {real_port(fact.get('port'))}" + (f" ({range_})" if range_ else "")
        claims += suspects(ids, (fact,), says.format(where=where, place=place, error=error), ask=PROBE)
    return claims


def explained(ip: str) -> bool:
    """Whether an address that a peer published is wrong by itself."""
    return is_loopback(ip) or is_unroutable(ip) is not None or numeric_name(ip) is not None


def _hidden(view: View) -> List[Claim]:
    return suspects(
        ("sg-only-master-port", "hostname-loopback", "wrong-interface", "os-firewall-drop", "peer-died")
        if view.book.has(Kind.PAIR_HIDDEN)
        else (),
        view.book.all(Kind.PAIR_HIDDEN)[:1],
        "a connection between members failed after the store had worked, and this text hides the error: "
        "torch before 2.8 prints 'no error' for each (and GLOO_DISABLE_CONNECTION_RETRIES hides it later); "
        "refused, timed out and unreachable look the same",
        ask=PROBE,
    )


def _silent(view: View, named: bool) -> List[Claim]:
    """Nobody connected, and nobody says who."""
    book = view.book
    facts = book.all(Kind.PAIR_TIMEOUT) or ([] if named else book.all(Kind.MESH_FAILED))
    known = any(not explained(fact.get("ip")) for fact in book.all(Kind.PAIR_ERROR))
    return suspects(
        ("sg-only-master-port", "hostname-loopback", "pair-blocked", "peer-died", "os-firewall-drop")
        if facts and not known and not book.has(Kind.PAIR_HIDDEN)
        else (),
        facts[:1],
        "a peer never connected within 5 x the time-out; Gloo does not know which, the rank with the higher "
        "address dials and prints why",
        ask=PROBE,
    )


def _partial(view: View) -> List[Claim]:
    """Gloo lists peers without a connection: normal where pairs connect on first use."""
    facts = view.book.all(Kind.NOT_CONNECTED)
    lazy = [
        fact for fact in view.book.settings("TORCH_GLOO_LAZY_INIT") if setting(fact) in ("1", "true", "True")
    ]
    if not facts or lazy or view.book.progress_after(facts):
        return []
    fact: Fact = next((one for one in facts if one.get("ranks")), facts[0])
    ranks = ", ".join(map(str, listed_ranks(fact.get("ranks"))[:16]))
    names: Dict[bool, str] = {True: f"rank {ranks}", False: "all peers"}
    return suspects(
        ("pair-blocked", "peer-died", "one-way-block"),
        (fact,),
        f"rank {fact.get('rank')} has no connection with {names[bool(ranks)]}: normal with "
        "TORCH_GLOO_LAZY_INIT=1 and only then",
        ask=PROBE,
    )
