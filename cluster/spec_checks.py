"""What settings of a cluster may not be combined, and why.

Each check is AWS's own rule or Gloo's need; nothing below the synthesis would enforce
them before money is spent, and the embedded stand-in for AWS does not know most.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Iterator, List

from cluster.clash import Clash
from cluster.instance_types import EFA_TYPES_COMMAND, default_architecture, family_of, is_nitro
from cluster.settings import (
    Capacity,
    NetworkKind,
    Placement,
    PortProfile,
    TorchSource,
)
from cluster.spec_addresses import addresses, network_of
from cluster.spec_times import least_proof_timeout_s

if TYPE_CHECKING:
    from cluster.spec import ClusterSpec

BLOCK_MAX_NODES = 64
"""Instances in one capacity block."""

SPREAD_MAX_NODES_PER_ZONE = 7
"""Running instances a zone in a rack-level spread placement group."""

PORTS_PER_RANK = 4
"""A group of ranks used about 2 ports a rank; twice that leaves room for a second group."""

XEN_IDLE_TIMEOUT_S = 432_000
"""After how long an instance of before the Nitro System forgets an idle TCP connection; it is fixed there."""

DOCKER_DEFAULT = ipaddress.ip_network("172.17.0.0/16")


def cross_check(spec: ClusterSpec) -> List[Clash]:
    """Every combination that cannot work; empty when all is well."""
    checks = (
        _machine,
        _zones,
        _placement,
        _spread,
        _reservation,
        _one_reservation,
        _block,
        _efa,
        _idle_timeout,
        _torch_source,
        _wheelhouse,
        addresses,
        _ports,
        _times,
    )
    return [clash for check in checks for clash in check(spec)]


def notes(spec: ClusterSpec) -> Iterator[str]:
    """Allowed, but worth a line when the template is made."""
    if spec.master_port in spec.ephemeral_ports:
        yield (
            f"cluster.master_port: {spec.master_port} lies in the nodes' ephemeral range "
            f"{spec.ephemeral_ports}, so the kernel may give it to another socket first; reserve it with "
            "net.ipv4.ip_local_reserved_ports or take one outside"
        )
    if spec.port_profile is PortProfile.EFA:
        yield (
            f"cluster.instance_type: {spec.instance_type} must support EFA, which is not known before the "
            f"account is asked; the types that do: {EFA_TYPES_COMMAND}"
        )
    network = network_of(spec)
    if not spec.vpc_id and network is not None and network.overlaps(DOCKER_DEFAULT):
        yield (
            f"cluster.vpc_cidr: {spec.vpc_cidr} overlaps Docker's bridge {DOCKER_DEFAULT}; a node that "
            "runs Docker then routes members' addresses to its own bridge"
        )


def _machine(spec: ClusterSpec) -> Iterator[Clash]:
    actual = default_architecture(spec.instance_type)
    if actual is not spec.architecture:
        yield Clash(
            ("architecture", "instance_type"),
            spec.architecture.value,
            f"does not fit instance type {spec.instance_type}, which is {actual.value}",
            f"set cluster.architecture={actual.value} or leave it out",
        )


def _zones(spec: ClusterSpec) -> Iterator[Clash]:
    """Which second zone an account has is not to be guessed from the first one's name."""
    if spec.zones and (len(spec.zones) != spec.subnets or len(set(spec.zones)) != len(spec.zones)):
        yield Clash(
            ("availability_zone", "subnets"),
            spec.availability_zone,
            f"does not name a zone of its own for each of {spec.subnets} subnets",
            "name as many zones as cluster.subnets, e.g. eu-central-1a,eu-central-1b, or leave them out",
        )


def _placement(spec: ClusterSpec) -> Iterator[Clash]:
    if spec.placement is not Placement.CLUSTER:
        return
    if family_of(spec.instance_type) == "t":
        yield Clash(
            ("instance_type", "placement"),
            spec.instance_type,
            "is a T type, which no cluster placement group takes",
            "choose e.g. c7i.xlarge, or set cluster.placement=none",
        )
    if spec.subnets > 1:
        yield Clash(
            ("subnets", "placement"),
            spec.subnets,
            f"subnets lie in {spec.subnets} zones, but a cluster placement group has one zone",
            "set cluster.subnets=1, or cluster.placement=spread or none",
        )


def _spread(spec: ClusterSpec) -> Iterator[Clash]:
    room = SPREAD_MAX_NODES_PER_ZONE * spec.subnets
    if spec.placement is Placement.SPREAD and spec.nodes > room:
        yield Clash(
            ("nodes", "placement", "subnets"),
            spec.nodes,
            f"nodes do not fit a spread placement group, which takes {SPREAD_MAX_NODES_PER_ZONE} a zone "
            f"({room} with cluster.subnets={spec.subnets})",
            "set cluster.placement=cluster or none",
        )


def _reservation(spec: ClusterSpec) -> Iterator[Clash]:
    by_id = spec.capacity in (Capacity.EXISTING, Capacity.BLOCK)
    settings = ("capacity_reservation_id", "capacity")
    if by_id and not spec.capacity_reservation_id:
        yield Clash(
            settings,
            "''",
            f"but capacity={spec.capacity.value} needs an id cr-...",
            "find it with aws ec2 describe-capacity-reservations --filters Name=state,Values=active",
        )
    if not by_id and spec.capacity_reservation_id:
        yield Clash(
            settings,
            spec.capacity_reservation_id,
            f"is not used with capacity={spec.capacity.value}",
            "set cluster.capacity=existing or block, or leave the id out",
        )


def _one_reservation(spec: ClusterSpec) -> Iterator[Clash]:
    """A reservation lies in one zone, and only in a placement group of strategy cluster or in none.

    docs.aws.amazon.com/AWSEC2/latest/UserGuide/cr-cpg.html
    """
    if spec.capacity not in (Capacity.RESERVATION, Capacity.EXISTING):
        return
    if spec.placement is Placement.SPREAD:
        yield Clash(
            ("placement", "capacity"),
            spec.placement.value,
            f"cannot be combined with capacity={spec.capacity.value}: spread placement groups take no "
            "capacity reservation",
            "set cluster.placement=cluster or none, or cluster.capacity=none",
        )
    if spec.subnets > 1:
        yield Clash(
            ("subnets", "capacity"),
            spec.subnets,
            "subnets lie in as many zones, but a capacity reservation lies in one",
            "set cluster.subnets=1, or cluster.capacity=none",
        )


def _block(spec: ClusterSpec) -> Iterator[Clash]:
    if spec.capacity is not Capacity.BLOCK:
        return
    if spec.placement is not Placement.NONE:
        yield Clash(
            ("placement", "capacity"),
            spec.placement.value,
            "cannot be combined with a capacity block, which takes no placement group (it is close together)",
            "set cluster.placement=none",
        )
    if spec.nodes > BLOCK_MAX_NODES:
        yield Clash(
            ("nodes", "capacity"),
            spec.nodes,
            f"is more than the {BLOCK_MAX_NODES} instances of one capacity block",
            f"set cluster.nodes to 2-{BLOCK_MAX_NODES}",
        )
    if spec.subnets > 1:
        yield Clash(
            ("subnets", "capacity"),
            spec.subnets,
            "subnets lie in as many zones, but a capacity block lies in one",
            "set cluster.subnets=1",
        )


def _efa(spec: ClusterSpec) -> Iterator[Clash]:
    """docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"""
    if spec.port_profile is PortProfile.EFA and spec.subnets > 1:
        yield Clash(
            ("subnets", "port_profile"),
            spec.subnets,
            "subnets lie in as many zones, and the traffic of an EFA does not cross zones",
            "set cluster.subnets=1, or cluster.port_profile=all",
        )


def _idle_timeout(spec: ClusterSpec) -> Iterator[Clash]:
    """aws.amazon.com/about-aws/whats-new/2023/11/ec2-security-connection-tracking-idle-timeouts"""
    if spec.conntrack_idle_timeout_s != XEN_IDLE_TIMEOUT_S and not is_nitro(spec.instance_type):
        yield Clash(
            ("conntrack_idle_timeout_s", "instance_type"),
            spec.conntrack_idle_timeout_s,
            f"s cannot be set on {spec.instance_type}, which is older than the Nitro System and forgets an "
            f"idle connection after {XEN_IDLE_TIMEOUT_S} s",
            f"set cluster.conntrack_idle_timeout_s={XEN_IDLE_TIMEOUT_S}, or choose e.g. c7i.xlarge",
        )


def _torch_source(spec: ClusterSpec) -> Iterator[Clash]:
    if spec.network is NetworkKind.ISOLATED and spec.torch_source is TorchSource.INDEX:
        yield Clash(
            ("torch_source", "network"),
            "index",
            "cannot be reached from network=isolated",
            "set cluster.torch_source=wheelhouse with cluster.wheelhouse_path, or image with an ami_id "
            "that holds torch",
        )
    if spec.torch_source is TorchSource.IMAGE and not spec.ami_id:
        yield Clash(
            ("ami_id", "torch_source"),
            "''",
            "but torch_source=image needs the id of an image that holds torch (the plain ones do not)",
            "set cluster.ami_id=ami-...",
        )


def _wheelhouse(spec: ClusterSpec) -> Iterator[Clash]:
    settings = ("wheelhouse_path", "torch_source")
    wanted = spec.torch_source is TorchSource.WHEELHOUSE
    if wanted and not spec.wheelhouse_path:
        yield Clash(
            settings,
            "''",
            "but torch_source=wheelhouse needs a folder of wheels",
            f"make one with pip download torch=={spec.torch_version} --index-url {spec.torch_index_url} "
            "-d wheelhouse",
        )
    if not wanted and spec.wheelhouse_path:
        yield Clash(
            settings,
            spec.wheelhouse_path,
            f"is not used with torch_source={spec.torch_source.value}",
            "set cluster.torch_source=wheelhouse, or leave the path out",
        )


def _ports(spec: ClusterSpec) -> Iterator[Clash]:
    needed = PORTS_PER_RANK * spec.nodes
    if spec.port_profile is PortProfile.PINNED and len(spec.pinned_ports) < needed:
        last = 50000 + -(-needed // 1000) * 1000 - 1
        yield Clash(
            ("pinned_ports", "nodes"),
            spec.pinned_ports,
            f"holds {len(spec.pinned_ports)} ports, fewer than {PORTS_PER_RANK} a rank ({needed} for "
            f"{spec.nodes} nodes)",
            f"set e.g. cluster.pinned_ports=50000-{last}",
        )


def _times(spec: ClusterSpec) -> Iterator[Clash]:
    least = least_proof_timeout_s(spec.deadline_s, spec.torch_source)
    if spec.proof_timeout_s < least:
        yield Clash(
            ("proof_timeout_s", "deadline_s", "torch_source"),
            spec.proof_timeout_s,
            f"s is less than the {least} s in which a proof with deadline_s={spec.deadline_s} and "
            f"torch_source={spec.torch_source.value} may still end well",
            f"set cluster.proof_timeout_s={least} or more, or lower cluster.deadline_s",
        )
