"""The members: a role, a placement group, capacity, a launch template and a group of exactly N."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from cluster.instance_types import is_nitro
from cluster.keys import CLUSTER_TAG
from cluster.spec import Capacity, ClusterSpec, NetworkKind, Placement, PortProfile
from stacks.accepted import accept, accept_wildcards
from stacks.function import log_group_arn, trust
from stacks.images import ROOT_DEVICE

GROUP_ID = "Group"  # the group's logical id: its name begins with STACK-Group-, which the referee looks for

SESSION_POLICY = "AmazonSSMManagedInstanceCore"
SESSION_REASON = "Session Manager is the only door to a node; AWS keeps its policy in step with its agent"

# What would end or move a member while CloudFormation replaces the fleet.
SUSPENDED = ["HealthCheck", "ReplaceUnhealthy", "AZRebalance", "AlarmNotification", "ScheduledActions"]

# The documents of cluster.snapshot, so that a judging node can name the missing rule, and the
# types' guaranteed bandwidth.
DESCRIBED = [
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkAcls",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
]


class NodeRole(Construct):
    """What a member may do: its own rows, everybody's rows to read, one log stream, its metrics."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        evidence_bucket: str,
        verdict_log_group: str,
        metric_namespace: str,
        asset_objects: list[tuple[str, str]],
    ) -> None:
        super().__init__(scope, id_)
        partition = cdk.Aws.PARTITION
        rows = f"arn:{partition}:s3:::{evidence_bucket}/rows"
        statements: list[dict[str, Any]] = [
            # aws:userid of an instance is ROLE_ID:INSTANCE_ID, so no node can write another's row.
            {
                "Sid": "OwnRows",
                "Effect": "Allow",
                "Action": "s3:PutObject",
                "Resource": f"{rows}/*/${{aws:userid}}/*",
            },
            {"Sid": "AllRows", "Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{rows}/*"},
            {
                "Sid": "ListRows",
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": f"arn:{partition}:s3:::{evidence_bucket}",
                "Condition": {"StringLike": {"s3:prefix": "rows/*"}},
            },
            {
                "Sid": "Assets",
                "Effect": "Allow",
                "Action": "s3:GetObject",
                "Resource": [f"arn:{partition}:s3:::{bucket}/{key}" for bucket, key in asset_objects],
            },
            {
                "Sid": "Metrics",
                "Effect": "Allow",
                "Action": "cloudwatch:PutMetricData",
                "Resource": "*",
                "Condition": {"StringEquals": {"cloudwatch:namespace": metric_namespace}},
            },
            {
                "Sid": "VerdictEvent",
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
                "Resource": log_group_arn(verdict_log_group, "verdicts"),
            },
            {"Sid": "Rules", "Effect": "Allow", "Action": DESCRIBED, "Resource": "*"},
        ]
        self.resource = iam.CfnRole(
            self,
            "Role",
            assume_role_policy_document=trust("ec2.amazonaws.com"),
            managed_policy_arns=[f"arn:{partition}:iam::aws:policy/{SESSION_POLICY}"],
            policies=[
                iam.CfnRole.PolicyProperty(
                    policy_name="prove-and-publish",
                    policy_document={"Version": "2012-10-17", "Statement": statements},
                )
            ],
        )
        accept(
            self.resource,
            {
                f"IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{SESSION_POLICY}]": SESSION_REASON,
            },
        )
        accept_wildcards(self.resource, statements)
        self.profile = iam.CfnInstanceProfile(self, "Profile", roles=[self.resource.ref])
        self.role_id = self.resource.attr_role_id


class Fleet(Construct):
    """Exactly `spec.nodes` members in one auto scaling group, started together.

    before: what must exist before the first instance boots; `Fleet.before` adds the fleet's own.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        spec: ClusterSpec,
        image_id: str,
        user_data: str,
        role: NodeRole,
        group_id: str,
        subnet_ids: list[str],
        zone: str,
        before: list[cdk.CfnResource],
    ) -> None:
        super().__init__(scope, id_)
        nodes, cluster = spec.nodes, spec.name
        placement_group = (
            None
            if spec.placement is Placement.NONE
            else ec2.CfnPlacementGroup(self, "Placement", strategy=spec.placement.value)
        )
        reservation = (
            self._reservation(spec, zone, placement_group) if spec.capacity is Capacity.RESERVATION else None
        )
        reservation_id = reservation.attr_id if reservation else spec.capacity_reservation_id
        data = ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
            image_id=image_id,
            instance_type=spec.instance_type,
            user_data=cdk.Fn.base64(user_data),
            iam_instance_profile=ec2.CfnLaunchTemplate.IamInstanceProfileProperty(arn=role.profile.attr_arn),
            monitoring=ec2.CfnLaunchTemplate.MonitoringProperty(enabled=True),
            metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(
                http_endpoint="enabled",
                http_tokens="required",
                http_put_response_hop_limit=2,  # a training container is one hop further away
                # Tags in the metadata stay off: a tag key with a slash would make launches fail.
                instance_metadata_tags="disabled",
            ),
            block_device_mappings=[
                ec2.CfnLaunchTemplate.BlockDeviceMappingProperty(
                    device_name=ROOT_DEVICE[spec.operating_system],
                    ebs=ec2.CfnLaunchTemplate.EbsProperty(
                        volume_type="gp3",
                        volume_size=spec.volume_gib,
                        encrypted=True,
                        delete_on_termination=True,
                    ),
                )
            ],
            # The groups stand inside this block: beside it, EC2 refuses SecurityGroupIds. No
            # SubnetId: the auto scaling group chooses it.
            network_interfaces=[
                ec2.CfnLaunchTemplate.NetworkInterfaceProperty(
                    device_index=0,
                    # The first interface may be the EFA itself, which keeps a public address possible:
                    # EC2 assigns one only to an instance with a single interface.
                    interface_type="efa" if spec.port_profile is PortProfile.EFA else None,
                    associate_public_ip_address=spec.network is NetworkKind.PUBLIC,
                    delete_on_termination=True,
                    groups=[group_id],
                    connection_tracking_specification=(
                        ec2.CfnLaunchTemplate.ConnectionTrackingSpecificationProperty(
                            tcp_established_timeout=spec.conntrack_idle_timeout_s
                        )
                        if is_nitro(spec.instance_type)
                        else None  # it cannot be set there, and is what we want
                    ),
                )
            ],
            placement=(
                ec2.CfnLaunchTemplate.PlacementProperty(group_name=placement_group.ref)
                if placement_group
                else None
            ),
            capacity_reservation_specification=(
                ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty(
                    capacity_reservation_target=ec2.CfnLaunchTemplate.CapacityReservationTargetProperty(
                        capacity_reservation_id=reservation_id
                    )
                )
                if reservation_id
                else None
            ),
            instance_market_options=(
                ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty(market_type="capacity-block")
                if spec.capacity is Capacity.BLOCK
                else None
            ),
            tag_specifications=[
                ec2.CfnLaunchTemplate.TagSpecificationProperty(
                    resource_type=kind,
                    tags=[cdk.CfnTag(key=CLUSTER_TAG, value=cluster), cdk.CfnTag(key="Name", value=cluster)],
                )
                for kind in ("instance", "volume", "network-interface")
            ],
        )
        self.template = ec2.CfnLaunchTemplate(self, "Template", launch_template_data=data)
        self.group = autoscaling.CfnAutoScalingGroup(
            self,
            "Members",
            min_size=str(nodes),
            max_size=str(nodes),
            desired_capacity=str(nodes),
            vpc_zone_identifier=subnet_ids,
            launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
                launch_template_id=self.template.ref, version=self.template.attr_latest_version_number
            ),
            health_check_type="EC2",
            health_check_grace_period=spec.proof_timeout_s,
            tags=[
                autoscaling.CfnAutoScalingGroup.TagPropertyProperty(
                    key=key, value=cluster, propagate_at_launch=True
                )
                for key in (CLUSTER_TAG, "Name")
            ],
        )
        self.group.override_logical_id(GROUP_ID)
        accept(
            self.group,
            {"AS3": "the referee hears of every refused launch and puts its reason into the stack's event"},
        )
        # User data runs at first boot only, so a change replaces every node, all at once: old and
        # new nodes side by side would need twice the capacity and meet in one mesh.
        self.group.cfn_options.update_policy = cdk.CfnUpdatePolicy(
            auto_scaling_rolling_update=cdk.CfnAutoScalingRollingUpdate(
                min_instances_in_service=0,
                max_batch_size=nodes,
                wait_on_resource_signals=False,
                pause_time="PT0S",
                suspend_processes=SUSPENDED,
            )
        )
        for resource in before:
            self.group.add_resource_dependency(resource)
        # The group refers to its template, and the template to the reservation; the wait refers to neither.
        self.before = [*before, self.template]

    def _reservation(
        self, spec: ClusterSpec, zone: str, placement_group: ec2.CfnPlacementGroup | None
    ) -> ec2.CfnCapacityReservation:
        """N or none, and the reason at once, instead of a fleet that hangs half-launched."""
        return ec2.CfnCapacityReservation(
            self,
            "Reservation",
            instance_count=spec.nodes,
            instance_type=spec.instance_type,
            instance_platform="Linux/UNIX",
            instance_match_criteria="targeted",
            availability_zone=zone,
            # Of a cluster placement group only: docs.aws.amazon.com/AWSEC2/latest/APIReference/
            # API_CreateCapacityReservation.html
            placement_group_arn=(
                cdk.Stack.of(self).format_arn(
                    service="ec2", resource="placement-group", resource_name=placement_group.ref
                )
                if placement_group and spec.placement is Placement.CLUSTER
                else None
            ),
            tag_specifications=[
                ec2.CfnCapacityReservation.TagSpecificationProperty(
                    resource_type="capacity-reservation", tags=[cdk.CfnTag(key="Name", value=spec.name)]
                )
            ],
        )
