"""EC2's query answers (XML) as the documents that `aws ec2 describe-* --output json` prints.

EC2 names an element `lowerCamel`, the command prints `UpperCamel`; what does not follow that
rule, and what is no text, stands in the tables below. They hold the answers of `OPERATIONS`
whole; tests build every field of these answers from botocore's model and compare.
An element that the tables do not know keeps its capitalised name and its text.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, Mapping

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def _names(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


OPERATIONS = {  # document (as `cluster.snapshot.DOCUMENTS` names it) -> operation
    "instances": "DescribeInstances",
    "network-interfaces": "DescribeNetworkInterfaces",
    "security-groups": "DescribeSecurityGroups",
    "network-acls": "DescribeNetworkAcls",
    "route-tables": "DescribeRouteTables",
    "subnets": "DescribeSubnets",
    "vpcs": "DescribeVpcs",
}

LISTS = {  # element -> key
    "associatedSubnetSet": "AssociatedSubnets",
    "associationSet": "Associations",
    "blockDeviceMapping": "BlockDeviceMappings",
    "cidrBlockAssociationSet": "CidrBlockAssociationSet",
    "elasticGpuAssociationSet": "ElasticGpuAssociations",
    "elasticInferenceAcceleratorAssociationSet": "ElasticInferenceAcceleratorAssociations",
    "entrySet": "Entries",
    "groupSet": "Groups",
    "groups": "UserIdGroupPairs",
    "instancesSet": "Instances",
    "ipPermissions": "IpPermissions",
    "ipPermissionsEgress": "IpPermissionsEgress",
    "ipRanges": "IpRanges",
    "ipv4PrefixSet": "Ipv4Prefixes",
    "ipv6AddressesSet": "Ipv6Addresses",
    "ipv6CidrBlockAssociationSet": "Ipv6CidrBlockAssociationSet",
    "ipv6PrefixSet": "Ipv6Prefixes",
    "ipv6Ranges": "Ipv6Ranges",
    "licenseSet": "Licenses",
    "networkAclSet": "NetworkAcls",
    "networkInterfaceSet": "NetworkInterfaces",
    "prefixListIds": "PrefixListIds",
    "privateIpAddressSet": "PrivateIpAddresses",
    "privateIpAddressesSet": "PrivateIpAddresses",
    "productCodes": "ProductCodes",
    "propagatingVgwSet": "PropagatingVgws",
    "reservationSet": "Reservations",
    "routeSet": "Routes",
    "routeTableSet": "RouteTables",
    "secondaryInterfaceSet": "SecondaryInterfaces",
    "securityGroupInfo": "SecurityGroups",
    "subnetSet": "Subnets",
    "tagSet": "Tags",
    "vpcSet": "Vpcs",
}
NAMES = {
    "default": "IsDefault",
    "dnsName": "PublicDnsName",
    "groupDescription": "Description",
    "instanceState": "State",
    "productCode": "ProductCodeId",
    "reason": "StateTransitionReason",
}
NAMES_WITHIN = {  # (element around it, element) -> key, where the place decides
    ("instancesSet", "groupSet"): "SecurityGroups",
    ("instancesSet", "ipAddress"): "PublicIpAddress",
    ("networkInterfaceSet", "tagSet"): "TagSet",
    ("productCodes", "type"): "ProductCodeType",
}
STRUCTURES = _names(  # needed only to tell an empty structure from an empty text
    """association associationState attachment blockPublicAccessStates capacityReservationSpecification
    capacityReservationTarget cidrBlockState connectionTrackingConfiguration cpuOptions ebs
    egressOnlyInternetGateway elasticFileSystem enaSrdSpecification enaSrdUdpSpecification enclaveOptions
    encryptionControl hibernationOptions iamInstanceProfile icmpTypeCode instanceState internetGateway
    ipv6CidrBlockState lambda maintenanceOptions metadataOptions monitoring natGateway
    networkPerformanceOptions operator placement portRange privateDnsNameOptions
    privateDnsNameOptionsOnLaunch publicIpDnsNameOptions resourceExclusions stateReason
    virtualPrivateGateway vpcLattice vpcPeering"""
)
INTEGERS = _names(
    """amiLaunchIndex availableIpAddressCount coreCount deviceIndex ebsCardIndex enaQueueCount
    enableLniAtDeviceIndex from fromPort httpPutResponseHopLimit networkCardIndex partitionNumber ruleNumber
    tcpEstablishedTimeout threadsPerCore to toPort udpStreamTimeout udpTimeout"""
)
INTEGERS_WITHIN = frozenset({("instanceState", "code"), ("icmpTypeCode", "code"), ("icmpTypeCode", "type")})
BOOLEANS = _names(
    """assignIpv6AddressOnCreation configured default defaultForAz deleteOnTermination denyAllIgwTraffic
    ebsOptimized egress enaSrdEnabled enaSrdUdpEnabled enaSupport enableDns64 enableResourceNameDnsAAAARecord
    enableResourceNameDnsARecord enabled hiddenByDefault ipv6Native isDefault isPrimaryIpv6 main
    managed mapCustomerOwnedIpOnLaunch mapPublicIpOnLaunch primary requesterManaged sourceDestCheck"""
)
TIMESTAMPS = _names(
    "attachTime elasticInferenceAcceleratorAssociationTime launchTime usageOperationUpdateTime"
)
LISTS_OF_TEXT = frozenset({"associatedSubnetSet"})


def parse_answer(xml: bytes) -> Dict[str, Any]:
    """Turn one answer into its document; a `NextToken` stays in it while there is more.

    Raises:
        ValueError: `xml` is not XML, or a number or time in it is none.
    """
    from xml.etree import ElementTree  # noqa: PLC0415 - loads expat, needed after the mesh only

    try:
        root = ElementTree.fromstring(xml)  # noqa: S314 - AWS's own answer over a verified channel
    except ElementTree.ParseError as error:
        raise ValueError(f"the answer of ec2 is not XML ({error})") from None
    document = _structure(root, around="")
    document.pop("RequestId", None)
    if not document.get("NextToken"):
        document.pop("NextToken", None)
    return document


def _structure(element: Element, around: str) -> Dict[str, Any]:
    """around: the name of the list or structure that holds the fields."""
    fields: Dict[str, Any] = {}
    for child in element:
        name = _local_name(child)
        key = NAMES_WITHIN.get((around, name)) or LISTS.get(name) or NAMES.get(name)
        fields[key or name[:1].upper() + name[1:]] = _value(child, name, around)
    return fields


def _value(element: Element, name: str, around: str) -> Any:
    if name in LISTS or (len(element) and all(_local_name(child) == "item" for child in element)):
        return [_item(child, name) for child in element]
    if name in STRUCTURES or len(element):
        return _structure(element, around=name)
    text = element.text or ""
    if (around, name) in INTEGERS_WITHIN:
        return int(text)
    return next((read(text) for names, read in READERS.items() if name in names), text)


def _item(element: Element, list_name: str) -> Any:
    if list_name in LISTS_OF_TEXT or (list_name not in LISTS and not len(element)):
        return element.text or ""
    return _structure(element, around=list_name)


def _local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _timestamp(text: str) -> str:
    """The command prints an offset instead of "Z", and a fraction only where it is not zero."""
    moment, _, fraction = text.rstrip("Z").partition(".")
    microseconds = int(fraction[:6].ljust(6, "0")) if fraction else 0
    parsed = datetime.strptime(f"{moment}+0000", "%Y-%m-%dT%H:%M:%S%z")
    return parsed.replace(microsecond=microseconds).isoformat()


READERS: Mapping[FrozenSet[str], Callable[[str], Any]] = {
    INTEGERS: int,
    BOOLEANS: lambda text: text == "true",
    TIMESTAMPS: _timestamp,
}
