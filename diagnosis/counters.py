"""The kernel's and the network card's counters of one node: how much they grew while a stage ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional


@dataclass(frozen=True)
class Counters:
    """None = this host does not tell. All but the levels are growth.

    listen_overflows: connections that found an accept queue full (TcpExtListenOverflows).
    tracking_drops: packets that connection tracking itself dropped, for its table was full.
    tracked, tracked_most: level; entries of the connection tracking table, and how many it may have.
    allowances: *_allowance_exceeded of the member's interface: packets that EC2 held back or dropped.
    """

    listen_overflows: Optional[int] = None
    tracking_drops: Optional[int] = None
    tracked: Optional[int] = None
    tracked_most: Optional[int] = None
    allowances: Dict[str, int] = field(default_factory=dict)
