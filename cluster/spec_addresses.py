"""Whether the address range of a cluster's VPC is one, and holds its members."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Iterator, Optional

from cluster.clash import Clash
from cluster.settings import NetworkKind, shown

if TYPE_CHECKING:
    from cluster.spec import ClusterSpec

RESERVED_ADDRESSES_PER_SUBNET = 5
"""The first four and the last address of a subnet are EC2's."""

LEAST_SUBNET_PREFIX = 28
"""docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"""

ISOLATED_ENDPOINTS = 5
"""Interface endpoints that take an address of the members' first subnet (stacks/network.py makes them)."""

NO_HOSTS = {
    ipaddress.ip_network("0.0.0.0/8"): "this network's own",
    ipaddress.ip_network("127.0.0.0/8"): "loopback",
    ipaddress.ip_network("169.254.0.0/16"): "link-local",
    ipaddress.ip_network("224.0.0.0/3"): "multicast or reserved",
}
"""RFC 6890: the kernel of a member takes none of them for its interface."""


def network_of(spec: ClusterSpec) -> Optional[ipaddress.IPv4Network]:
    """The range; None where it is none as EC2 writes it."""
    # Python reads masks (/255.255.0.0) and a bare address, too; EC2 does not.
    if not re.fullmatch(r"[0-9.]+/[0-9]{1,2}", spec.vpc_cidr):
        return None
    try:
        return ipaddress.IPv4Network(spec.vpc_cidr)
    except ValueError:
        return None


def addresses(spec: ClusterSpec) -> Iterator[Clash]:
    """What is wrong with the range; nothing for an existing VPC, whose range is its own."""
    if spec.vpc_id:
        return
    network = network_of(spec)
    way = "set e.g. cluster.vpc_cidr=10.20.0.0/16"
    if network is None:
        why = "is not an IPv4 range such as 10.20.0.0/16 with its host bits zero"
        yield Clash(("vpc_cidr",), shown(spec.vpc_cidr), why, way)
        return
    if not 16 <= network.prefixlen <= 28:
        yield Clash(("vpc_cidr",), spec.vpc_cidr, "is not within the /16 to /28 that a VPC can have", way)
        return
    taken = next((name for block, name in NO_HOSTS.items() if network.overlaps(block)), None)
    if taken:
        yield Clash(("vpc_cidr",), spec.vpc_cidr, f"holds {taken} addresses, which no host can have", way)
        return
    # The range is split in powers of two: a subnet for members, and one for what faces out.
    parts = 2 * spec.subnets
    if network.prefixlen + parts.bit_length() - 1 > LEAST_SUBNET_PREFIX:
        why = f"cannot be split into {parts} subnets of the /{LEAST_SUBNET_PREFIX} that EC2 asks for at least"
        yield Clash(("vpc_cidr", "subnets"), spec.vpc_cidr, why, way)
        return
    endpoints = ISOLATED_ENDPOINTS if spec.network is NetworkKind.ISOLATED else 0
    room = network.num_addresses // parts - RESERVED_ADDRESSES_PER_SUBNET - endpoints
    each = -(-spec.nodes // spec.subnets)
    if room < each:
        why = f"leaves {max(room, 0)} addresses a subnet for {each} nodes"
        yield Clash(("vpc_cidr", "nodes", "subnets", "network"), spec.vpc_cidr, why, way)
