"""Whether a subnet's routes lead from one member to another.

Inside one VPC the local route always exists; only a more specific route can lead elsewhere.
Between two VPCs both sides need a route. What a transit gateway, an appliance or a VPN does
with a packet stands in no document of a snapshot: then the answer is unknown, with its id.
"""

from __future__ import annotations

import ipaddress
from typing import Optional

from cluster.lookup import Gap, Lookup
from cluster.ports import PortSet
from cluster.rules import Address, Route, best_route, contains
from cluster.snapshot import RouteTable
from cluster.stages import PASSES, Explanation, Obstacle, Place, Reason, Stage, stops

TO_INTERNET = ("igw", "eigw", "nat")
PRIVATE = tuple(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
SHARED = ipaddress.ip_network("100.64.0.0/10")


class Routing:
    """Judges routes of one snapshot; need: the ports that a missing route stops."""

    def __init__(self, lookup: Lookup, need: PortSet) -> None:
        self._lookup = lookup
        self._need = need

    def stays_inside(self, own: Place, far: Place) -> bool:
        """Whether no route leads a packet to this address out of the own VPC: the local one delivers it."""
        table = self._lookup.route_table(own.subnet_id, own.vpc_id)
        best = best_route(table.routes, far.address) if table else None
        return best is None or best.local

    def stage(self, own: Place, far: Place, reason: Reason) -> Stage:
        """What becomes of a packet from one place to the other by the first one's route table."""
        if not own.vpc_id or not far.vpc_id:
            return self._unknown(Gap("subnets", "the VPC of a member is unknown"))
        inside = own.vpc_id == far.vpc_id
        table = self._lookup.route_table(own.subnet_id, own.vpc_id)
        if table is None:
            return PASSES if inside else self._unknown(self._lookup.route_gap(own.subnet_id))
        if inside and self.stays_inside(own, far):
            return PASSES
        best = best_route(table.routes, far.address)
        unread = [route.prefix_list for route in table.routes if route.unread]
        if unread:
            return self._unknown(
                *(
                    Gap("route-prefix-lists", f"where {table.id} leads {name} was not read", resource=name)
                    for name in unread
                )
            )
        return self._led(own, far, reason, table, best)

    def _led(self, own: Place, far: Place, reason: Reason, table: RouteTable, best: Optional[Route]) -> Stage:
        """What becomes of a packet that no local route delivers."""
        if best is None:
            detail, code = f"no route to {far.vpc_id}", Explanation.NO_ROUTE_TO_DESTINATION
            return self._stopped(table, reason, detail, code)
        if best.local:
            detail = f"{best} keeps it inside {own.vpc_id}, whose range overlaps that of {far.vpc_id}"
            return self._stopped(table, reason, detail, Explanation.NO_POSSIBLE_DESTINATION)
        if not best.active:
            return self._stopped(table, reason, str(best), Explanation.BAD_STATE_ROUTE)
        kind = best.target.partition("-")[0]
        if kind in TO_INTERNET and not (kind == "nat" and self._private_way_back(own, far)):
            return self._stopped(table, reason, f"{best} leads to the internet", _refusal(far.address))
        if kind == "pcx":
            return self._peered(far, best)
        detail = f"{best} in {table.id}: what {best.target} forwards was not read"
        return self._unknown(Gap(f"{kind}-routes", detail, resource=best.target))

    def _private_way_back(self, own: Place, far: Place) -> bool:
        """Whether the far side answers through a private gateway, as it would a private NAT gateway."""
        table = self._lookup.route_table(far.subnet_id, far.vpc_id)
        best = best_route(table.routes, own.address) if table else None
        return best is not None and best.target.partition("-")[0] not in (*TO_INTERNET, "local")

    def _peered(self, far: Place, best: Route) -> Stage:
        back = self._lookup.route_table(far.subnet_id, far.vpc_id)
        if back is None:
            return self._unknown(self._lookup.route_gap(far.subnet_id))
        # A peering connection joins exactly two VPCs: one that both sides route to joins these.
        if any(route.target == best.target for route in back.routes):
            return PASSES
        detail = f"whether {best.target} leads to {far.vpc_id} was not read"
        return self._unknown(Gap("vpc-peering-connections", detail, resource=best.target))

    def _unknown(self, *gaps: Gap) -> Stage:
        return Stage(unknown=self._need, gaps=gaps)

    def _stopped(self, table: RouteTable, reason: Reason, detail: str, code: Explanation) -> Stage:
        return stops(Obstacle(reason, (table.id,), self._need, code, lambda _, __: f"{table.id}: {detail}"))


def _refusal(address: Address) -> Explanation:
    """Why an internet gateway does not carry a packet to a member of another VPC."""
    if any(contains(network, address) for network in PRIVATE):
        return Explanation.IGW_PRIVATE_DESTINATION
    if contains(SHARED, address):
        return Explanation.IGW_SHARED_DESTINATION
    return Explanation.NO_POSSIBLE_DESTINATION
