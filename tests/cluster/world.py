"""Hand-made `aws ec2 describe-*` documents: a small world that tests change at will."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence

from cluster.snapshot import ClusterSnapshot

TAG = {"Key": "fullmesh:cluster", "Value": "demo"}
ALLOW_ALL = (100, "allow", "-1", "0.0.0.0/0", None)


def from_group(group_id: str, first: int = 0, last: int = 65535, protocol: str = "tcp") -> Dict[str, Any]:
    """A permission for one group."""
    return {**_traffic(protocol, first, last), "UserIdGroupPairs": [{"GroupId": group_id, "UserId": "1"}]}


def from_cidr(cidr: str, first: int = 0, last: int = 65535, protocol: str = "tcp") -> Dict[str, Any]:
    """A permission for one IPv4 or IPv6 range."""
    ranges = {"Ipv6Ranges": [{"CidrIpv6": cidr}]} if ":" in cidr else {"IpRanges": [{"CidrIp": cidr}]}
    return {**_traffic(protocol, first, last), **ranges}


def _traffic(protocol: str, first: int, last: int) -> Dict[str, Any]:
    ports = {} if protocol == "-1" else {"FromPort": first, "ToPort": last}
    return {"IpProtocol": protocol, **ports}


def from_list(list_id: str, first: int = 0, last: int = 65535, protocol: str = "tcp") -> Dict[str, Any]:
    """A permission for one prefix list."""
    return {**_traffic(protocol, first, last), "PrefixListIds": [{"PrefixListId": list_id}]}


ANYWHERE = from_cidr("0.0.0.0/0", protocol="-1")


class World:
    """One VPC (10.20.0.0/16) with a main route table; everything else is added."""

    def __init__(self) -> None:
        self.groups: List[Dict[str, Any]] = []
        self.interfaces: List[Dict[str, Any]] = []
        self.instances: List[Dict[str, Any]] = []
        self.subnets: List[Dict[str, Any]] = []
        self.acls: List[Dict[str, Any]] = []
        self.tables: List[Dict[str, Any]] = []
        self.vpcs: List[Dict[str, Any]] = []
        self.vpc("vpc-1", "10.20.0.0/16")

    def vpc(self, vpc_id: str, cidr: str) -> None:
        self.vpcs.append({"VpcId": vpc_id, "CidrBlock": cidr})
        self.table(f"rtb-{vpc_id}", vpc_id, [(cidr, "local")], main=True)

    def subnet(self, subnet_id: str, cidr: str, vpc_id: str = "vpc-1") -> None:
        self.subnets.append({"SubnetId": subnet_id, "VpcId": vpc_id, "CidrBlock": cidr})

    def group(
        self,
        group_id: str,
        ingress: Sequence[Dict[str, Any]] = (),
        egress: Sequence[Dict[str, Any]] = (ANYWHERE,),
        name: str = "mesh",
    ) -> None:
        self.groups.append(
            {
                "GroupId": group_id,
                "GroupName": name,
                "IpPermissions": list(ingress),
                "IpPermissionsEgress": list(egress),
            }
        )

    def node(
        self,
        name: str,
        address: str,
        groups: Sequence[str],
        subnet: str = "subnet-1",
        vpc_id: str = "vpc-1",
        public: str = "",
        state: str = "running",
        member: bool = True,
        device: int = 0,
        kind: str = "interface",
        ipv6: Sequence[str] = (),
    ) -> None:
        """An instance with one interface, or one more interface of an instance there is.

        address: blank for an interface without a private IPv4.
        """
        interface: Dict[str, Any] = {
            "NetworkInterfaceId": f"eni-{name}" + (f"-{device}" if device else ""),
            "InterfaceType": kind,
            "SubnetId": subnet,
            "VpcId": vpc_id,
            "Groups": [{"GroupId": item} for item in groups],
            "Attachment": {"InstanceId": f"i-{name}", "DeviceIndex": device},
            "Status": "in-use",
        }
        if address:
            interface["PrivateIpAddress"] = address
        if ipv6:
            interface["Ipv6Addresses"] = [{"Ipv6Address": item} for item in ipv6]
        if public:
            interface["Association"] = {"PublicIp": public}
        self.interfaces.append(interface)
        if device == 0:
            tags = [TAG] if member else []
            self.instances.append({"InstanceId": f"i-{name}", "State": {"Name": state}, "Tags": tags})

    def acl(
        self,
        acl_id: str,
        subnets: Sequence[str],
        ingress: Sequence[Any] = (ALLOW_ALL,),
        egress: Sequence[Any] = (ALLOW_ALL,),
        vpc_id: str = "vpc-1",
        default: bool = False,
    ) -> None:
        """Entries are (number, action, protocol, cidr, (first, last) or None)."""
        self.acls.append(
            {
                "NetworkAclId": acl_id,
                "VpcId": vpc_id,
                "IsDefault": default,
                "Associations": [{"SubnetId": item} for item in subnets],
                "Entries": [
                    _acl_entry(entry, out)
                    for out, entries in ((False, ingress), (True, egress))
                    for entry in entries
                ],
            }
        )

    def table(
        self,
        table_id: str,
        vpc_id: str,
        routes: Sequence[Any],
        main: bool = False,
        subnets: Sequence[str] = (),
    ) -> None:
        """Routes are (destination, target) or (destination, target, state)."""
        self.tables.append(
            {
                "RouteTableId": table_id,
                "VpcId": vpc_id,
                "Associations": [{"Main": True}] * main
                + [{"Main": False, "SubnetId": item} for item in subnets],
                "Routes": [_route(*route) for route in routes],
            }
        )

    def route(self, table_id: str, *route: str) -> None:
        """One more route of a table: (destination, target) or (destination, target, state)."""
        (table,) = (item for item in self.tables if item["RouteTableId"] == table_id)
        table["Routes"].append(_route(*route))

    def listed_rules(self) -> List[Dict[str, Any]]:
        """What describe-security-group-rules prints of the groups: one source each."""
        return [
            rule
            for group in self.groups
            for key, egress in (("IpPermissions", False), ("IpPermissionsEgress", True))
            for permission in group[key]
            for rule in _listed(group["GroupId"], egress, permission)
        ]

    def documents(self) -> Dict[str, Any]:
        return {
            "security-groups": {"SecurityGroups": self.groups},
            "network-interfaces": {"NetworkInterfaces": self.interfaces},
            "instances": {"Reservations": [{"Instances": [item]} for item in self.instances]},
            "subnets": {"Subnets": self.subnets},
            "network-acls": {"NetworkAcls": self.acls},
            "route-tables": {"RouteTables": self.tables},
            "vpcs": {"Vpcs": self.vpcs},
        }

    def snapshot(self, *without: str) -> ClusterSnapshot:
        """The documents read; those named are absent."""
        return ClusterSnapshot.from_documents(
            {key: value for key, value in self.documents().items() if key not in without}
        )


def _listed(group_id: str, egress: bool, permission: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    traffic = {"IpProtocol": permission["IpProtocol"]}
    traffic["FromPort"], traffic["ToPort"] = permission.get("FromPort", -1), permission.get("ToPort", -1)
    sources = [{"CidrIpv4": item["CidrIp"]} for item in permission.get("IpRanges", ())]
    sources += [{"CidrIpv6": item["CidrIpv6"]} for item in permission.get("Ipv6Ranges", ())]
    sources += [{"PrefixListId": item["PrefixListId"]} for item in permission.get("PrefixListIds", ())]
    sources += [{"ReferencedGroupInfo": item} for item in permission.get("UserIdGroupPairs", ())]
    for source in sources:
        rule_id = f"sgr-{group_id}-{egress}-{traffic}-{source}"
        yield {"SecurityGroupRuleId": rule_id, "GroupId": group_id, "IsEgress": egress, **traffic, **source}


def _acl_entry(entry: Any, egress: bool) -> Dict[str, Any]:
    number, action, protocol, cidr, ports = entry
    document: Dict[str, Any] = {
        "RuleNumber": number,
        "RuleAction": action,
        "Protocol": protocol,
        "Ipv6CidrBlock" if ":" in cidr else "CidrBlock": cidr,
        "Egress": egress,
    }
    if ports:
        document["PortRange"] = {"From": ports[0], "To": ports[1]}
    return document


def _route(destination: str, target: str, state: str = "active") -> Dict[str, Any]:
    keys = {
        "nat": "NatGatewayId",
        "tgw": "TransitGatewayId",
        "pcx": "VpcPeeringConnectionId",
        "eni": "NetworkInterfaceId",
        "eigw": "EgressOnlyInternetGatewayId",
    }
    key = "DestinationIpv6CidrBlock" if ":" in destination else "DestinationCidrBlock"
    key = "DestinationPrefixListId" if destination.startswith("pl-") else key
    return {key: destination, keys.get(target.partition("-")[0], "GatewayId"): target, "State": state}


def cluster(ingress: Sequence[Dict[str, Any]], count: int = 4, **group: Any) -> World:
    """A world of members in subnet-1 that all carry sg-mesh with these inbound rules."""
    world = World()
    world.subnet("subnet-1", "10.20.1.0/24")
    world.group("sg-mesh", ingress, **group)
    for number in range(count):
        world.node(str(number), f"10.20.1.{10 + number}", ["sg-mesh"])
    return world


def two_subnets(ingress: Sequence[Dict[str, Any]]) -> World:
    """Members 0 and 1 in subnet-1, 2 and 3 in subnet-2; ACLs are the test's to add."""
    world = World()
    world.subnet("subnet-1", "10.20.1.0/24")
    world.subnet("subnet-2", "10.20.2.0/24")
    world.group("sg-mesh", ingress)
    for number in range(4):
        half = number // 2 + 1
        world.node(str(number), f"10.20.{half}.{10 + number}", ["sg-mesh"], subnet=f"subnet-{half}")
    return world
