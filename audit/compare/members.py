"""Each member against the launch template it should have come from, and who else bears the cluster's tag."""

from __future__ import annotations

import dataclasses
from typing import Any

from audit import undo
from audit.compare.fleet import GROUP, TEMPLATE
from audit.compare.scene import Scene, declared_tags
from audit.difference import Change, Deviation, Meaning
from audit.documents import Json
from audit.intrinsics import known
from audit.template import Resource
from cluster.keys import CLUSTER_TAG
from cluster.snapshot import Interface

METADATA = {
    "HttpTokens": "metadata answers without a token: a request that a node is tricked into reads it",
    "HttpEndpoint": "the metadata service is off: a node cannot read its credentials",
    "HttpPutResponseHopLimit": "containers reach the metadata service from elsewhere than the stack told",
    "InstanceMetadataTags": "tags can be read from inside the node",
}
METADATA_DEFAULTS = {"HttpEndpoint": "enabled", "InstanceMetadataTags": "disabled"}

DEFAULT_CONNTRACK_S = 432_000

CONNTRACK = "an idle connection is forgotten after another time than the stack told; Gloo sends no keepalive"


def compare(scene: Scene, members: tuple[str, ...]) -> None:
    """members: ids of the running instances of the fleet."""
    template = next(scene.stack.of_type(TEMPLATE), None)
    problem = scene.documents.problem("instances")
    if problem:
        scene.note(f"members cannot be compared: {problem}")
        return
    data: Json = (template.get("LaunchTemplateData") if template else None) or {}
    by_id = {str(item.get("InstanceId")): item for item in scene.documents.instances()}
    for member in members if template is not None else ():
        _Member(scene, template.logical_id if template else "", data, by_id[member]).compare()
    _volumes(scene, template.logical_id if template else "", data, members)
    _strangers(scene)


class _Member:
    """One running member."""

    def __init__(self, scene: Scene, logical_id: str, data: Json, entry: Json) -> None:
        self._scene = scene
        self._logical_id = logical_id
        self._data = data
        self._entry = entry
        self._id = str(entry.get("InstanceId"))

    def _value(self, attribute: str, told: Any, actual: Any, why: str, *revert: Change) -> None:
        self._scene.value(self._id, self._logical_id, attribute, told, actual, why, revert=revert)

    def compare(self) -> None:
        entry, data = self._entry, self._data
        placement = entry.get("Placement") or {}
        why = "this member is not what the mesh was proven with"
        self._value("InstanceType", data.get("InstanceType"), entry.get("InstanceType"), why)
        self._value("ImageId", data.get("ImageId"), entry.get("ImageId"), why)
        profile = (data.get("IamInstanceProfile") or {}).get("Arn")
        actual = (entry.get("IamInstanceProfile") or {}).get("Arn")
        self._value(
            "IamInstanceProfile", profile, actual, "this member may do other things than the stack told"
        )
        self._value(
            "placement group",
            (data.get("Placement") or {}).get("GroupName"),
            placement.get("GroupName") or None,
            "it is not kept close to the others: its latency and bandwidth are whatever EC2 has",
        )
        self._monitoring()
        self._reservation()
        self._metadata()
        self._interfaces()
        self._tags()

    def _monitoring(self) -> None:
        told = (self._data.get("Monitoring") or {}).get("Enabled")
        actual = (self._entry.get("Monitoring") or {}).get("State") in ("enabled", "pending")
        change = Change("ec2", "monitor_instances", {"InstanceIds": [self._id]})
        self._value(
            "detailed monitoring", told, actual, "its metrics come every 5 minutes, not every one", change
        )

    def _reservation(self) -> None:
        target = (self._data.get("CapacityReservationSpecification") or {}).get(
            "CapacityReservationTarget"
        ) or {}
        self._value(
            "capacity reservation",
            target.get("CapacityReservationId"),
            self._entry.get("CapacityReservationId"),
            "it does not run on the capacity that was reserved for it",
        )

    def _metadata(self) -> None:
        told: Json = {**METADATA_DEFAULTS, **(self._data.get("MetadataOptions") or {})}
        actual: Json = self._entry.get("MetadataOptions") or {}
        for key, why in METADATA.items():
            if key in actual or key in (self._data.get("MetadataOptions") or {}):
                arguments = {"InstanceId": self._id, key: told.get(key)}
                change = Change("ec2", "modify_instance_metadata_options", arguments)
                self._value(f"metadata option {key}", told.get(key), actual.get(key), why, change)

    def _tags(self) -> None:
        told: Json = {}
        for specification in self._data.get("TagSpecifications") or ():
            if specification.get("ResourceType") == "instance":
                told.update(declared_tags(Resource("", "", "", specification)))
        for group in self._scene.stack.of_type(GROUP):
            told.update(declared_tags(group))
        stack_tags = self._scene.stack.tags
        actual = [
            tag
            for tag in self._entry.get("Tags") or ()
            if tag.get("Key") not in stack_tags or tag["Key"] in told
        ]
        lost = CLUSTER_TAG in told and not any(
            tag.get("Key") == CLUSTER_TAG and tag.get("Value") == told[CLUSTER_TAG] for tag in actual
        )
        why = "whoever finds members by their tag does not find this one" if lost else ""
        self._scene.tags(
            self._id, self._logical_id, {**stack_tags, **told}, [*actual, *_as_tags(stack_tags)], why
        )

    def _interfaces(self) -> None:
        if self._scene.documents.problem("network-interfaces"):
            self._scene.table("network-interfaces", "NetworkInterfaceId", "members' interfaces")
            return
        told = {int(item.get("DeviceIndex") or 0): item for item in self._data.get("NetworkInterfaces") or ()}
        documents = {
            str(item.get("NetworkInterfaceId")): item
            for item in self._scene.documents.entries("network-interfaces")
        }
        for interface in self._scene.snapshot.interfaces_of(self._id):
            expected = told.get(interface.device_index or 0)
            if expected is None or interface.network_card_index:
                self._surplus(interface)
            else:
                self._interface(interface, expected, documents.get(interface.id, {}))

    def _surplus(self, interface: Interface) -> None:
        self._scene.add(
            Deviation(
                resource=interface.id,
                logical_id=self._logical_id,
                attribute=f"interface {interface.device_index} of {self._id}",
                expected=None,
                actual=interface.address or interface.kind,
                why="replies may leave by another interface than the request came by, and are dropped",
                undo=undo.without_interfaces((interface.id,)),
                alike=("interface", interface.group_ids),
                involves=self._id,
            )
        )

    def _interface(self, interface: Interface, told: Json, entry: Json) -> None:
        self._groups(interface, told.get("Groups"))
        tracking = (told.get("ConnectionTrackingSpecification") or {}).get("TcpEstablishedTimeout")
        actual = (entry.get("ConnectionTrackingConfiguration") or {}).get("TcpEstablishedTimeout")
        if actual is None and tracking == DEFAULT_CONNTRACK_S:
            actual = tracking  # EC2 need not repeat its own default
        timeout = {"TcpEstablishedTimeout": tracking}
        change = Change(
            "ec2",
            "modify_network_interface_attribute",
            {"NetworkInterfaceId": interface.id, "ConnectionTrackingSpecification": timeout},
        )
        add, where = self._scene.value, (interface.id, self._logical_id)
        add(*where, "TcpEstablishedTimeout", tracking, actual, CONNTRACK, revert=(change,))
        check = Change(
            "ec2",
            "modify_network_interface_attribute",
            {"NetworkInterfaceId": interface.id, "SourceDestCheck": {"Value": True}},
        )
        why = "the interface may send and take packets of other addresses"
        add(*where, "SourceDestCheck", True, entry.get("SourceDestCheck"), why, revert=(check,))
        add(*where, "InterfaceType", told.get("InterfaceType"), interface.kind, "it is no EFA")
        if told.get("AssociatePublicIpAddress") is False and interface.public_addresses:
            self._public(interface)

    def _public(self, interface: Interface) -> None:
        self._scene.add(
            Deviation(
                resource=interface.id,
                logical_id=self._logical_id,
                attribute="public address",
                expected=None,
                actual=", ".join(interface.public_addresses),
                why="the internet knows an address of this member; no rule lets anybody in by it",
                undo=undo.interface(
                    interface.id, lambda item: dataclasses.replace(item, public_addresses=())
                ),
                alike="public address",
                involves=self._id,
            )
        )

    def _groups(self, interface: Interface, told: Any) -> None:
        if not isinstance(told, list) or not known(told):
            return
        actual = interface.group_ids
        if actual is None:
            self._scene.note(f"the groups of {interface.id} cannot be compared: they are not listed")
            return
        if sorted(told) == sorted(actual):
            return
        arguments = {"NetworkInterfaceId": interface.id, "Groups": list(told)}
        self._scene.add(
            Deviation(
                resource=interface.id,
                logical_id=self._logical_id,
                attribute=f"security groups of {self._id}",
                expected=sorted(told),
                actual=sorted(actual),
                why="other rules decide what this member may send and take; for now they let the mesh pass",
                undo=undo.interface(
                    interface.id, lambda item: dataclasses.replace(item, group_ids=tuple(told))
                ),
                revert=(Change("ec2", "modify_network_interface_attribute", arguments),),
                alike=("groups", tuple(sorted(actual))),
                involves=self._id,
            )
        )


def _as_tags(tags: Any) -> list[Json]:
    return [{"Key": key, "Value": value} for key, value in dict(tags).items()]


def _volumes(scene: Scene, logical_id: str, data: Json, members: tuple[str, ...]) -> None:
    """Members' disks as the launch template maps them."""
    mapped = {
        str(item.get("DeviceName")): item.get("Ebs") or {} for item in data.get("BlockDeviceMappings") or ()
    }
    if not mapped or not members:
        return
    volumes = scene.table("volumes", "VolumeId", "members' disks")
    for volume_id, entry in (volumes or {}).items():
        for attachment in entry.get("Attachments") or ():
            if attachment.get("InstanceId") not in members:
                continue
            told = mapped.get(str(attachment.get("Device")))
            if told is None:
                scene.value(
                    volume_id,
                    logical_id,
                    f"disk of {attachment.get('InstanceId')}",
                    [],
                    [str(attachment.get("Device"))],
                    "a disk that the stack did not tell is attached",
                    Meaning.COSMETIC,
                )
                continue
            why = "what a member writes is not encrypted"
            scene.value(
                volume_id, logical_id, "Encrypted", told.get("Encrypted"), entry.get("Encrypted"), why
            )
            for key, name in (("VolumeType", "VolumeType"), ("VolumeSize", "Size")):
                scene.value(
                    volume_id,
                    logical_id,
                    key,
                    told.get(key),
                    entry.get(name),
                    "the disk is another one than the stack told; the mesh does not depend on it",
                    Meaning.COSMETIC,
                )


def _strangers(scene: Scene) -> None:
    """Running instances that bear the cluster's tag and are not of its fleet."""
    if scene.documents.problem("auto-scaling-groups"):
        return
    fleet = {
        str(item.get("InstanceId"))
        for entry in scene.documents.entries("auto-scaling-groups")
        for item in entry.get("Instances") or ()
    }
    name = scene.stack.config.cluster if scene.stack.config else scene.stack.name
    for instance in scene.snapshot.instances:
        if instance.state != "running" or instance.id in fleet or instance.tags.get(CLUSTER_TAG) != name:
            continue
        scene.add(
            Deviation(
                resource=instance.id,
                logical_id="",
                attribute="membership",
                expected=None,
                actual=f"runs with tag {CLUSTER_TAG}={name}",
                why="it counts as a member wherever those are found by their tag, and is not of the fleet",
                undo=undo.without_interfaces(item.id for item in scene.snapshot.interfaces_of(instance.id)),
            )
        )
