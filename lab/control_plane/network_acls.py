"""Network ACLs as EC2 has them: entries with port ranges, and a subnet in exactly one ACL.

Every subnet that no other ACL claims belongs to its VPC's default ACL; these associations
are made when they are first asked for, so that they have ids that can be replaced.
"""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend
from lab.control_plane.filters import Facts, all_match
from lab.control_plane.registration import (
    drop,
    register_ec2_action,
)
from lab.control_plane.wire import (
    ApiError,
    Parameters,
    Reply,
    filters_of,
    is_true,
    nested,
    new_id,
    tag_list,
    xml,
)

Record = dict[str, Any]

_PROTOCOLS = {"tcp": "6", "udp": "17", "icmp": "1", "all": "-1"}
CATCH_ALL = 32767  # the rule shown as `*`: denies, and cannot be changed


def register() -> None:
    for name, handler in {
        "CreateNetworkAcl": _create_action,
        "DescribeNetworkAcls": _describe_action,
        "DeleteNetworkAcl": _delete_action,
        "CreateNetworkAclEntry": _create_entry_action,
        "ReplaceNetworkAclEntry": _replace_entry_action,
        "DeleteNetworkAclEntry": _delete_entry_action,
        "ReplaceNetworkAclAssociation": _replace_association_action,
    }.items():
        register_ec2_action(name, handler)


def acl(acl_id: str) -> Record:
    record = backend.network_acls.get(acl_id)
    if record is None:
        raise ApiError("InvalidNetworkAclID.NotFound", f"The networkAcl ID '{acl_id}' does not exist")
    return record


def make(vpc_id: str) -> Record:
    """A new ACL, which denies everything."""
    acl_id = new_id("acl")
    record = {
        "NetworkAclId": acl_id,
        "VpcId": vpc_id,
        "IsDefault": False,
        "OwnerId": backend.account_id(),
        "Associations": [],
        "Tags": [],
        "Entries": [
            _entry({"RuleNumber": CATCH_ALL, "RuleAction": "deny", "Egress": out}) for out in (False, True)
        ],
    }
    backend.network_acls[acl_id] = record
    return record


def put_entry(acl_id: str, entry: Record, *, must_be_new: bool) -> None:
    """Add an entry, or put it in place of the one with its number and direction.

    Raises:
        ApiError: the number is taken, or there is nothing to replace.
    """
    record = acl(acl_id)
    new = _entry(entry)
    if not 1 <= new["RuleNumber"] < CATCH_ALL:
        raise ApiError(
            "InvalidParameterValue", f"Value ({new['RuleNumber']}) for parameter ruleNumber is invalid"
        )
    others = [item for item in record["Entries"] if place_of(item) != place_of(new)]
    found = len(others) < len(record["Entries"])
    if found and must_be_new:
        raise ApiError(
            "NetworkAclEntryAlreadyExists",
            f"The network acl entry identified by {new['RuleNumber']} already exists.",
        )
    if not found and not must_be_new:
        raise ApiError(
            "InvalidNetworkAclEntry.NotFound", f"Rule {new['RuleNumber']} does not exist in {acl_id}"
        )
    record["Entries"] = sorted([*others, new], key=lambda item: (item["Egress"], item["RuleNumber"]))


def associate(subnet_id: str, acl_id: str) -> str:
    """Move a subnet under an ACL; returns the id of the new association."""
    acl(acl_id)
    if subnet_id not in backend.subnets:
        raise ApiError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
    for record in backend.network_acls.values():
        record["Associations"] = [item for item in record["Associations"] if item["SubnetId"] != subnet_id]
    association_id = new_id("aclassoc")
    backend.network_acls[acl_id]["Associations"].append(
        {"NetworkAclAssociationId": association_id, "SubnetId": subnet_id}
    )
    return association_id


def default_acl(vpc_id: str) -> str:
    return next(
        str(record["NetworkAclId"])
        for record in backend.network_acls.values()
        if record["VpcId"] == vpc_id and record["IsDefault"]
    )


def _complete_associations() -> None:
    """Give every subnet that is in no ACL to its VPC's default one; forget subnets that are gone."""
    claimed = set()
    for record in backend.network_acls.values():
        record["Associations"] = [
            item for item in record["Associations"] if item["SubnetId"] in backend.subnets
        ]
        claimed |= {item["SubnetId"] for item in record["Associations"]}
    for subnet_id, subnet in backend.subnets.items():
        if subnet_id not in claimed:
            associate(subnet_id, default_acl(subnet["VpcId"]))


def place_of(entry: Record) -> tuple[int, bool]:
    return entry["RuleNumber"], entry["Egress"]


def _entry(given: Record) -> Record:
    protocol = str(given.get("Protocol", "-1")).lower()
    entry: Record = {
        "RuleNumber": int(given["RuleNumber"]),
        "Protocol": _PROTOCOLS.get(protocol, protocol),
        "RuleAction": given["RuleAction"],
        "Egress": is_true(given.get("Egress", False)),
    }
    if given.get("Ipv6CidrBlock"):
        entry["Ipv6CidrBlock"] = given["Ipv6CidrBlock"]
    else:
        entry["CidrBlock"] = given.get("CidrBlock") or "0.0.0.0/0"
    ports = given.get("PortRange")
    if ports and entry["Protocol"] in ("6", "17"):
        entry["PortRange"] = {"From": int(ports["From"]), "To": int(ports["To"])}
    icmp = given.get("Icmp")
    if icmp:
        entry["Icmp"] = {"Type": int(icmp["Type"]), "Code": int(icmp["Code"])}
    return entry


def _create_action(params: Parameters) -> Reply:
    return Reply("CreateNetworkAcl", xml({"networkAcl": _answer(make(nested(params).get("VpcId", "")))}))


def _describe_action(params: Parameters) -> Reply:
    _complete_associations()
    request = nested(params)
    wanted, filters = request.get("NetworkAclId", []), filters_of(request)
    for item in wanted:
        acl(item)
    listed = [
        _answer(record)
        for record in backend.network_acls.values()
        if (not wanted or record["NetworkAclId"] in wanted) and _matches(record, filters)
    ]
    return Reply("DescribeNetworkAcls", xml({"networkAclSet": listed}))


def _matches(record: Record, filters: dict[str, list[str]]) -> bool:
    facts: Facts = {
        "network-acl-id": [record["NetworkAclId"]],
        "vpc-id": [record["VpcId"]],
        "default": [str(record["IsDefault"]).lower()],
        "association.subnet-id": [item["SubnetId"] for item in record["Associations"]],
        "association.association-id": [item["NetworkAclAssociationId"] for item in record["Associations"]],
    }
    return all_match(record["NetworkAclId"], facts, filters)


def _delete_action(params: Parameters) -> Reply:
    _complete_associations()
    record = acl(nested(params).get("NetworkAclId", ""))
    if record["IsDefault"] or record["Associations"]:
        raise ApiError(
            "DependencyViolation",
            f"The networkAcl '{record['NetworkAclId']}' has dependencies and cannot be deleted.",
        )
    drop(backend.network_acls, record["NetworkAclId"])
    return Reply("DeleteNetworkAcl", xml({"return": True}))


def _create_entry_action(params: Parameters) -> Reply:
    request = nested(params)
    put_entry(request.get("NetworkAclId", ""), request, must_be_new=True)
    return Reply("CreateNetworkAclEntry", xml({"return": True}))


def _replace_entry_action(params: Parameters) -> Reply:
    request = nested(params)
    put_entry(request.get("NetworkAclId", ""), request, must_be_new=False)
    return Reply("ReplaceNetworkAclEntry", xml({"return": True}))


def _delete_entry_action(params: Parameters) -> Reply:
    request = nested(params)
    record = acl(request.get("NetworkAclId", ""))
    place = int(request.get("RuleNumber", 0)), is_true(request.get("Egress", "false"))
    left = [item for item in record["Entries"] if place_of(item) != place]
    if len(left) == len(record["Entries"]):
        raise ApiError(
            "InvalidNetworkAclEntry.NotFound",
            f"The network acl entry identified by {place[0]} does not exist.",
        )
    record["Entries"] = left
    return Reply("DeleteNetworkAclEntry", xml({"return": True}))


def _replace_association_action(params: Parameters) -> Reply:
    _complete_associations()
    request = nested(params)
    association_id = request.get("AssociationId", "")
    for record in backend.network_acls.values():
        for item in record["Associations"]:
            if item["NetworkAclAssociationId"] == association_id:
                new = associate(item["SubnetId"], request.get("NetworkAclId", ""))
                return Reply("ReplaceNetworkAclAssociation", xml({"newAssociationId": new}))
    raise ApiError("InvalidAssociationID.NotFound", f"The association ID '{association_id}' does not exist")


def _answer(record: Record) -> Record:
    return {
        "networkAclId": record["NetworkAclId"],
        "vpcId": record["VpcId"],
        "default": record["IsDefault"],
        "ownerId": record["OwnerId"],
        "entrySet": [
            {
                "ruleNumber": item["RuleNumber"],
                "protocol": item["Protocol"],
                "ruleAction": item["RuleAction"],
                "egress": item["Egress"],
                "cidrBlock": item.get("CidrBlock"),
                "ipv6CidrBlock": item.get("Ipv6CidrBlock"),
                "portRange": _lower(item.get("PortRange")),
                "icmpTypeCode": _lower(item.get("Icmp")),
            }
            for item in record["Entries"]
        ],
        "associationSet": [
            {
                "networkAclAssociationId": item["NetworkAclAssociationId"],
                "networkAclId": record["NetworkAclId"],
                "subnetId": item["SubnetId"],
            }
            for item in record["Associations"]
        ],
        "tagSet": tag_list(backend.ec2_tags.get(record["NetworkAclId"], [])),
    }


def _lower(value: Record | None) -> Record | None:
    return {key.lower(): item for key, item in value.items()} if value else None
