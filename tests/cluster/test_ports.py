"""Port ranges and sets of them, against plain Python sets."""

from __future__ import annotations

from itertools import pairwise
from typing import Iterable, List, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.ports import PortRange, PortSet

# Few distinct ports, so that ranges touch, overlap and meet the ends often.
EDGE_PORTS = [0, 1, 2, 3, 5, 8, 9, 10, 20, 65533, 65534, 65535]
# Between two edges nothing changes, so these stand for all 65,536 ports.
PROBED = sorted({port + by for port in EDGE_PORTS for by in (-1, 0, 1)} & set(range(65536)))
EDGES = st.sampled_from(EDGE_PORTS)
RANGES = st.lists(st.tuples(EDGES, EDGES).map(lambda ends: PortRange(min(ends), max(ends))), max_size=6)


def ports_of(ranges: Iterable[PortRange]) -> Set[int]:
    """The probed ports that lie in any of the ranges."""
    held = list(ranges)
    return {port for port in PROBED if any(item.first <= port <= item.last for item in held)}


@given(RANGES)
def test_union_of_ranges_holds_exactly_their_ports(ranges: List[PortRange]) -> None:
    """`of` keeps every port, in sorted ranges that neither touch nor overlap."""
    found = PortSet.of(ranges)
    assert ports_of(found) == ports_of(ranges)
    assert all(a.last + 1 < b.first for a, b in pairwise(found.ranges))


@given(RANGES, RANGES)
def test_set_operations_agree_with_sets_of_ports(left: List[PortRange], right: List[PortRange]) -> None:
    """union, intersection and difference give what sets of single ports give, in normal form."""
    a, b = PortSet.of(left), PortSet.of(right)
    for found, expected in (
        (a.union(b), ports_of(left) | ports_of(right)),
        (a.intersection(b), ports_of(left) & ports_of(right)),
        (a.difference(b), ports_of(left) - ports_of(right)),
    ):
        assert ports_of(found) == expected
        assert found == PortSet.of(found.ranges)
        assert bool(found) is bool(expected)


@given(RANGES, EDGES)
def test_membership_agrees_with_sets_of_ports(ranges: List[PortRange], port: int) -> None:
    """`in` answers for every single port."""
    assert (port in PortSet.of(ranges)) is (port in ports_of(ranges))


@pytest.mark.parametrize(
    ("text", "expected"), [("29500", PortRange(29500, 29500)), ("0-65535", PortRange(0, 65535))]
)
def test_ranges_are_read_and_written(text: str, expected: PortRange) -> None:
    """Text to range and back is the same text."""
    assert PortRange.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "a", "5-4", "1-65536", "-1", "1-2-3", "5-", "\u0665", "1_0"])
def test_what_is_no_range_is_refused(text: str) -> None:
    """Anything but one or two ordered ports in range raises."""
    with pytest.raises(ValueError, match="port range"):
        PortRange.parse(text)
