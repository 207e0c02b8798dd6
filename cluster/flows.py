"""Who can open a connection to whom, to the port, and what decides it.

A Gloo mesh needs every ordered pair of members on every needed port, from any source
port of the ephemeral range: a destination port that fails for some of these source ports
is blocked. Members that no rule tells apart are one class, and what one class may send
to another is worked out once, so a thousand nodes cost no more than their rules.

The packet's way, in order: the sender's groups (out), its subnet's ACL (out), the route,
the receiver's ACL (in), its groups (in), then for the stateless ACLs the reply's way back.
ACLs are met only when the packet leaves its subnet.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import (
    Any,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from cluster.flow_table import PASSING, Flow, FlowTable
from cluster.lookup import Gap, Lookup, parse_address
from cluster.masks import set_bits
from cluster.passing import Passing
from cluster.path import PathRules
from cluster.ports import PortRange, PortSet
from cluster.rules import Address, Network
from cluster.snapshot import ClusterSnapshot
from cluster.stages import PASSES, Obstacle, Place, Reason, Stage, all_gaps

__all__ = ["BlockedRun", "Flow", "Gap", "Obstacle", "Place", "Reachability", "Reason", "reachability"]


@dataclass(frozen=True)
class BlockedRun:
    """A contiguous run of needed ports that one member cannot reach on another."""

    source: str
    destination: str
    ports: PortRange
    obstacles: Tuple[Obstacle, ...]
    detail: str

    @property
    def reason(self) -> str:
        """EC2's codes for what stops it, in the packet's order, and the first one's explanation."""
        codes = ", ".join(dict.fromkeys(item.code.value for item in self.obstacles))
        return f"{codes}: {self.detail}"


@dataclass(frozen=True)
class Reachability:
    """The answer for every ordered pair of members.

    classes: members that no rule tells apart. places: how rules see each class (its first
    member's address stands for all), or what is missing to see it. flows: by (class, class).
    """

    members: Tuple[str, ...]
    need: PortSet
    classes: Tuple[Tuple[str, ...], ...]
    class_of: Mapping[str, int]
    places: Tuple[Union[Place, Gap], ...]
    flows: FlowTable

    def between(self, source: str, destination: str) -> Flow:
        """The flow from one member to another one.

        Raises:
            KeyError: one of them is not a member, or they are the same.
        """
        if source == destination:
            raise KeyError(f"{source} to itself is not a pair")
        return self.flows[self.class_of[source], self.class_of[destination]]

    def pairs(self) -> Iterator[Tuple[str, str, Flow]]:
        """Every ordered pair, in the order of the members: O(N x N)."""
        for source in self.members:
            for destination in self.members:
                if source != destination:
                    yield source, destination, self.between(source, destination)

    @property
    def holds(self) -> Optional[bool]:
        """Whether the mesh can form: False when a pair certainly cannot, None when untold.

        Fewer than two members make no mesh to tell about: None.
        """
        return self.flows.holds

    @property
    def gaps(self) -> Tuple[Gap, ...]:
        """Everything that was not read and is needed, once."""
        return tuple(dict.fromkeys(gap for _, flow in self.flows.not_passing() for gap in flow.gaps))

    def blocked_runs(self) -> Iterator[BlockedRun]:
        """One entry for each ordered pair and contiguous run of blocked needed ports."""
        for source, destination, flow in self.pairs():
            for run in flow.blocked:
                single = PortSet((run,))
                obstacles = tuple(item for item in flow.obstacles if item.ports.intersection(single))
                yield BlockedRun(
                    source=source,
                    destination=destination,
                    ports=run,
                    obstacles=obstacles,
                    detail=self.explain(obstacles[0], self.class_of[source], self.class_of[destination]),
                )

    def explain(self, obstacle: Obstacle, source: int, target: int) -> str:
        """What an obstacle stops between two classes, in words."""
        own, far = self.places[source], self.places[target]
        if isinstance(own, Gap) or isinstance(far, Gap):
            raise TypeError("a class without a place has no obstacles")
        return obstacle.explain(own, far)


def reachability(
    snapshot: Union[ClusterSnapshot, Lookup],
    members: Sequence[str],
    need: PortSet,
    source_ports: PortSet,
) -> Reachability:
    """Judge every ordered pair of members (instance ids) on the needed TCP ports.

    A member's address is that of its interface with device index 0.
    """
    lookup = snapshot if isinstance(snapshot, Lookup) else Lookup(snapshot)
    unique = tuple(dict.fromkeys(members))
    places = _places(lookup, unique)
    class_of: Dict[str, int] = {}
    classes: List[List[str]] = []
    first: List[Union[Place, Gap]] = []
    numbers: Dict[Any, int] = {}
    for member in unique:
        place = places[member]
        key = place.key if isinstance(place, Place) else place
        number = numbers.setdefault(key, len(numbers))
        if number == len(classes):
            classes.append([])
            first.append(place)
        classes[number].append(member)
        class_of[member] = number
    rules = PathRules(lookup, need, source_ports, groups_of(first))
    return Reachability(
        members=unique,
        need=need,
        classes=tuple(tuple(group) for group in classes),
        class_of=class_of,
        places=tuple(first),
        flows=_flows(rules, need, first, [len(members) for members in classes]),
    )


def groups_of(places: Iterable[Union[Place, Gap]]) -> FrozenSet[str]:
    """Every group that one of the places carries."""
    return frozenset(group for place in places if isinstance(place, Place) for group in place.groups or ())


def _flows(
    rules: PathRules, need: PortSet, places: Sequence[Union[Place, Gap]], sizes: Sequence[int]
) -> FlowTable:
    judge = _FlowJudge(rules, need, places)
    everybody = (1 << len(places)) - 1
    rows: List[List[Optional[Flow]]] = []
    for source, (passing, by_groups) in enumerate(Passing(rules, places).rows()):
        row: List[Optional[Flow]] = [PASSING] * len(places)
        for target in set_bits(everybody & ~passing):
            row[target] = judge.flow(source, target, bool(by_groups >> target & 1))
        if sizes[source] == 1:
            row[source] = None
        rows.append(row)
    return FlowTable(rows)


class _FlowJudge:
    """Joins stages into flows; equal rows of stages give the same flow."""

    def __init__(self, rules: PathRules, need: PortSet, places: Sequence[Union[Place, Gap]]) -> None:
        self._rules = rules
        self._need = need
        self._places = places
        nets: Dict[Any, int] = {}
        self._nets = [
            -1 if isinstance(place, Gap) else nets.setdefault((*place.net, place.signature), len(nets))
            for place in places
        ]
        self._between: Dict[Tuple[int, int], Tuple[Tuple[Stage, ...], Tuple[Stage, ...]]] = {}
        self._by_net: Dict[Tuple[int, int], Flow] = {}
        self._memo: Dict[Tuple[int, ...], Flow] = {}

    def flow(self, source: int, target: int, by_groups: bool) -> Flow:
        """From one class to another; by_groups: the groups are known to let every needed port through."""
        own, far = self._places[source], self._places[target]
        if isinstance(own, Gap) or isinstance(far, Gap):
            gaps = tuple(dict.fromkeys(item for item in (own, far) if isinstance(item, Gap)))
            return Flow(unknown=self._need, gaps=gaps)
        nets = (self._nets[source], self._nets[target])
        if by_groups and nets in self._by_net:
            return self._by_net[nets]
        between = self._between.get(nets)
        if between is None:
            between = self._between[nets] = self._rules.net_stages(own, far)
        out, into = (PASSES, PASSES) if by_groups else self._rules.group_stages(own, far)
        found = self._joined((out, *between[0], into, *between[1]))
        if by_groups:
            self._by_net[nets] = found
        return found

    def _joined(self, stages: Tuple[Stage, ...]) -> Flow:
        if all(stage is PASSES for stage in stages):
            return PASSING
        key = tuple(map(id, stages))  # PathRules keeps its stages, so an id stays one stage's
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = _join(stages)
        return found


def _join(stages: Sequence[Stage]) -> Flow:
    blocked = _union([stage.blocked for stage in stages if stage.blocked])
    unknown = _union([stage.unknown for stage in stages if stage.unknown]).difference(blocked)
    return Flow(
        blocked=blocked,
        unknown=unknown,
        obstacles=tuple(item for stage in stages for item in stage.obstacles),
        gaps=all_gaps(stages) if unknown else (),
    )


def _union(sets: Sequence[PortSet]) -> PortSet:
    return sets[0] if len(sets) == 1 else PortSet.of(run for ports in sets for run in ports)


def _places(lookup: Lookup, members: Iterable[str]) -> Dict[str, Union[Place, Gap]]:
    """Each member as rules see it, or what is missing to see it."""
    found: Dict[str, Union[Place, Gap]] = {}
    signatures = _Signatures(_networks(lookup, members))
    for member in members:
        interface = lookup.primary(member)
        if interface is None or not interface.address:
            reason = (
                lookup.snapshot.interfaces.problem
                or "no interface with device index 0 and an address is listed"
            )
            found[member] = Gap("network-interfaces", f"the address of {member} is unknown: {reason}")
            continue
        address = parse_address(interface.address)
        found[member] = Place(
            groups=None if interface.group_ids is None else frozenset(interface.group_ids),
            subnet_id=interface.subnet_id,
            vpc_id=lookup.vpc_of(interface),
            address=address,
            signature=signatures.of(address),
        )
    return found


def _networks(lookup: Lookup, members: Iterable[str]) -> Iterator[Network]:
    """Every network that a rule, an ACL or a route in question tells addresses apart by."""
    groups: Set[str] = set()
    subnets: Set[Tuple[str, str]] = set()
    for member in members:
        interface = lookup.primary(member)
        if interface is not None:
            groups.update(interface.group_ids or ())
            subnets.add((interface.subnet_id, lookup.vpc_of(interface)))
    rules = lookup.group_rules(frozenset(groups))
    for rule in (*rules.ingress, *rules.egress):
        yield from rule.networks or ()
    for subnet_id, vpc_id in subnets:
        acl = lookup.acl(subnet_id, vpc_id)
        for entry in acl.entries if acl else ():
            yield entry.network
        table = lookup.route_table(subnet_id, vpc_id)
        for route in table.routes if table else ():
            yield from route.networks


class _Signatures:
    """Which of some networks hold an address, as a number; equal numbers are alike."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._spans: Dict[int, List[Tuple[int, int]]] = {4: [], 6: []}
        for network in dict.fromkeys(networks):
            span = (int(network.network_address), int(network.broadcast_address))
            self._spans[network.version].append(span)
        self._edges = {
            version: sorted({edge for low, high in spans for edge in (low, high + 1)})
            for version, spans in self._spans.items()
        }
        self._by_part: Dict[Tuple[int, int], int] = {}
        self._numbers: Dict[Tuple[int, ...], int] = {}

    def of(self, address: Address) -> int:
        """The number of the set of networks that hold the address; IP versions never share one."""
        value = int(address)
        version = address.version
        part = (version, bisect_right(self._edges[version], value))
        found = self._by_part.get(part)
        if found is None:
            spans = enumerate(self._spans[version])
            holders = (version, *(i for i, (low, high) in spans if low <= value <= high))
            found = self._by_part[part] = self._numbers.setdefault(holders, len(self._numbers))
        return found
