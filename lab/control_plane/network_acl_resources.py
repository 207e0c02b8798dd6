"""AWS::EC2::NetworkAcl, its entries, and a subnet's association with one."""

from __future__ import annotations

from lab.control_plane import backend, network_acls
from lab.control_plane.registration import Made, Resource, drop, keep_tags, register_type
from lab.control_plane.wire import is_true, new_id


def register() -> None:
    register_type(
        "AWS::EC2::NetworkAcl",
        create=_create_acl,
        delete=lambda resource: drop(backend.network_acls, resource.physical_id),
        replacing=("VpcId",),
    )
    register_type(
        "AWS::EC2::NetworkAclEntry",
        create=_create_entry,
        update=_update_entry,
        delete=_delete_entry,
        replacing=("NetworkAclId", "RuleNumber", "Egress"),
    )
    register_type(
        "AWS::EC2::SubnetNetworkAclAssociation",
        create=_create_association,
        delete=_delete_association,
        replacing=("NetworkAclId", "SubnetId"),
    )


def _create_acl(resource: Resource) -> Made:
    record = network_acls.make(resource.properties["VpcId"])
    keep_tags(record["NetworkAclId"], resource.properties)
    return record["NetworkAclId"], {"Id": record["NetworkAclId"]}


def _create_entry(resource: Resource) -> Made:
    network_acls.put_entry(resource.properties["NetworkAclId"], resource.properties, must_be_new=True)
    physical_id = new_id("aclentry")
    return physical_id, {"Id": physical_id}


def _update_entry(resource: Resource) -> Made:
    network_acls.put_entry(resource.properties["NetworkAclId"], resource.properties, must_be_new=False)
    return resource.physical_id, {"Id": resource.physical_id}


def _delete_entry(resource: Resource) -> None:
    given = resource.properties
    record = backend.network_acls.get(given.get("NetworkAclId", ""))
    if record is not None:
        place = int(given["RuleNumber"]), is_true(given.get("Egress", False))
        record["Entries"] = [item for item in record["Entries"] if network_acls.place_of(item) != place]


def _create_association(resource: Resource) -> Made:
    association_id = network_acls.associate(
        resource.properties["SubnetId"], resource.properties["NetworkAclId"]
    )
    return association_id, {"AssociationId": association_id}


def _delete_association(resource: Resource) -> None:
    subnet = backend.subnets.get(resource.properties.get("SubnetId", ""))
    if subnet is not None:
        network_acls.associate(subnet["SubnetId"], network_acls.default_acl(subnet["VpcId"]))
