"""What settings of a cluster may not be combined, and why.

Each check is AWS's own rule or Gloo's need; nothing below the synthesis would enforce
them before money is spent, and the embedded stand-in for AWS does not know most.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Iterator, List, Optional

from cluster.settings import (
    Architecture,
    Capacity,
    NetworkKind,
    Placement,
    PortProfile,
    TorchSource,
)

if TYPE_CHECKING:
    from cluster.spec import ClusterSpec

BLOCK_MAX_NODES = 64
"""Instances in one capacity block."""

SPREAD_MAX_NODES_PER_ZONE = 7
"""Running instances a zone in a rack-level spread placement group."""

PORTS_PER_RANK = 4
"""A group of ranks used about 2 ports a rank; twice that leaves room for a second group."""

RESERVED_ADDRESSES_PER_SUBNET = 5
"""The first four and the last address of a subnet are EC2's."""

DOCKER_DEFAULT = ipaddress.ip_network("172.17.0.0/16")


def family_of(instance_type: str) -> str:
    """The letters before the generation: `t` of t3a.small, `hpc` of hpc7g.4xlarge."""
    found = re.match(r"[a-z]+", instance_type)
    return found.group() if found else ""


def default_architecture(instance_type: str) -> Architecture:
    """The CPU of an instance type: a `g` after the generation's digit is Graviton."""
    family = instance_type.partition(".")[0]
    found = re.fullmatch(r"[a-z]+\d+([a-z]*)(-.*)?", family)
    graviton = found is not None and "g" in found.group(1)
    grace = "-gb" in family
    return Architecture.ARM64 if graviton or grace or family == "a1" else Architecture.X86_64


def cross_check(spec: ClusterSpec) -> List[str]:
    """Every combination that cannot work, one line each; empty when all is well."""
    return [
        *_machine(spec),
        *_placement(spec),
        *_capacity(spec),
        *_torch(spec),
        *_addresses(spec),
        *_ports(spec),
        *_times(spec),
    ]


def notes(spec: ClusterSpec) -> Iterator[str]:
    """Allowed, but worth a line when the template is made."""
    if spec.master_port in spec.ephemeral_ports:
        yield (
            f"cluster.master_port: {spec.master_port} lies in the nodes' ephemeral range {spec.ephemeral_ports}, so the kernel "
            "may give it to another socket first; reserve it with net.ipv4.ip_local_reserved_ports or take one outside"
        )
    network = _network(spec)
    if not spec.vpc_id and network is not None and network.overlaps(DOCKER_DEFAULT):
        yield (
            f"cluster.vpc_cidr: {spec.vpc_cidr} overlaps Docker's bridge {DOCKER_DEFAULT}; a node that runs Docker then "
            "routes members' addresses to its own bridge"
        )


def _machine(spec: ClusterSpec) -> Iterator[str]:
    actual = default_architecture(spec.instance_type)
    if actual is not spec.architecture:
        yield (
            f"cluster.architecture: {spec.architecture.value} does not fit instance type {spec.instance_type}, which is "
            f"{actual.value}; set cluster.architecture={actual.value} or leave it out"
        )


def _placement(spec: ClusterSpec) -> Iterator[str]:
    if spec.placement is Placement.CLUSTER:
        if family_of(spec.instance_type) == "t":
            yield (
                f"cluster.instance_type: {spec.instance_type} is a T type, which no cluster placement group takes; choose e.g. "
                "c7i.xlarge, or set cluster.placement=none"
            )
        if spec.subnets > 1:
            yield (
                f"cluster.subnets: {spec.subnets} subnets lie in {spec.subnets} zones, but a cluster placement group has one zone; "
                "set cluster.subnets=1, or cluster.placement=spread or none"
            )
    if spec.placement is Placement.SPREAD and spec.nodes > SPREAD_MAX_NODES_PER_ZONE * spec.subnets:
        yield (
            f"cluster.nodes: {spec.nodes} nodes do not fit a spread placement group, which takes {SPREAD_MAX_NODES_PER_ZONE} a zone "
            f"({SPREAD_MAX_NODES_PER_ZONE * spec.subnets} with cluster.subnets={spec.subnets}); set cluster.placement=cluster or none"
        )


def _capacity(spec: ClusterSpec) -> Iterator[str]:
    by_id = spec.capacity in (Capacity.EXISTING, Capacity.BLOCK)
    if by_id and not spec.capacity_reservation_id:
        yield (
            f"cluster.capacity_reservation_id: '' but capacity={spec.capacity.value} needs an id cr-...; find it with "
            "aws ec2 describe-capacity-reservations --filters Name=state,Values=active"
        )
    if not by_id and spec.capacity_reservation_id:
        yield (
            f"cluster.capacity_reservation_id: {spec.capacity_reservation_id} is not used with capacity={spec.capacity.value}; "
            "set cluster.capacity=existing (or block), or leave the id out"
        )
    if spec.capacity is not Capacity.BLOCK:
        return
    if spec.placement is not Placement.NONE:
        yield (
            f"cluster.placement: {spec.placement.value} cannot be combined with a capacity block, which takes no placement "
            "group (it is close together by itself); set cluster.placement=none"
        )
    if spec.nodes > BLOCK_MAX_NODES:
        yield f"cluster.nodes: {spec.nodes} is more than the {BLOCK_MAX_NODES} of one capacity block; set cluster.nodes lower"
    if spec.subnets > 1:
        yield f"cluster.subnets: {spec.subnets}, but a capacity block lies in one zone; set cluster.subnets=1"


def _torch(spec: ClusterSpec) -> Iterator[str]:
    if spec.network is NetworkKind.ISOLATED and spec.torch_source is TorchSource.INDEX:
        yield (
            "cluster.torch_source: index cannot be reached from network=isolated; set cluster.torch_source=wheelhouse with "
            "cluster.wheelhouse_path, or image with an ami_id that holds torch"
        )
    if spec.torch_source is TorchSource.WHEELHOUSE and not spec.wheelhouse_path:
        yield (
            "cluster.wheelhouse_path: '' but torch_source=wheelhouse needs a folder of wheels; make one with "
            f"pip download torch=={spec.torch_version} --index-url {spec.torch_index_url} -d wheelhouse"
        )
    if spec.torch_source is not TorchSource.WHEELHOUSE and spec.wheelhouse_path:
        yield (
            f"cluster.wheelhouse_path: {spec.wheelhouse_path} is not used with torch_source={spec.torch_source.value}; "
            "set cluster.torch_source=wheelhouse, or leave the path out"
        )
    if spec.torch_source is TorchSource.IMAGE and not spec.ami_id:
        yield (
            "cluster.ami_id: '' but torch_source=image needs the id of an image that holds torch (the plain images do not); "
            "set cluster.ami_id=ami-..."
        )


def _network(spec: ClusterSpec) -> Optional[ipaddress.IPv4Network]:
    try:
        return ipaddress.IPv4Network(spec.vpc_cidr)
    except ValueError:
        return None


def _addresses(spec: ClusterSpec) -> Iterator[str]:
    if spec.vpc_id:
        return
    network = _network(spec)
    if network is None:
        yield f"cluster.vpc_cidr: {spec.vpc_cidr!r} is not an IPv4 range with its host bits zero; set e.g. 10.20.0.0/16"
        return
    if not 16 <= network.prefixlen <= 28:
        yield f"cluster.vpc_cidr: /{network.prefixlen} is not within the /16 to /28 that a VPC can have; set e.g. 10.20.0.0/16"
    # The range is split in powers of two: member subnets, and one for NAT and what else faces out.
    parts = 2 if spec.subnets == 1 else 4
    room = network.num_addresses // parts - RESERVED_ADDRESSES_PER_SUBNET
    each = -(-spec.nodes // spec.subnets)
    if room < each:
        yield (
            f"cluster.vpc_cidr: {spec.vpc_cidr} leaves {max(room, 0)} addresses a subnet for {each} nodes; set a larger range, "
            "e.g. 10.20.0.0/16"
        )


def _ports(spec: ClusterSpec) -> Iterator[str]:
    needed = PORTS_PER_RANK * spec.nodes
    if spec.port_profile is PortProfile.PINNED and len(spec.pinned_ports) < needed:
        yield (
            f"cluster.pinned_ports: {spec.pinned_ports} holds {len(spec.pinned_ports)} ports, fewer than {PORTS_PER_RANK} a rank "
            f"({needed} for {spec.nodes} nodes); widen it, e.g. 50000-{50000 + -(-needed // 1000) * 1000 - 1}"
        )


def _times(spec: ClusterSpec) -> Iterator[str]:
    if spec.proof_timeout_s <= spec.deadline_s:
        yield (
            f"cluster.proof_timeout_s: {spec.proof_timeout_s} s is not longer than deadline_s={spec.deadline_s} s, so the stack "
            "would give up before the nodes have judged; raise cluster.proof_timeout_s (it also covers launching)"
        )
