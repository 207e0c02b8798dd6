"""The network the members stand in: one zone, one or two subnets, and one way out.

Written with the L1 constructs: what nodes need before they boot (`Network.ready`) must be
named resource by resource, because neither CDK nor CloudFormation orders a fleet behind
routes, associations and endpoints by itself.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cluster.spec import ClusterSpec, NetworkKind
from stacks.default_group import ClosedDefaultGroup
from stacks.existing_vpc import look_up
from stacks.flow_logs import log_rejected

_OWN_ACCOUNT = {"StringEquals": {"aws:PrincipalAccount": cdk.Aws.ACCOUNT_ID}}

# In a VPC without internet each of these costs by the hour, so each has its reason. Key: the
# endpoint's service; value: the prefix of its actions in IAM, which is another name for CloudWatch
# (docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch-and-interface-VPC.html).
ISOLATED_ENDPOINTS = {
    "logs": "logs",  # the verdict event of the run
    "monitoring": "cloudwatch",  # the metrics behind dashboard and alarms
    "ec2": "ec2",  # the account's rules, to name the one that is missing
    "ssm": "ssm",  # Session Manager: there is no other way to a shell
    "ssmmessages": "ssmmessages",  # Session Manager's channel
}


class Network(Construct):
    """A VPC of its own, or the fitting subnets of an existing one.

    vpc_id, cidr, subnet_ids, zone: where the members stand (`zone` is the first subnet's).
    ready: everything that must exist before a node boots, or it boots without a way out.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        spec: ClusterSpec,
        flow_logs: str,
        functions: str,
    ) -> None:
        super().__init__(scope, id_)
        self.ready: list[cdk.CfnResource] = []
        if spec.vpc_id:
            self._use(spec)
        else:
            self._make(spec, functions)
        if spec.flow_logs:
            # An existing VPC belongs to somebody else: only the members' subnets are watched there.
            watched = [("Subnet", i) for i in self.subnet_ids] if spec.vpc_id else [("VPC", self.vpc_id)]
            log_rejected(self, watched, flow_logs, _name(self, "rejected"))

    def _use(self, spec: ClusterSpec) -> None:
        """Take an existing VPC as it is: nothing in it is made or changed."""
        found = look_up(self, spec)
        self.vpc_id, self.cidr = spec.vpc_id, found.cidr
        self.subnet_ids, self.zone = found.subnet_ids, found.zone
        if spec.network is NetworkKind.ISOLATED:
            cdk.Annotations.of(self).add_info(
                f"{spec.vpc_id} must have what isolated members reach AWS by: a gateway endpoint for s3 and "
                f"interface endpoints with private DNS for {', '.join(ISOLATED_ENDPOINTS)}"
            )

    def _make(self, spec: ClusterSpec, functions: str) -> None:
        self.cidr = spec.vpc_cidr
        vpc = ec2.CfnVPC(
            self,
            "Vpc",
            cidr_block=self.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,  # a node's own name must resolve, or Gloo falls back to loopback
            tags=[_name(self, "vpc")],
        )
        self.vpc_id = vpc.attr_vpc_id
        ClosedDefaultGroup(self, "DefaultGroup", vpc=vpc, functions=functions)
        zones = member_zones(spec)
        self.zone = zones[0]
        blocks = subnet_blocks(spec)
        table = self._route_table("Routes")
        members = [self._subnet(f"Members{i}", blocks[i], zones[i], table) for i in range(spec.subnets)]
        self.subnet_ids = [subnet.attr_subnet_id for subnet in members]
        if spec.network is NetworkKind.PUBLIC:
            self._internet_route("Way", table)
        elif spec.network is NetworkKind.PRIVATE:
            self._nat_route(table, blocks[spec.subnets])
        else:
            self._interface_endpoints()
        self._s3_endpoint(table)

    def _subnet(self, id_: str, block: str, zone: str, table: ec2.CfnRouteTable) -> ec2.CfnSubnet:
        subnet = ec2.CfnSubnet(
            self,
            id_,
            vpc_id=self.vpc_id,
            cidr_block=block,
            availability_zone=zone,
            map_public_ip_on_launch=False,  # the launch template decides, in one place
            tags=[_name(self, id_.lower())],
        )
        self.ready.append(
            ec2.CfnSubnetRouteTableAssociation(
                self,
                f"{id_}Routes",
                subnet_id=subnet.attr_subnet_id,
                route_table_id=table.attr_route_table_id,
            )
        )
        return subnet

    def _route_table(self, id_: str) -> ec2.CfnRouteTable:
        return ec2.CfnRouteTable(self, id_, vpc_id=self.vpc_id, tags=[_name(self, id_.lower())])

    def _internet_route(self, id_: str, table: ec2.CfnRouteTable) -> None:
        gateway = ec2.CfnInternetGateway(self, f"{id_}Gateway", tags=[_name(self, "internet")])
        attachment = ec2.CfnVPCGatewayAttachment(
            self, f"{id_}Attachment", vpc_id=self.vpc_id, internet_gateway_id=gateway.attr_internet_gateway_id
        )
        route = ec2.CfnRoute(
            self,
            f"{id_}Route",
            route_table_id=table.attr_route_table_id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.attr_internet_gateway_id,
        )
        route.add_resource_dependency(attachment)
        self.ready.append(route)

    def _nat_route(self, table: ec2.CfnRouteTable, block: str) -> None:
        outer_table = self._route_table("OuterRoutes")
        outer = self._subnet("Nat", block, self.zone, outer_table)
        self._internet_route("NatWay", outer_table)
        address = ec2.CfnEIP(self, "NatAddress", domain="vpc", tags=[_name(self, "nat")])
        gateway = ec2.CfnNatGateway(
            self,
            "NatGateway",
            subnet_id=outer.attr_subnet_id,
            allocation_id=address.attr_allocation_id,
            tags=[_name(self, "nat")],
        )
        for resource in self.ready:
            gateway.add_resource_dependency(resource)
            address.add_resource_dependency(resource)
        self.ready.append(
            ec2.CfnRoute(
                self,
                "NatRoute",
                route_table_id=table.attr_route_table_id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=gateway.attr_nat_gateway_id,
            )
        )

    def _s3_endpoint(self, table: ec2.CfnRouteTable) -> None:
        """Rows, assets and the signal all travel over S3: a gateway endpoint is free in every shape.

        Every request to S3 in this region takes it, so its policy must not be narrower than what a
        member may do: its role says that, the policy only that it is this account's. The buckets
        below belong to AWS and are read without credentials or with AWS's own signature.
        """
        read = [
            _arn(f"s3:::al2023-repos-{cdk.Aws.REGION}-*/*"),  # Amazon Linux 2023's packages
            # Layers of container images: docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html
            _arn(f"s3:::prod-{cdk.Aws.REGION}-starport-layer-bucket/*"),
        ]
        # Where the signal of a wait condition goes: docs.aws.amazon.com/AWSCloudFormation/latest/
        # UserGuide/vpc-interface-endpoints.html. The URL is signed by CloudFormation.
        signal = _arn(f"s3:::cloudformation-waitcondition-{cdk.Aws.REGION}/*")
        statements = [
            _allow("OwnAccount", ["s3:*"], ["*"], _OWN_ACCOUNT),
            _allow("ReadOfAws", ["s3:GetObject"], read),
            _allow("Signal", ["s3:PutObject"], [signal]),
        ]
        self.ready.append(
            ec2.CfnVPCEndpoint(
                self,
                "S3",
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{cdk.Aws.REGION}.s3",
                vpc_endpoint_type="Gateway",
                route_table_ids=[table.attr_route_table_id],
                policy_document={"Version": "2012-10-17", "Statement": statements},
            )
        )

    def _interface_endpoints(self) -> None:
        group = ec2.CfnSecurityGroup(
            self,
            "EndpointGroup",
            vpc_id=self.vpc_id,
            group_description="fullmesh: HTTPS from the VPC to its interface endpoints",
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(
                    ip_protocol="tcp",
                    from_port=443,
                    to_port=443,
                    cidr_ip=self.cidr,
                    description="HTTPS from the VPC",
                )
            ],
            # Endpoints answer, they never call: a list that names nothing real keeps AWS's
            # allow-all from being added.
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="tcp",
                    from_port=443,
                    to_port=443,
                    cidr_ip="127.0.0.1/32",
                    description="nothing",
                )
            ],
            tags=[_name(self, "endpoints")],
        )
        for service, prefix in ISOLATED_ENDPOINTS.items():
            self.ready.append(
                ec2.CfnVPCEndpoint(
                    self,
                    f"Endpoint-{service}",
                    vpc_id=self.vpc_id,
                    # CDK knows where China's regions call a service by another name (cn.com.amazonaws...).
                    service_name=ec2.InterfaceVpcEndpointAwsService(service).name,
                    vpc_endpoint_type="Interface",
                    private_dns_enabled=True,
                    subnet_ids=self.subnet_ids[:1],  # one address a zone is the limit and enough
                    security_group_ids=[group.attr_group_id],
                    policy_document={
                        "Version": "2012-10-17",
                        "Statement": [_allow("OwnAccount", [f"{prefix}:*"], ["*"], _OWN_ACCOUNT)],
                    },
                )
            )


def member_zones(spec: ClusterSpec) -> list[str]:
    """A zone for each subnet, without asking an account: given by name, or the account's first ones."""
    if spec.zones:
        return list(spec.zones)
    return [cdk.Fn.select(index, cdk.Fn.get_azs()) for index in range(spec.subnets)]


def subnet_blocks(spec: ClusterSpec) -> list[str]:
    """The VPC's range in equal parts: the members' subnets first, one more for what faces out."""
    parts_as_power_of_two = 1 if spec.subnets == 1 else 2
    network = ipaddress.ip_network(spec.vpc_cidr)
    return [str(block) for block in network.subnets(prefixlen_diff=parts_as_power_of_two)]


def _name(scope: Construct, suffix: str) -> cdk.CfnTag:
    return cdk.CfnTag(key="Name", value=f"{cdk.Stack.of(scope).stack_name}-{suffix}")


def _arn(rest: str) -> str:
    return f"arn:{cdk.Aws.PARTITION}:{rest}"


def _allow(
    sid: str, actions: list[str], resources: list[str], condition: dict[str, Any] | None = None
) -> dict[str, Any]:
    statement: dict[str, Any] = {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": "*",
        "Action": actions,
        "Resource": resources,
    }
    if condition:
        statement["Condition"] = condition
    return statement
