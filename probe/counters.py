"""Counters of the kernel and of the network card, before and after a stage.

A counter tells nothing by its value, which is of weeks; only what it grew by while this cluster
was probed counts.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Optional

from diagnosis.counters import Counters
from probe.ethtool import statistics
from probe.interfaces import interface_of, read_interfaces

_OVERFLOWS = "ListenOverflows"
# Packets that found the table full; early_drop forgets another connection instead.
_TRACKING_DROPS = "drop"
_EXCEEDED = "_allowance_exceeded"


class CounterWatch:
    """What the counters of this host grow by from now on."""

    def __init__(self, address: str) -> None:
        """address: the member's, of the interface that counts."""
        self._interface = interface_of(address, read_interfaces())
        self._before = read_counters(self._interface)

    def growth(self, earlier: Optional[Counters] = None) -> Counters:
        """Until now, with what an earlier stage's watch told."""
        return _together(earlier, _growth(self._before, read_counters(self._interface)))


def read_counters(interface: Optional[str]) -> Counters:
    """All of them as they stand.

    The allowances are ENA's, other cards have none
    (docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html).
    """
    return Counters(
        listen_overflows=_tcp_extension(_OVERFLOWS),
        tracking_drops=_tracking_drops(),
        tracked=_number("/proc/sys/net/netfilter/nf_conntrack_count"),
        tracked_most=_number("/proc/sys/net/netfilter/nf_conntrack_max"),
        allowances={name: value for name, value in _card(interface).items() if name.endswith(_EXCEEDED)},
    )


def _growth(before: Counters, after: Counters) -> Counters:
    """What they grew by; levels as they stand after."""
    return dataclasses.replace(
        after,
        listen_overflows=_less(after.listen_overflows, before.listen_overflows),
        tracking_drops=_less(after.tracking_drops, before.tracking_drops),
        allowances={
            name: value - before.allowances[name]
            for name, value in after.allowances.items()
            if name in before.allowances
        },
    )


def _together(first: Optional[Counters], second: Counters) -> Counters:
    """Growth over two stages; levels of the second, or the first's where these are higher."""
    if first is None:
        return second
    return dataclasses.replace(
        second,
        listen_overflows=_sum(first.listen_overflows, second.listen_overflows),
        tracking_drops=_sum(first.tracking_drops, second.tracking_drops),
        tracked=max((n for n in (first.tracked, second.tracked) if n is not None), default=None),
        allowances={
            name: first.allowances.get(name, 0) + second.allowances.get(name, 0)
            for name in {**first.allowances, **second.allowances}
        },
    )


def _less(after: Optional[int], before: Optional[int]) -> Optional[int]:
    return None if after is None or before is None else after - before


def _sum(first: Optional[int], second: Optional[int]) -> Optional[int]:
    return None if first is None or second is None else first + second


def _card(interface: Optional[str]) -> Dict[str, int]:
    return (statistics(interface) or {}) if interface is not None else {}


def _tcp_extension(name: str) -> Optional[int]:
    """A counter of /proc/net/netstat, whose lines come in pairs: names, then values."""
    lines = _text("/proc/net/netstat").splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        if names.startswith("TcpExt:"):
            found = dict(zip(names.split(), values.split())).get(name)
            return int(found) if found is not None else None
    return None


def _tracking_drops() -> Optional[int]:
    """Over all processors; the columns are hexadecimal."""
    head, *rows = _text("/proc/net/stat/nf_conntrack").splitlines() or [""]
    columns = head.split()
    if not rows or _TRACKING_DROPS not in columns:
        return None
    place = columns.index(_TRACKING_DROPS)
    return sum(int(row.split()[place], 16) for row in rows)


def _number(path: str) -> Optional[int]:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
