"""By which interfaces packets to each peer leave this node."""

from __future__ import annotations

from typing import Dict, Iterable, Optional

from diagnosis.report import Route
from probe.netlink import NextHop, next_hop, unanswered


def read_routes(own: str, peers: Iterable[str]) -> Dict[str, Route]:
    """Peer's address -> its route. own: the member address, from which this node answers."""
    others = (peer for peer in peers if peer != own)
    return {peer: Route(opening=_interface(peer), answering=_interface(peer, own)) for peer in others}


def link_silent(peer: str) -> Optional[bool]:
    """Whether this host asked the link for the peer (or the router to it) and nobody answered."""
    try:
        hop = _hop(peer)
        return unanswered(hop) if hop.interface else None
    except (OSError, ValueError):
        return None


def _hop(peer: str, source: str = "") -> NextHop:
    """As connect() does it: the route gives the source, and the source may have a route of its own."""
    first = next_hop(peer, source)
    return next_hop(peer, first.source) if first.source and not source else first


def _interface(peer: str, source: str = "") -> Optional[str]:
    try:
        return _hop(peer, source).interface
    except (OSError, ValueError):  # not every container lets its processes ask
        return None
