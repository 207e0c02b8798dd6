"""A VPC's edges: endpoints with their routes and interfaces, addresses, NAT gateways."""

from __future__ import annotations

import json
from typing import Any

from lab.control_plane import backend, instances
from lab.control_plane.launch_spec import InterfaceSpec
from lab.control_plane.registration import (
    Made,
    OriginalType,
    Resource,
    drop,
    keep_tags,
    register_ec2_action,
    register_type,
)
from lab.control_plane.wire import (
    ApiError,
    Parameters,
    Reply,
    filters_of,
    is_true,
    matches,
    nested,
    new_id,
    tag_list,
    xml,
)

Record = dict[str, Any]

VPC, ENDPOINT = "AWS::EC2::VPC", "AWS::EC2::VPCEndpoint"


def register() -> None:
    _register_vpc()
    _register_endpoint()
    register_ec2_action("DescribeVpcEndpoints", describe_endpoints)
    register_type(
        "AWS::EC2::EIP",
        create=_create_address,
        delete=_release_address,
        replacing=("Domain", "NetworkBorderGroup"),
    )
    register_type(
        "AWS::EC2::NatGateway",
        create=_create_nat_gateway,
        delete=lambda resource: drop(backend.nat_gateways, resource.physical_id),
        replacing=("SubnetId", "AllocationId", "ConnectivityType", "PrivateIpAddress"),
    )


def _register_vpc() -> None:
    """ministack's VPC lacks the attributes that name its address blocks."""
    original = OriginalType(VPC)

    def with_blocks(made: Made) -> Made:
        vpc_id, attributes = made
        return vpc_id, {
            **attributes,
            "CidrBlock": backend.vpcs[vpc_id]["CidrBlock"],
            "CidrBlockAssociations": [f"vpc-cidr-assoc-{vpc_id.removeprefix('vpc-')}"],
            "Ipv6CidrBlocks": [],
        }

    register_type(
        VPC,
        create=lambda resource: with_blocks(original.create(resource)),
        update=lambda resource: with_blocks(original.update(resource)),
        delete=original.delete,
        replacing=("CidrBlock", "Ipv4IpamPoolId", "Ipv4NetmaskLength"),
        tagged=True,
    )


def _register_endpoint() -> None:
    """A gateway endpoint stands in route tables, an interface endpoint has interfaces."""
    original = OriginalType(ENDPOINT)

    def create(resource: Resource) -> Made:
        endpoint_id, _ = original.create(resource)
        endpoint = backend.vpc_endpoints[endpoint_id]
        endpoint["PrivateDnsEnabled"] = is_true(resource.properties.get("PrivateDnsEnabled", False))
        _add_routes(endpoint)
        _add_interfaces(endpoint)
        return endpoint_id, _endpoint_attributes(endpoint)

    def update(resource: Resource) -> Made:
        endpoint = backend.vpc_endpoints[resource.physical_id]
        kept = endpoint["NetworkInterfaceIds"]
        _remove_routes(endpoint)
        original.update(resource)
        endpoint["NetworkInterfaceIds"] = kept
        endpoint["PrivateDnsEnabled"] = is_true(resource.properties.get("PrivateDnsEnabled", False))
        _add_routes(endpoint)
        if resource.properties.get("SubnetIds") != resource.old.get("SubnetIds"):
            _remove_interfaces(endpoint)
            _add_interfaces(endpoint)
        for interface_id in endpoint["NetworkInterfaceIds"] if endpoint["SecurityGroupIds"] else []:
            instances.set_interface_groups(
                backend.network_interfaces[interface_id], endpoint["SecurityGroupIds"]
            )
        return resource.physical_id, _endpoint_attributes(endpoint)

    def delete(resource: Resource) -> None:
        endpoint = backend.vpc_endpoints.get(resource.physical_id)
        if endpoint is not None:
            _remove_routes(endpoint)
            _remove_interfaces(endpoint)
        original.delete(resource)

    register_type(
        ENDPOINT,
        create=create,
        update=update,
        delete=delete,
        replacing=("VpcId", "ServiceName", "VpcEndpointType"),
        tagged=True,
    )


def _endpoint_attributes(endpoint: Record) -> Record:
    return {
        "Id": endpoint["VpcEndpointId"],
        "CreationTimestamp": endpoint["CreationTimestamp"],
        "DnsEntries": [f"{entry['HostedZoneId']}:{entry['DnsName']}" for entry in _dns_entries(endpoint)],
        "NetworkInterfaceIds": endpoint["NetworkInterfaceIds"],
    }


def _dns_entries(endpoint: Record) -> list[Record]:
    if endpoint["VpcEndpointType"] != "Interface":
        return []
    region, service = endpoint["ServiceName"].removeprefix("com.amazonaws.").split(".", 1)
    public = f"{endpoint['VpcEndpointId']}.{service}.{region}.vpce.amazonaws.com"
    entries = [{"DnsName": public, "HostedZoneId": "Z7HUB22UULQXV"}]
    if endpoint["PrivateDnsEnabled"]:
        entries.append(
            {"DnsName": f"{service}.{region}.amazonaws.com", "HostedZoneId": "Z0000000000000PRIVATE"}
        )
    return entries


def _add_routes(endpoint: Record) -> None:
    if endpoint["VpcEndpointType"] != "Gateway":
        return
    for table_id in endpoint["RouteTableIds"]:
        table = backend.route_tables.get(table_id)
        if table is None:
            raise ValueError(f"The routeTable ID '{table_id}' does not exist")
        table["Routes"].append(
            {
                "DestinationPrefixListId": backend.prefix_list_id(endpoint["ServiceName"]),
                "GatewayId": endpoint["VpcEndpointId"],
                "State": "active",
                "Origin": "CreateRoute",
            }
        )


def _remove_routes(endpoint: Record) -> None:
    for table in backend.route_tables.values():
        table["Routes"] = [
            route for route in table["Routes"] if route.get("GatewayId") != endpoint["VpcEndpointId"]
        ]


def _add_interfaces(endpoint: Record) -> None:
    endpoint["NetworkInterfaceIds"] = []
    if endpoint["VpcEndpointType"] != "Interface":
        return
    for subnet_id in endpoint["SubnetIds"]:
        record = instances.make_interface(
            backend.subnets[subnet_id],
            InterfaceSpec(
                device_index=0,
                groups=tuple(endpoint["SecurityGroupIds"]),
                description=f"VPC Endpoint Interface {endpoint['VpcEndpointId']}",
                interface_type="vpc_endpoint",
            ),
        )
        record["Status"] = "in-use"
        endpoint["NetworkInterfaceIds"].append(record["NetworkInterfaceId"])


def _remove_interfaces(endpoint: Record) -> None:
    for interface_id in endpoint["NetworkInterfaceIds"]:
        drop(backend.network_interfaces, interface_id)


def describe_endpoints(params: Parameters) -> Reply:
    request = nested(params)
    wanted, filters = request.get("VpcEndpointId", []), filters_of(request)
    missing = [item for item in wanted if item not in backend.vpc_endpoints]
    if missing:
        raise ApiError("InvalidVpcEndpointId.NotFound", f"The Vpc Endpoint Id '{missing[0]}' does not exist")
    names = {
        "vpc-endpoint-id": "VpcEndpointId",
        "vpc-id": "VpcId",
        "service-name": "ServiceName",
        "vpc-endpoint-type": "VpcEndpointType",
        "vpc-endpoint-state": "State",
    }
    listed = [
        _endpoint_answer(record)
        for record in backend.vpc_endpoints.values()
        if (not wanted or record["VpcEndpointId"] in wanted)
        and all(matches(filters[name], [record[field]]) for name, field in names.items() if name in filters)
        and backend.tag_filters_match(record["VpcEndpointId"], filters)
    ]
    return Reply("DescribeVpcEndpoints", xml({"vpcEndpointSet": listed}))


def _endpoint_answer(record: Record) -> Record:
    policy = record.get("PolicyDocument")
    return {
        "vpcEndpointId": record["VpcEndpointId"],
        "vpcEndpointType": record["VpcEndpointType"],
        "vpcId": record["VpcId"],
        "serviceName": record["ServiceName"],
        "state": record["State"],
        "policyDocument": json.dumps(policy) if isinstance(policy, dict) else policy,
        "routeTableIdSet": record["RouteTableIds"],
        "subnetIdSet": record["SubnetIds"],
        "groupSet": [
            {
                "groupId": group_id,
                "groupName": (backend.security_groups.get(group_id) or {}).get("GroupName", ""),
            }
            for group_id in record.get("SecurityGroupIds", [])
        ],
        "privateDnsEnabled": record.get("PrivateDnsEnabled", False),
        "networkInterfaceIdSet": record.get("NetworkInterfaceIds", []),
        "dnsEntrySet": [
            {"dnsName": entry["DnsName"], "hostedZoneId": entry["HostedZoneId"]}
            for entry in (_dns_entries(record) if record.get("NetworkInterfaceIds") else [])
        ],
        "creationTimestamp": record.get("CreationTimestamp"),
        "ownerId": record["OwnerId"],
        "tagSet": tag_list(backend.ec2_tags.get(record["VpcEndpointId"], [])),
    }


def _create_address(resource: Resource) -> Made:
    allocation_id, public_ip = new_id("eipalloc"), instances.public_address()
    backend.addresses[allocation_id] = {
        "AllocationId": allocation_id,
        "PublicIp": public_ip,
        "Domain": "vpc",
        "AssociationId": None,
        "InstanceId": None,
        "NetworkInterfaceId": None,
        "PrivateIpAddress": None,
    }
    keep_tags(allocation_id, resource.properties)
    return public_ip, {"AllocationId": allocation_id, "PublicIp": public_ip}


def _release_address(resource: Resource) -> None:
    for allocation_id, record in list(backend.addresses.items()):
        if record["PublicIp"] == resource.physical_id:
            drop(backend.addresses, allocation_id)


def _create_nat_gateway(resource: Resource) -> Made:
    nat_id, given = new_id("nat"), resource.properties
    backend.nat_gateways[nat_id] = {
        "NatGatewayId": nat_id,
        "SubnetId": given["SubnetId"],
        "VpcId": backend.subnets[given["SubnetId"]]["VpcId"],
        "AllocationId": given.get("AllocationId", ""),
        "ConnectivityType": given.get("ConnectivityType", "public"),
        "State": "available",
        "CreateTime": backend.now_iso(),
        "Tags": given.get("Tags") or [],
    }
    keep_tags(nat_id, given)
    return nat_id, {"NatGatewayId": nat_id}
