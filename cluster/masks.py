"""Port sets as bit masks: ports that no rule tells apart are one bit, and unions are one operation."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import chain
from typing import Dict, Iterable, Iterator, List, Tuple

from cluster.ports import PortRange, PortSet

_RUN = re.compile("1+")


class PortMasks:
    """The ports of a universe, cut at the edges of some ranges; sets made of such ranges are masks."""

    def __init__(self, universe: PortSet, cuts: Iterable[PortRange]) -> None:
        edges = sorted({edge for cut in cuts for edge in (cut.first, cut.last + 1)})
        self._parts: List[PortRange] = []
        for run in universe:
            inner = edges[bisect_right(edges, run.first) : bisect_left(edges, run.last + 1)]
            starts = [run.first, *inner]
            ends = [*(edge - 1 for edge in inner), run.last]
            self._parts += [PortRange(first, last) for first, last in zip(starts, ends)]
        self._starts = [part.first for part in self._parts]
        self.everything = (1 << len(self._parts)) - 1
        self._runs: Dict[Tuple[int, int], Tuple[PortRange, ...]] = {}
        self._sets: Dict[int, PortSet] = {0: PortSet(), self.everything: universe}

    def __len__(self) -> int:
        return len(self._parts)

    def of(self, ports: PortSet) -> int:
        """The universe's part of a set that is made of the ranges it was cut at."""
        found = 0
        for run in ports:
            first, last = bisect_left(self._starts, run.first), bisect_right(self._starts, run.last)
            found |= ((1 << last) - 1) >> first << first if first < last else 0
        return found

    def ports(self, mask: int) -> PortSet:
        """The set of ports that a mask stands for."""
        found = self._sets.get(mask)
        if found is None:
            bits = format(mask, "b")[::-1]
            runs = [(run.start(), run.end() - 1) for run in _RUN.finditer(bits)]
            found = self._sets[mask] = PortSet(tuple(chain.from_iterable(map(self._run, runs))))
        return found

    def _run(self, ends: Tuple[int, int]) -> Tuple[PortRange, ...]:
        """The ranges of neighbouring parts, which touch unless the universe has a hole between them."""
        found = self._runs.get(ends)
        if found is None:
            parts = PortSet.of(self._parts[ends[0] : ends[1] + 1])
            found = self._runs[ends] = parts.ranges
        return found


def set_bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
