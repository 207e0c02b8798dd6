"""One direction of a network ACL: the first entry that matches decides, and what none names is denied."""

from __future__ import annotations

from typing import Iterable, List, Tuple

from cluster.masks import PortMasks
from cluster.ports import PortSet
from cluster.rules import Address, NetworkAclEntry


class AclRules:
    """The entries of one direction, for one protocol and a universe of destination ports."""

    def __init__(
        self, entries: Iterable[NetworkAclEntry], egress: bool, protocol: str, universe: PortSet
    ) -> None:
        own = [entry for entry in entries if entry.egress is egress and entry.ports(protocol)]
        own.sort(key=lambda entry: entry.number)
        self.masks = PortMasks(universe, (run for entry in own for run in entry.ports(protocol)))
        self._entries: List[Tuple[int, int, int, int, NetworkAclEntry]] = [
            (
                entry.network.version,
                int(entry.network.network_address),
                int(entry.network.broadcast_address),
                self.masks.of(entry.ports(protocol)),
                entry,
            )
            for entry in own
        ]

    def denied(self, address: Address) -> Tuple[int, Tuple[NetworkAclEntry, ...]]:
        """The mask of the ports that do not pass, and the entries that deny some of them.

        address: the far end: where an outgoing packet goes, where an incoming one is from.
        """
        value, version = int(address), address.version
        left, denied = self.masks.everything, 0
        entries: List[NetworkAclEntry] = []
        for family, first, last, mask, entry in self._entries:
            decided = mask & left
            if not decided or not first <= value <= last or family != version:
                continue
            left ^= decided
            if not entry.allow:
                denied |= decided
                entries.append(entry)
            if not left:
                break
        return denied | left, tuple(entries)

    def allowed(self, address: Address) -> PortSet:
        """The ports of the universe that pass."""
        denied, _ = self.denied(address)
        return self.masks.ports(self.masks.everything & ~denied)
