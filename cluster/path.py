"""One packet's way from a member to another, stage by stage.

Each stage answers for all needed ports at once: blocked, unknown, and what decides.
Answers are remembered by what they depend on (the groups, the subnet, and which
networks of the rules hold the far address), so equal members are judged once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Tuple

from cluster.lookup import Gap, Lookup
from cluster.ports import PortSet
from cluster.rules import (
    NO_PORT,
    Address,
    NetworkAclEntry,
    Peer,
    Route,
    SourceKind,
    allowed_by_acl,
    allowed_by_groups,
    best_route,
)
from cluster.snapshot import RouteTable


class Reason(str, Enum):
    """What stops a packet, in the order in which it would be met."""

    NO_EGRESS_RULE = "NO_EGRESS_RULE"
    ACL_EGRESS = "ACL_EGRESS"
    NO_ROUTE = "NO_ROUTE"
    ACL_INGRESS = "ACL_INGRESS"
    NO_INGRESS_RULE = "NO_INGRESS_RULE"
    ACL_REPLY_EGRESS = "ACL_REPLY_EGRESS"
    NO_RETURN_ROUTE = "NO_RETURN_ROUTE"
    ACL_REPLY_INGRESS = "ACL_REPLY_INGRESS"


SG_MISMATCH = "ENI_SG_RULES_MISMATCH"
ACL_RESTRICTION = "SUBNET_ACL_RESTRICTION"
NO_ROUTE_TO_DESTINATION = "NO_ROUTE_TO_DESTINATION"
BAD_STATE_ROUTE = "BAD_STATE_ROUTE"
CANNOT_ROUTE = "CANNOT_ROUTE"
# Explanation codes of EC2's own Reachability Analyzer.


@dataclass(frozen=True)
class Obstacle:
    """Something that certainly stops some needed ports.

    resources: the groups, ACL or route table that decide. ports: the needed destination
    ports it stops. acl_entries: the ACL's entries that deny. code: EC2's explanation code.
    """

    reason: Reason
    resources: Tuple[str, ...]
    ports: PortSet
    detail: str
    code: str
    acl_entries: Tuple[NetworkAclEntry, ...] = ()


@dataclass(frozen=True)
class Stage:
    blocked: PortSet = NO_PORT
    unknown: PortSet = NO_PORT
    obstacles: Tuple[Obstacle, ...] = ()
    gaps: Tuple[Gap, ...] = ()


PASSES = Stage()


@dataclass(frozen=True)
class Place:
    """A member as rules see it.

    groups: those of its interface; None = not listed. signature: stands for the set of networks
    in all rules in question that hold its address; two places with equal fields but another address
    are treated alike everywhere.
    """

    groups: Optional[FrozenSet[str]]
    subnet_id: str
    vpc_id: str
    address: Address
    signature: int

    @property
    def seen_as(self) -> Tuple[Any, int]:
        """What a security group's rule can tell of it."""
        return (self.groups, self.signature)

    @property
    def key(self) -> Tuple[Any, ...]:
        return (self.groups, self.subnet_id, self.vpc_id, self.signature)


class PathRules:
    """The stages of every way between places of one snapshot, remembered.

    need: destination ports to judge. source_ports: ports a connection may come from.
    """

    def __init__(self, lookup: Lookup, need: PortSet, source_ports: PortSet, protocol: str = "tcp") -> None:
        self._lookup = lookup
        self._need = need
        self._source_ports = source_ports
        self._protocol = protocol
        self._memo: Dict[Tuple[Any, ...], Stage] = {}

    def stages(self, source: Place, target: Place) -> Tuple[Stage, ...]:
        """All stages in the packet's order; the same objects for ways that are alike."""
        out, into = self.group_stages(source, target)
        if source.subnet_id and source.subnet_id == target.subnet_id:
            return (out, into)
        return (
            out,
            self._acl(source, target, Reason.ACL_EGRESS),
            self._route(source, target, Reason.NO_ROUTE),
            self._acl(target, source, Reason.ACL_INGRESS),
            into,
            self._acl(target, source, Reason.ACL_REPLY_EGRESS),
            self._route(target, source, Reason.NO_RETURN_ROUTE),
            self._acl(source, target, Reason.ACL_REPLY_INGRESS),
        )

    def group_stages(self, source: Place, target: Place) -> Tuple[Stage, Stage]:
        """What the security groups alone say: the sender's on the way out, the receiver's in."""
        return self._groups(source, target, egress=True), self._groups(target, source, egress=False)

    def _once(self, key: Tuple[Any, ...], work: Callable[[], Stage]) -> Stage:
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = work()
        return found

    def _groups(self, own: Place, far: Place, egress: bool) -> Stage:
        key = ("groups", own.groups, egress, far.seen_as)
        return self._once(key, lambda: self._judge_groups(own, far, egress))

    def _judge_groups(self, own: Place, far: Place, egress: bool) -> Stage:
        groups = self._lookup.group_rules(own.groups)
        rules = groups.direction(egress)
        peer = Peer(address=far.address, groups=far.groups)
        answer = allowed_by_groups(rules, self._protocol, peer)
        missing = self._need.difference(answer.sure)
        if not missing:
            return PASSES
        unknown = missing if groups.gaps else missing.intersection(answer.maybe)
        gaps = list(groups.gaps)
        if unknown:
            gaps += [
                _source_gap(rule.kind, rule.source)
                for rule in rules
                if rule.matches(peer) is None and rule.ports(self._protocol).intersection(unknown)
            ]
        blocked = missing.difference(unknown)
        names = tuple(sorted(own.groups or ()))
        passing = self._need.intersection(answer.sure)
        detail = (
            f"no rule of {' or '.join(names) or 'any group'} lets {self._protocol} {blocked} "
            f"{'out to' if egress else 'in from'} {_carrying(far.groups)}"
            + (f" (only {passing} of what is needed)" if passing else "")
        )
        reason = Reason.NO_EGRESS_RULE if egress else Reason.NO_INGRESS_RULE
        return _stage(blocked, unknown, Obstacle(reason, names, blocked, detail, SG_MISMATCH), gaps)

    def _acl(self, own: Place, far: Place, reason: Reason) -> Stage:
        key = (reason, own.subnet_id, far.signature)
        return self._once(key, lambda: self._judge_acl(own.subnet_id, far, reason))

    def _judge_acl(self, subnet_id: str, far: Place, reason: Reason) -> Stage:
        acl = self._lookup.acl(subnet_id)
        if acl is None:
            return Stage(unknown=self._need, gaps=(self._lookup.acl_gap(subnet_id),))
        egress = reason in (Reason.ACL_EGRESS, Reason.ACL_REPLY_EGRESS)
        reply = reason in (Reason.ACL_REPLY_EGRESS, Reason.ACL_REPLY_INGRESS)
        wanted = self._source_ports if reply else self._need
        answer = allowed_by_acl(acl.entries, egress, self._protocol, far.address)
        denied = wanted.difference(answer.allowed)
        if not denied:
            return PASSES
        # A reply goes to the port the connection came from, whatever port it was for.
        blocked = self._need if reply else denied
        entries = tuple(answer.deciders(denied))
        said = "; ".join(str(entry) for entry in entries) or "no entry allows it"
        what = "replies to ports" if reply else self._protocol
        detail = f"{acl.id} of {subnet_id} drops {what} {denied} {'out' if egress else 'in'}: {said}"
        obstacle = Obstacle(reason, (acl.id,), blocked, detail, ACL_RESTRICTION, entries)
        return _stage(blocked, NO_PORT, obstacle, ())

    def _route(self, own: Place, far: Place, reason: Reason) -> Stage:
        key = (reason, own.subnet_id, own.vpc_id, own.signature, far.subnet_id, far.vpc_id, far.signature)
        return self._once(key, lambda: self._judge_route(own, far, reason))

    def _judge_route(self, own: Place, far: Place, reason: Reason) -> Stage:
        if not own.vpc_id or not far.vpc_id:
            return Stage(unknown=self._need, gaps=(Gap("subnets", "the VPC of a member is unknown"),))
        inside = own.vpc_id == far.vpc_id
        table = self._lookup.route_table(own.subnet_id, own.vpc_id)
        if table is None:
            # Inside one VPC the local route always exists.
            return (
                PASSES if inside else Stage(unknown=self._need, gaps=(self._lookup.route_gap(own.subnet_id),))
            )
        best = best_route(table.routes, far.address)
        if best is None or best.local:
            return PASSES if inside else self._unrouted(own, far, reason, table, best)
        if not best.active:
            return self._no_route(table.id, reason, str(best), BAD_STATE_ROUTE)
        return self._led(far, reason, table.id, best)

    def _unrouted(
        self, own: Place, far: Place, reason: Reason, table: RouteTable, best: Optional[Route]
    ) -> Stage:
        """No route of its own leads to the other VPC: a prefix list may, the local route does not."""
        if best is not None:
            detail = f"{best} keeps it inside {own.vpc_id}, whose range overlaps that of {far.vpc_id}"
            return self._no_route(table.id, reason, detail, CANNOT_ROUTE)
        lists = [r.prefix_list for r in table.routes if r.prefix_list and not r.target.startswith("vpce-")]
        if lists:
            gaps = tuple(_source_gap(SourceKind.PREFIX_LIST, name) for name in lists)
            return Stage(unknown=self._need, gaps=gaps)
        return self._no_route(table.id, reason, f"no route to {far.vpc_id}", NO_ROUTE_TO_DESTINATION)

    def _led(self, far: Place, reason: Reason, table_id: str, best: Route) -> Stage:
        """What becomes of a packet that an active route leads out of the VPC or to an appliance."""
        kind = best.target.partition("-")[0]
        if kind in ("igw", "nat", "eigw"):
            return self._no_route(table_id, reason, f"{best} leads to the internet", CANNOT_ROUTE)
        if kind == "pcx":
            back = self._lookup.route_table(far.subnet_id, far.vpc_id)
            if back is None:
                return Stage(unknown=self._need, gaps=(self._lookup.route_gap(far.subnet_id),))
            # A peering connection joins exactly two VPCs: one that both sides route to joins these.
            if any(route.target == best.target for route in back.routes):
                return PASSES
            gap = Gap("vpc-peering-connections", f"whether {best.target} leads to {far.vpc_id} was not read")
            return Stage(unknown=self._need, gaps=(gap,))
        gap = Gap(f"{kind}-routes", f"{best} in {table_id}: what {best.target} forwards was not read")
        return Stage(unknown=self._need, gaps=(gap,))

    def _no_route(self, table_id: str, reason: Reason, detail: str, code: str) -> Stage:
        obstacle = Obstacle(reason, (table_id,), self._need, f"{table_id}: {detail}", code)
        return _stage(self._need, NO_PORT, obstacle, ())


def _stage(blocked: PortSet, unknown: PortSet, obstacle: Obstacle, gaps: Iterable[Gap]) -> Stage:
    return Stage(
        blocked=blocked,
        unknown=unknown,
        obstacles=(obstacle,) if blocked else (),
        gaps=tuple(dict.fromkeys(gaps)) if unknown else (),
    )


def _source_gap(kind: SourceKind, source: str) -> Gap:
    if kind is SourceKind.PREFIX_LIST:
        return Gap("prefix-lists", f"the entries of {source} were not read")
    return Gap("network-interfaces", f"whether the peer carries {source} is unknown")


def _carrying(groups: Optional[FrozenSet[str]]) -> str:
    if groups is None:
        return "a peer whose groups are unknown"
    return f"members that carry {', '.join(sorted(groups))}" if groups else "members that carry no group"


def all_gaps(stages: Iterable[Stage]) -> Tuple[Gap, ...]:
    """Every gap once, in order."""
    found: List[Gap] = [gap for stage in stages for gap in stage.gaps]
    return tuple(dict.fromkeys(found))
