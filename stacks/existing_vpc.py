"""An existing VPC: which of its subnets the members stand in."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cluster.spec import ClusterSpec, NetworkKind

NOT_LOOKED_UP_CIDR = "10.0.0.0/16"
NOT_LOOKED_UP_ZONE = "not-looked-up"


@dataclass(frozen=True)
class ExistingVpc:
    """cidr: of the VPC. subnet_ids: of the members; zone: the first one's."""

    cidr: str
    subnet_ids: list[str]
    zone: str


def look_up(scope: Construct, spec: ClusterSpec) -> ExistingVpc:
    """The VPC `spec.vpc_id`: the CLI looks it up once and keeps the answer in cdk.context.json.

    Raises:
        ValueError: it has too few subnets of the kind, or none in the zones that were named.
    """
    vpc = ec2.Vpc.from_lookup(scope, "Existing", vpc_id=spec.vpc_id)
    if vpc.vpc_id != spec.vpc_id:
        # CDK's stand-in has none of the zones and not all kinds of subnets that the VPC may have:
        # nothing is chosen before the look-up, after which the CLI synthesises again.
        subnet_ids = [f"subnet-{number:017x}" for number in range(spec.subnets)]
        return ExistingVpc(NOT_LOOKED_UP_CIDR, subnet_ids, (*spec.zones, NOT_LOOKED_UP_ZONE)[0])
    kinds = {
        NetworkKind.PUBLIC: vpc.public_subnets,
        NetworkKind.PRIVATE: vpc.private_subnets,
        NetworkKind.ISOLATED: vpc.isolated_subnets,
    }
    by_zone: dict[str, str] = {}
    for subnet in kinds[spec.network]:
        by_zone.setdefault(subnet.availability_zone, subnet.subnet_id)
    zones = [zone for zone in spec.zones or by_zone if zone in by_zone]
    if len(zones) < spec.subnets:
        where = f" among {spec.availability_zone}" if spec.zones else ""
        held = "; ".join(
            f"{kind.value}: {', '.join(dict.fromkeys(s.availability_zone for s in subnets)) or 'none'}"
            for kind, subnets in kinds.items()
        )
        raise ValueError(
            f"cluster.vpc_id: {spec.vpc_id} has {spec.network.value} subnets in {len(zones)} "
            f"zones{where}, {spec.subnets} needed (it has {held}); set cluster.network or "
            "cluster.availability_zone to what it has, or leave cluster.vpc_id out"
        )
    taken = zones[: spec.subnets]
    return ExistingVpc(vpc.vpc_cidr_block, [by_zone[zone] for zone in taken], taken[0])
