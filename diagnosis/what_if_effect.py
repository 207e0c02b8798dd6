"""What a change does: the difference between two judgements of the same members.

Members that no rule tells apart before nor after are one part, so that a thousand members cost no
more than their rules.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterator, List, Sequence, Tuple

from cluster.document_groups import rule_key
from cluster.exposure import Exposed
from cluster.flows import Flow, Place
from cluster.lookup import Lookup
from cluster.ports import PortRange, PortSet
from cluster.rules import Peer, SecurityGroupRule, SourceKind
from cluster.snapshot import ClusterSnapshot
from diagnosis.rule_commands import rule_line
from diagnosis.static import StaticFindings
from diagnosis.static_blames import GROUP_REASONS

NAMED = 4
"""Rules named in a reason."""


@dataclass(frozen=True)
class Parted:
    """Every source to every destination but itself, on these needed ports.

    at_once: something else than a security group stops them, so that connections that stand are cut.
    """

    sources: Tuple[str, ...]
    destinations: Tuple[str, ...]
    ports: PortSet
    at_once: bool = False

    @property
    def pair_count(self) -> int:
        """Ordered pairs of members."""
        itself = len(set(self.sources).intersection(self.destinations))
        return len(self.sources) * len(self.destinations) - itself

    def documents(self) -> Iterator[Dict[str, str]]:
        """JSON of each pair's contiguous runs: O(N x N)."""
        for source in self.sources:
            for destination in self.destinations:
                if source != destination:
                    for run in self.ports:
                        yield {"source": source, "destination": destination, "ports": str(run)}


@dataclass(frozen=True)
class Effect:
    """What differs after a change. newly_exposed, no_longer_exposed: as in `StaticFindings.exposed`.

    told: whether both worlds were read as far as this needs; else more may differ.
    """

    newly_blocked: Tuple[Parted, ...] = ()
    newly_open: Tuple[Parted, ...] = ()
    newly_exposed: Tuple[Exposed, ...] = ()
    no_longer_exposed: Tuple[Exposed, ...] = ()
    told: bool = True

    @property
    def nothing(self) -> bool:
        """Whether no pair and nobody outside is touched, as far as it was told."""
        return not (self.newly_blocked or self.newly_open or self.newly_exposed or self.no_longer_exposed)


def effect(before: StaticFindings, after: StaticFindings) -> Effect:
    """Compare two judgements of the same members."""
    blocked, opened = _pairs(before, after)
    told = all(found.mesh_possible is not None and found.exposure_known for found in (before, after))
    return Effect(
        newly_blocked=blocked,
        newly_open=opened,
        newly_exposed=tuple(_only_in(after.exposed, before.exposed)),
        no_longer_exposed=tuple(_only_in(before.exposed, after.exposed)),
        told=told,
    )


def _pairs(before: StaticFindings, after: StaticFindings) -> Tuple[Tuple[Parted, ...], Tuple[Parted, ...]]:
    worlds = (before.reachability, after.reachability)
    parts: Dict[Tuple[int, ...], List[str]] = {}
    for member in worlds[0].members:
        parts.setdefault(tuple(world.class_of[member] for world in worlds), []).append(member)
    blocked: List[Parted] = []
    opened: List[Parted] = []
    for sources in parts.values():
        for targets in parts.values():
            source = sources[0]
            target = next((member for member in targets if member != source), "")
            if not target:
                continue
            was, now = (world.between(source, target) for world in worlds)
            lost = now.blocked.difference(was.blocked).difference(was.unknown)
            won = was.blocked.difference(now.blocked).difference(now.unknown)
            if lost:
                blocked.append(Parted(tuple(sources), tuple(targets), lost, _at_once(now, lost)))
            if won:
                opened.append(Parted(tuple(sources), tuple(targets), won))
    return tuple(blocked), tuple(opened)


def _at_once(flow: Flow, ports: PortSet) -> bool:
    """Whether anything but a security group stops these ports; groups let a tracked connection live on."""
    return any(item.reason not in GROUP_REASONS and item.ports.intersection(ports) for item in flow.obstacles)


def _only_in(some: Sequence[Exposed], others: Sequence[Exposed]) -> Iterator[Exposed]:
    """Who gets in by `some` and by nothing of the others, instance by instance."""
    for item in some:
        left = tuple(i for i in item.instances if not any(_covers(other, item, i) for other in others))
        if left:
            yield Exposed(
                protocol=item.protocol,
                ports=item.ports,
                source=item.source,
                instances=left,
                via=item.via,
                rules=item.rules,
            )


def _covers(wide: Exposed, narrow: Exposed, instance: str) -> bool:
    """Whether everybody who gets in at the instance by `narrow` does so by `wide`, too."""
    if instance not in wide.instances or wide.protocol not in ("-1", narrow.protocol):
        return False
    if wide.protocol == narrow.protocol and wide.ports != narrow.ports:
        if "all" in (wide.ports, narrow.ports):
            return wide.ports == "all"
        if PortSet((PortRange.parse(narrow.ports),)).difference(PortSet((PortRange.parse(wide.ports),))):
            return False
    if wide.source == narrow.source:
        return True
    if all(via.startswith("eni-") for via in narrow.via) and set(narrow.via) <= set(wide.via):
        return True
    return _holds(wide.source, narrow.source)


def _holds(wide: str, narrow: str) -> bool:
    try:
        outer, inner = ipaddress.ip_network(wide), ipaddress.ip_network(narrow)
    except ValueError:
        return False
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def why_nothing(
    rule: SecurityGroupRule, snapshot: ClusterSnapshot, without: StaticFindings, with_it: StaticFindings
) -> str:
    """Why it makes no difference to the members whether a rule is there.

    snapshot, without: the world without the rule. with_it: the judgement of the other one.
    """
    lookup = Lookup(snapshot)
    members = without.reachability.members
    interfaces = [item for member in members for item in lookup.interfaces(member)]
    if not any(rule.group_id in (item.group_ids or ()) for item in interfaces):
        return f"no member carries {rule.group_id}"
    key = rule_key(rule)
    places = [item for item in without.reachability.places if isinstance(item, Place)]
    peers = [item for item in places if rule.matches(Peer(item.address, item.groups))]
    need = rule.ports("tcp").intersection(without.reachability.need)
    same: List[SecurityGroupRule] = []
    if peers and need:
        carriers = [item for item in places if item.groups and rule.group_id in item.groups]
        groups = frozenset(group for item in carriers for group in item.groups or ())
        same = list(_allowing(lookup, groups, rule, peers, need))
        if carriers and not same:
            return "something else stops the same traffic anyway"
    for item in with_it.exposed:
        if any(rule_key(each) == key for each in item.rules):
            wide = [one for one in without.exposed if any(_covers(one, item, i) for i in item.instances)]
            same += [each for one in wide for each in one.rules if each not in same]
    if same:
        more = f" and {len(same) - NAMED} more" if len(same) > NAMED else ""
        return f"the same is allowed by {'; '.join(map(rule_line, same[:NAMED]))}{more}"
    if rule.egress:
        return "it lets members out to no member's needed port"
    return "it lets no member in on a needed port, and nobody outside is there to use it"


def _allowing(
    lookup: Lookup, groups: FrozenSet[str], rule: SecurityGroupRule, peers: Sequence[Place], need: PortSet
) -> Iterator[SecurityGroupRule]:
    """Rules that together let the same peers pass; one that does so alone is told alone."""
    rules = lookup.group_rules(groups).direction(rule.egress)
    helping: List[SecurityGroupRule] = []
    for item in rules:
        ports = item.ports("tcp").intersection(need)
        if ports and any(item.matches(Peer(peer.address, peer.groups)) for peer in peers):
            helping.append(item)
    for item in helping:
        whole = not need.difference(item.ports("tcp"))
        if whole and all(item.matches(Peer(peer.address, peer.groups)) for peer in peers):
            yield item
            return
    yield from helping


def untracked(rule: SecurityGroupRule, snapshot: ClusterSnapshot) -> bool:
    """Whether connections that the rule let in or out may not be tracked, so that its end cuts them.

    A flow that one rule lets pass from or to everybody, and whose answers a rule of the other direction
    lets pass on any port, is not tracked (EC2 user guide, "Security group connection tracking", untracked
    connections).
    """
    if rule.network is None or rule.network.prefixlen:
        return False
    lookup = Lookup(snapshot)
    for item in lookup.carriers(rule.group_id):
        answers = lookup.group_rules(frozenset(item.group_ids or ())).direction(not rule.egress)
        if any(_everything(each, rule) for each in answers):
            return True
    return False


def _everything(answer: SecurityGroupRule, rule: SecurityGroupRule) -> bool:
    network = answer.network
    if (
        network is None
        or rule.network is None
        or network.prefixlen
        or network.version != rule.network.version
    ):
        return False
    return answer.kind is SourceKind.CIDR and not PortSet((PortRange(0, 65535),)).difference(
        answer.ports("tcp" if rule.protocol == "-1" else rule.protocol)
    )
