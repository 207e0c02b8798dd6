"""Changes of the network's settings, tags, instances and the fleet; and those that nothing takes back."""

from __future__ import annotations

from bench.changes import make_others
from bench.changes.change import COSMETIC, OPENS, WEAKENS, Change, one

NETWORK = (
    Change(
        "dns-off",
        "the VPC's resolver is turned off",
        make_others.flag("EnableDnsSupport"),
        one("vpc", "EnableDnsSupport", WEAKENS),
    ),
    Change(
        "dns-names-off",
        "the VPC gives no host names",
        make_others.flag("EnableDnsHostnames"),
        one("vpc", "EnableDnsHostnames", WEAKENS),
    ),
    Change(
        "subnet-public",
        "one subnet gives public addresses at launch",
        make_others.call(
            lambda h: h.ec2.modify_subnet_attribute(
                SubnetId=h.resource("subnet 0"), MapPublicIpOnLaunch={"Value": True}
            ),
            lambda h: h.ec2.modify_subnet_attribute(
                SubnetId=h.resource("subnet 0"), MapPublicIpOnLaunch={"Value": False}
            ),
        ),
        one("subnet 0", "MapPublicIpOnLaunch", WEAKENS),
    ),
    Change(
        "endpoint-policy",
        "the policy of the S3 endpoint lets everybody do everything",
        make_others.endpoint_policy,
        one("endpoint", "policy", WEAKENS),
    ),
    Change(
        "endpoint-unrouted",
        "the S3 endpoint has no route table any more",
        make_others.unrouted,
        one("endpoint", "route tables", WEAKENS),
    ),
    Change(
        "tag-added",
        "a tag more on the group",
        make_others.tagged("group", "owner", "somebody"),
        one("group", "tags", COSMETIC),
    ),
    Change(
        "tag-changed",
        "the VPC's name tag says something else",
        make_others.retagged,
        one("vpc", "tags", COSMETIC),
    ),
)

FLEET = (
    Change(
        "metadata-v1",
        "one member's metadata answers without a token",
        make_others.call(make_others.metadata("optional"), make_others.metadata("required")),
        one("member 1", "metadata option HttpTokens", WEAKENS),
    ),
    Change(
        "monitoring-off",
        "one member's detailed monitoring is turned off",
        make_others.call(
            lambda h: h.ec2.unmonitor_instances(InstanceIds=[h.resource("member 1")]),
            lambda h: h.ec2.monitor_instances(InstanceIds=[h.resource("member 1")]),
        ),
        one("member 1", "detailed monitoring", WEAKENS),
    ),
    Change(
        "member-untagged",
        "one member loses the cluster's tag",
        make_others.untagged("member 2", "fullmesh:cluster"),
        one("member 2", "tags", WEAKENS),
    ),
    Change(
        "fleet-may-grow",
        "the fleet may grow to eight",
        make_others.call(make_others.sized(8), make_others.sized(4)),
        one("fleet", "size", WEAKENS),
    ),
    Change(
        "fleet-suspended",
        "the fleet launches nothing any more",
        make_others.call(
            lambda h: h.scaling.suspend_processes(
                AutoScalingGroupName=h.resource("fleet"), ScalingProcesses=["Launch"]
            ),
            lambda h: h.scaling.resume_processes(
                AutoScalingGroupName=h.resource("fleet"), ScalingProcesses=["Launch"]
            ),
        ),
        one("fleet", "suspended processes", WEAKENS),
    ),
    Change(
        "template-version",
        "a newer version of the launch template that nothing uses",
        make_others.template_version,
        one("template", "version 2", COSMETIC),
    ),
    Change(
        "launches-other",
        "the fleet launches from a version of another instance type",
        make_others.launches_other,
        one("template", "InstanceType of version", WEAKENS),
    ),
    Change(
        "out-of-placement",
        "one member is moved out of the placement group",
        make_others.out_of_placement,
        one("member 1", "placement group", WEAKENS),
        needs="stop",
    ),
    Change(
        "stranger-with-our-group",
        "an instance that is none of the fleet's runs with the members' group and tag",
        make_others.stranger,
        one("member of nobody", "membership", OPENS),
        exposes=True,
        needs="stop",
    ),
)

LASTING = (
    Change(
        "flow-log-deleted",
        "the flow log is deleted",
        make_others.lasting(lambda h: h.ec2.delete_flow_logs(FlowLogIds=[h.resource("flow-log")])),
        one("flow-log", "existence", WEAKENS),
        lasts=True,
    ),
    Change(
        "endpoint-deleted",
        "the S3 endpoint is deleted",
        make_others.lasting(lambda h: h.ec2.delete_vpc_endpoints(VpcEndpointIds=[h.resource("endpoint")])),
        one("endpoint", "existence", WEAKENS),
        lasts=True,
    ),
    Change(
        "reservation-cancelled",
        "the capacity reservation is cancelled",
        make_others.lasting(
            lambda h: h.ec2.cancel_capacity_reservation(CapacityReservationId=h.resource("reservation"))
        ),
        one("reservation", "state", WEAKENS),
        needs="reservation",
        lasts=True,
    ),
)
