"""describe-* documents of a small VPC, for tests of what the lab makes of them."""

from __future__ import annotations

from typing import Any

from cluster.snapshot import ClusterSnapshot

ANYWHERE = {"IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
ALL_OUT = {"IpProtocol": "-1", **ANYWHERE}


def tcp(first: int, last: int, **source: Any) -> dict[str, Any]:
    """A permission for TCP ports."""
    return {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, **source}


def member_of(group_id: str) -> dict[str, Any]:
    """A source: the members of a group."""
    return {"UserIdGroupPairs": [{"GroupId": group_id}]}


def group(group_id: str, inbound: list[Any], outbound: list[Any] | None = None) -> dict[str, Any]:
    """A security group; everything may leave unless said otherwise."""
    return {
        "GroupId": group_id,
        "GroupName": f"name-of-{group_id}",
        "VpcId": "vpc-1",
        "IpPermissions": inbound,
        "IpPermissionsEgress": [ALL_OUT] if outbound is None else outbound,
    }


def entry(number: int, *, egress: bool, action: str, cidr: str = "0.0.0.0/0", **extra: Any) -> dict[str, Any]:
    """A network ACL entry; all protocols unless said otherwise."""
    return {
        "RuleNumber": number, "Egress": egress, "RuleAction": action, "Protocol": "-1", "CidrBlock": cidr,
        **extra,
    }  # fmt: skip


def acl(acl_id: str, entries: list[Any], subnets: list[str] | None = None) -> dict[str, Any]:
    """A network ACL; without subnets it is the VPC's default one."""
    return {
        "NetworkAclId": acl_id,
        "VpcId": "vpc-1",
        "IsDefault": subnets is None,
        "Associations": [{"SubnetId": subnet} for subnet in subnets or []],
        "Entries": entries,
    }


OPEN_ACL = acl("acl-open", [entry(100, egress=way, action="allow") for way in (True, False)])


def documents(
    nodes: dict[str, list[str]],
    groups: list[dict[str, Any]],
    acls: list[dict[str, Any]] | None = None,
    routes: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Nodes by address, each with its groups; 10.42.0.* is subnet a, 10.42.16.* subnet b."""
    instances = [_instance(address, members) for address, members in nodes.items()]
    default = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}
    return {
        "vpcs": {"Vpcs": [{"VpcId": "vpc-1", "CidrBlock": "10.42.0.0/16"}]},
        "subnets": {
            "Subnets": [
                {"SubnetId": name, "VpcId": "vpc-1", "CidrBlock": cidr, "AvailabilityZone": "us-east-1a"}
                for name, cidr in (("subnet-a", "10.42.0.0/20"), ("subnet-b", "10.42.16.0/20"))
            ]
        },
        "route-tables": {
            "RouteTables": [
                {
                    "RouteTableId": "rtb-1",
                    "VpcId": "vpc-1",
                    "Associations": [{"Main": True}],
                    "Routes": [default] if routes is None else routes,
                }
            ]
        },
        "network-acls": {"NetworkAcls": [OPEN_ACL] if acls is None else acls},
        "security-groups": {"SecurityGroups": groups},
        "instances": {"Reservations": [{"ReservationId": "r-1", "OwnerId": "1", "Instances": instances}]},
    }


def snapshot(*arguments: Any, **named: Any) -> ClusterSnapshot:
    """The same as a snapshot."""
    return ClusterSnapshot.from_documents(documents(*arguments, **named))


def interface_id(address: str) -> str:
    """The id of a node's interface."""
    return "eni-" + address.replace(".", "-")


def _instance(address: str, members: list[str]) -> dict[str, Any]:
    number = address.rpartition(".")[2]
    interface = {
        "NetworkInterfaceId": interface_id(address),
        "SubnetId": "subnet-b" if address.startswith("10.42.16.") else "subnet-a",
        "VpcId": "vpc-1",
        "OwnerId": "000000000000",
        "MacAddress": f"0a:00:00:00:{'01' if '.16.' in address else '00'}:{int(number):02x}",
        "PrivateIpAddress": address,
        "Groups": [{"GroupId": item} for item in members],
        "Attachment": {"DeviceIndex": 0},
        "Association": {"PublicIp": f"203.0.113.{number}"},
    }
    return {
        "InstanceId": f"i-{address.replace('.', '-')}",
        "State": {"Name": "running"},
        "InstanceType": "c6i.large",
        "ImageId": "ami-1",
        "Architecture": "x86_64",
        "PrivateIpAddress": address,
        "PrivateDnsName": f"ip-{address.replace('.', '-')}.ec2.internal",
        "PublicIpAddress": f"203.0.113.{number}",
        "SubnetId": interface["SubnetId"],
        "VpcId": "vpc-1",
        "Placement": {"AvailabilityZone": "us-east-1a", "GroupName": "pg"},
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "NetworkInterfaces": [interface],
        "Tags": [{"Key": "Name", "Value": "n"}],
    }
