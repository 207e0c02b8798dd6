"""Interfaces outside the cluster, found by what a rule names: a group or ranges of addresses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Dict, Iterable, Iterator, List, Tuple

from cluster.lookup import parse_address
from cluster.rules import Address, SecurityGroupRule, SourceKind
from cluster.snapshot import Interface

Found = Tuple[Interface, Address]


class Strangers:
    """Interfaces that have an address each, indexed once."""

    def __init__(self, interfaces: Iterable[Interface]) -> None:
        self._all: List[List[Found]] = []
        self._carriers: Dict[str, List[int]] = {}
        by_address: Dict[int, List[Tuple[int, int, int]]] = {4: [], 6: []}  # (value, interface, its address)
        for item in interfaces:
            number = len(self._all)
            addresses = [parse_address(text) for text in item.addresses]
            self._all.append([(item, address) for address in addresses])
            for group in dict.fromkeys(item.group_ids or ()):
                self._carriers.setdefault(group, []).append(number)
            for place, address in enumerate(addresses):
                by_address[address.version].append((int(address), number, place))
        self._sorted = {version: sorted(found) for version, found in by_address.items()}
        self._values = {version: [item[0] for item in found] for version, found in self._sorted.items()}

    def named_by(self, rule: SecurityGroupRule) -> Iterator[Found]:
        """Each interface that the rule's source names, once, with the first address that it holds."""
        if rule.kind is SourceKind.GROUP:
            for number in self._carriers.get(rule.source, ()):
                yield self._all[number][0]
            return
        places: Dict[int, int] = {}
        for network in rule.networks or ():
            values = self._values[network.version]
            first = bisect_left(values, int(network.network_address))
            last = bisect_right(values, int(network.broadcast_address))
            for _, number, place in self._sorted[network.version][first:last]:
                places[number] = min(place, places.get(number, place))
        for number, place in sorted(places.items()):
            yield self._all[number][place]
