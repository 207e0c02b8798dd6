"""Which calls an audit makes, each with the IAM action that it needs: the one list behind reading,
`--iam-policy` and the scheduled audit's role.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster.snapshot import PREFIX_LIST_ENTRIES


@dataclass(frozen=True)
class Reading:
    """One document and the call that reads it.

    service, operation: as boto3 names them. action: what IAM calls it. missing: AWS's codes for
    "there is no such thing", which is an answer and no failure.
    """

    name: str
    service: str
    operation: str
    action: str
    missing: tuple[str, ...] = ()


def _ec2(name: str, operation: str, *missing: str) -> Reading:
    words = "".join(word.capitalize() for word in operation.split("_"))
    return Reading(name, "ec2", operation, f"ec2:{words}", missing)


SECURITY_GROUPS = _ec2("security-groups", "describe_security_groups")
SECURITY_GROUP_RULES = _ec2("security-group-rules", "describe_security_group_rules")
NETWORK_ACLS = _ec2("network-acls", "describe_network_acls")
ROUTE_TABLES = _ec2("route-tables", "describe_route_tables")
SUBNETS = _ec2("subnets", "describe_subnets")
INTERFACES = _ec2("network-interfaces", "describe_network_interfaces")
INSTANCES = _ec2(
    "instances", "describe_instances", "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"
)
VPCS = _ec2("vpcs", "describe_vpcs")
VPC_ENDPOINTS = _ec2("vpc-endpoints", "describe_vpc_endpoints")
FLOW_LOGS = _ec2("flow-logs", "describe_flow_logs")
INTERNET_GATEWAYS = _ec2("internet-gateways", "describe_internet_gateways")
NAT_GATEWAYS = _ec2("nat-gateways", "describe_nat_gateways")
VOLUMES = _ec2("volumes", "describe_volumes")
PLACEMENT_GROUPS = _ec2("placement-groups", "describe_placement_groups")
TEMPLATE_VERSIONS = _ec2(
    "launch-template-versions",
    "describe_launch_template_versions",
    "InvalidLaunchTemplateId.NotFound",
)
RESERVATIONS = _ec2(
    "capacity-reservations", "describe_capacity_reservations", "InvalidCapacityReservationId.NotFound"
)
VPC_ATTRIBUTES = _ec2("vpc-attributes", "describe_vpc_attribute", "InvalidVpcID.NotFound")
PREFIX_LISTS = _ec2(PREFIX_LIST_ENTRIES, "get_managed_prefix_list_entries", "InvalidPrefixListID.NotFound")
GROUPS = Reading(
    "auto-scaling-groups",
    "autoscaling",
    "describe_auto_scaling_groups",
    "autoscaling:DescribeAutoScalingGroups",
)
IDENTITY = Reading("identity", "sts", "get_caller_identity", "sts:GetCallerIdentity")
STACKS = Reading("stacks", "cloudformation", "describe_stacks", "cloudformation:DescribeStacks")
STACK_RESOURCES = Reading(
    "stack-resources", "cloudformation", "list_stack_resources", "cloudformation:ListStackResources"
)
STACK_TEMPLATE = Reading("stack-template", "cloudformation", "get_template", "cloudformation:GetTemplate")
ROW_KEYS = Reading("nodes", "s3", "list_objects_v2", "s3:ListBucket")
ROWS = Reading("nodes", "s3", "get_object", "s3:GetObject")

IN_THE_VPC = (
    SECURITY_GROUPS,
    SECURITY_GROUP_RULES,
    NETWORK_ACLS,
    ROUTE_TABLES,
    SUBNETS,
    INTERFACES,
    VPCS,
)
"""What a VPC holds, besides its instances: with those, what any cluster is judged by."""

OF_EC2 = (
    *IN_THE_VPC,
    INSTANCES,
    VPC_ENDPOINTS,
    FLOW_LOGS,
    INTERNET_GATEWAYS,
    NAT_GATEWAYS,
    VOLUMES,
    PLACEMENT_GROUPS,
    TEMPLATE_VERSIONS,
    RESERVATIONS,
    VPC_ATTRIBUTES,
    PREFIX_LISTS,
)

WHO = "cloudtrail:LookupEvents"
"""For `--who` only."""


def statements(stacks: list[str], bucket: str) -> list[dict[str, Any]]:
    """What an audit needs of IAM: it reads, and changes nothing.

    stacks: ARNs of the cluster's stack and of its evidence's. bucket: ARN of the evidence bucket.

    The describe actions of EC2 and Auto Scaling, and GetCallerIdentity, know no resources
    (docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html); EC2's
    GetManagedPrefixListEntries does, but which list a rule will name is not known before.
    """
    return [
        {
            "Effect": "Allow",
            "Action": sorted([reading.action for reading in OF_EC2] + [GROUPS.action]),
            "Resource": "*",
        },
        {
            "Effect": "Allow",
            "Action": sorted(r.action for r in (STACKS, STACK_RESOURCES, STACK_TEMPLATE)),
            "Resource": stacks,
        },
        {
            "Effect": "Allow",
            "Action": ROW_KEYS.action,
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": "rows/*"}},
        },
        {"Effect": "Allow", "Action": ROWS.action, "Resource": f"{bucket}/rows/*"},
    ]


def iam_policy(cluster: str, *, partition: str = "aws") -> dict[str, Any]:
    """The policy that somebody who audits this cluster needs, `--who` included."""
    stacks = [
        f"arn:{partition}:cloudformation:*:*:stack/{name}/*" for name in (cluster, f"{cluster}-evidence")
    ]
    who = {"Effect": "Allow", "Action": WHO, "Resource": "*"}
    found = [*statements(stacks, f"arn:{partition}:s3:::{cluster}-evidence-*"), who]
    return {"Version": "2012-10-17", "Statement": found}
