"""Which pairs of classes pass for certain, found for whole rows of pairs at a time.

Classes are the bits of an integer. A pair found here needs no further look; one that is not is
judged by itself.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple, Union

from cluster.group_masks import DirectionRules
from cluster.lookup import Gap
from cluster.masks import set_bits
from cluster.path import PathRules
from cluster.stages import PASSES, Place, Reason

Net = Tuple[str, str]  # subnet and VPC


class Passing:
    """places: how rules see each class; the bit of a class is its place in the list."""

    def __init__(self, rules: PathRules, places: Sequence[Union[Place, Gap]]) -> None:
        self._rules = rules
        self._places = places
        self._carriers: Dict[str, int] = {}
        self._nets: Dict[Net, int] = {}
        self._by_signature: Dict[Any, Tuple[Place, int]] = {}
        for number, place in enumerate(places):
            if isinstance(place, Gap):
                continue
            bit = 1 << number
            for group in place.groups or ():
                self._carriers[group] = self._carriers.get(group, 0) | bit
            net = place.net
            self._nets[net] = self._nets.get(net, 0) | bit
            first, bits = self._by_signature.get(place.signature, (place, 0))
            self._by_signature[place.signature] = (first, bits | bit)
        self._everybody = (1 << len(places)) - 1
        self._parts: Dict[int, List[int]] = {}
        self._together: Dict[Tuple[Optional[FrozenSet[str]], bool], int] = {}
        self._let_in = self._receivers()
        self._leads_out = {net: self._reached(net, outward=True) for net in self._nets}
        self._leads_in = self._reached_from()

    def rows(self) -> Iterator[Tuple[int, int]]:
        """For each class: those it reaches on every needed port, and those that groups let it reach."""
        for number, place in enumerate(self._places):
            if isinstance(place, Gap):
                yield 0, 0
                continue
            net = place.net
            by_groups = self._full(place.groups, egress=True) & self._let_in[number]
            way = self._leads_out[net] & self._leads_in[number]
            yield by_groups & (way | self._nets[net] if place.subnet_id else way), by_groups

    def _full(self, groups: Optional[FrozenSet[str]], egress: bool) -> int:
        """The classes to or from which these groups together let every needed port through."""
        key = (groups, egress)
        found = self._together.get(key)
        if found is None:
            each = [self._by_part(rules) for rules in self._rules.group_masks.that_allow(groups, egress)]
            found = self._everybody if each else 0
            for parts in zip(*each):
                open_here = 0
                for classes in parts:
                    open_here |= classes
                found &= open_here
                if not found:
                    break
            self._together[key] = found
        return found

    def _by_part(self, rules: DirectionRules) -> List[int]:
        """For each part that the rules cut the needed ports into, the classes that get through."""
        found = self._parts.get(id(rules))
        if found is None:
            through: Dict[int, int] = {}
            for name, (sure, _) in rules.references.items():
                through[sure] = through.get(sure, 0) | self._carriers.get(name, 0)
            for far, bits in self._by_signature.values() if rules.ranges else ():
                sure, _ = rules.by_address(far)
                through[sure] = through.get(sure, 0) | bits
            found = [0] * len(self._rules.group_masks.masks)
            for mask, classes in through.items():
                for part in set_bits(mask) if classes else ():
                    found[part] |= classes
            self._parts[id(rules)] = found
        return found

    def _where(self, holds: Callable[[Place], bool]) -> int:
        """The classes for whose address it holds."""
        found = 0
        for far, bits in self._by_signature.values():
            if holds(far):
                found |= bits
        return found

    def _receivers(self) -> List[int]:
        """For each class, the classes whose groups let it in on every needed port."""
        alike: Dict[int, int] = {}  # the senders let in -> the classes that let in just these
        for number, place in enumerate(self._places):
            if isinstance(place, Place):
                senders = self._full(place.groups, egress=False)
                alike[senders] = alike.get(senders, 0) | 1 << number
        found = [0] * len(self._places)
        for senders, receivers in alike.items():
            for sender in set_bits(senders):
                found[sender] |= receivers
        return found

    def _reached(self, net: Net, outward: bool) -> int:
        """The classes that a subnet's ACL and routes let through to or from it, replies included."""
        if not all(net):
            return 0
        own = next(place for place in self._places if isinstance(place, Place) and place.net == net)
        reasons = (
            (Reason.ACL_EGRESS, Reason.ACL_REPLY_INGRESS)
            if outward
            else (Reason.ACL_INGRESS, Reason.ACL_REPLY_EGRESS)
        )
        rules = self._rules
        passing = self._where(
            lambda far: (
                rules.stays_inside(own, far)
                and all(rules.acl_stage(own, far, reason) is PASSES for reason in reasons)
            )
        )
        inside = 0
        for (_, vpc_id), bits in self._nets.items():
            inside |= bits if vpc_id == net[1] else 0
        return passing & inside

    def _reached_from(self) -> List[int]:
        """For each class, the classes whose subnets let it in."""
        found = [0] * len(self._places)
        for net, bits in self._nets.items():
            for sender in set_bits(self._reached(net, outward=False)):
                found[sender] |= bits
        return found
