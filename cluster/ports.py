"""TCP port ranges and sets of them, with exact arithmetic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Iterator, Tuple


@dataclass(frozen=True)
class PortRange:
    """The ports `first` to `last`, both included; 0 <= first <= last <= 65535."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last <= 65535:
            raise ValueError(f"port range {self.first}-{self.last} is not within 0-65535 in order")

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and self.first <= port <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Read "29500" or "32768-60999".

        Raises:
            ValueError: `text` is not one or two numbers in range.
        """
        found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a port range such as 50000-50999")
        return cls(int(found[1]), int(found[2] or found[1]))


ALL_PORTS = PortRange(0, 65535)

DEFAULT_EPHEMERAL_PORTS = PortRange(32768, 60999)
"""net.ipv4.ip_local_port_range where nothing is configured (net/ipv4/af_inet.c): Gloo's listeners."""


@dataclass(frozen=True)
class PortSet:
    """A set of ports, held as sorted ranges that neither touch nor overlap."""

    ranges: Tuple[PortRange, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[PortRange]) -> PortSet:
        """The union of any ranges, in any order."""
        merged: list[PortRange] = []
        for item in sorted(ranges, key=lambda r: (r.first, r.last)):
            if merged and item.first <= merged[-1].last + 1:
                merged[-1] = PortRange(merged[-1].first, max(merged[-1].last, item.last))
            else:
                merged.append(item)
        return cls(tuple(merged))

    def union(self, other: PortSet) -> PortSet:
        return PortSet.of((*self.ranges, *other.ranges))

    def intersection(self, other: PortSet) -> PortSet:
        found = []
        for a in self.ranges:
            for b in other.ranges:
                if a.first <= b.last and b.first <= a.last:
                    found.append(PortRange(max(a.first, b.first), min(a.last, b.last)))
        return PortSet.of(found)

    def difference(self, other: PortSet) -> PortSet:
        left = list(self.ranges)
        for cut in other.ranges:
            kept = []
            for item in left:
                if cut.last < item.first or item.last < cut.first:
                    kept.append(item)
                    continue
                if item.first < cut.first:
                    kept.append(PortRange(item.first, cut.first - 1))
                if cut.last < item.last:
                    kept.append(PortRange(cut.last + 1, item.last))
            left = kept
        return PortSet.of(left)

    def __contains__(self, port: object) -> bool:
        return any(port in item for item in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[PortRange]:
        return iter(self.ranges)

    def __str__(self) -> str:
        return ",".join(str(item) for item in self.ranges) or "none"
