"""What is to be launched: launch template data and a request's own parameters, merged.

Launch template data has the same shape wherever it comes from: CloudFormation writes it
with the API's names, and the query protocol's singular names are translated once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lab.control_plane import backend
from lab.control_plane.wire import ApiError, Parameters, is_true, nested, xml

Data = dict[str, Any]

# The query protocol's names of lists, as the API (and CloudFormation) names them.
_LIST_NAMES = {
    "SecurityGroupId": "SecurityGroupIds",
    "SecurityGroup": "SecurityGroups",
    "BlockDeviceMapping": "BlockDeviceMappings",
    "NetworkInterface": "NetworkInterfaces",
    "TagSpecification": "TagSpecifications",
    "Tag": "Tags",
}
# The same lists in an answer.
_ANSWER_NAMES = {
    "SecurityGroupIds": "securityGroupIdSet",
    "SecurityGroups": "securityGroupSet",
    "BlockDeviceMappings": "blockDeviceMappingSet",
    "NetworkInterfaces": "networkInterfaceSet",
    "TagSpecifications": "tagSpecificationSet",
    "Tags": "tagSet",
    "Groups": "groupSet",
}


@dataclass(frozen=True)
class InterfaceSpec:
    """One network interface of an instance to be."""

    device_index: int
    groups: tuple[str, ...]
    network_card_index: int = 0
    associate_public: bool | None = None  # None = what the subnet says
    private_address: str = ""
    description: str = ""
    interface_type: str = "interface"
    connection_tracking: Data = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchSpec:
    """One instance to be. user_data is base64; a blank string means "none"."""

    image_id: str
    instance_type: str
    subnet_id: str
    interfaces: tuple[InterfaceSpec, ...]
    key_name: str = ""
    user_data: str = ""
    placement_group: str = ""
    tenancy: str = "default"
    instance_profile: Data = field(default_factory=dict)
    metadata_options: Data = field(default_factory=dict)
    capacity_reservation_id: str = ""
    market_type: str = ""
    detailed_monitoring: bool = False
    tags: tuple[tuple[str, str], ...] = ()
    volume_tags: tuple[tuple[str, str], ...] = ()
    block_devices: tuple[Data, ...] = ()


def with_api_names(value: Any) -> Any:
    """The query protocol's list names replaced by the API's, at every depth."""
    if isinstance(value, list):
        return [with_api_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {
        (_LIST_NAMES.get(key, key) if isinstance(item, list) else key): with_api_names(item)
        for key, item in value.items()
    }
    for interface in renamed.get("NetworkInterfaces", []):
        if "SecurityGroupIds" in interface:
            interface["Groups"] = interface.pop("SecurityGroupIds")
    return renamed


def parse_template_data(params: Parameters, prefix: str) -> Data:
    """LaunchTemplateData from a CreateLaunchTemplate request."""
    data: Data = with_api_names(nested(params, prefix))
    return data


def render_template_data(data: Data) -> str:
    """LaunchTemplateData as the inside of its element in an answer."""
    return xml(_answer_names(data))


def _answer_names(value: Any) -> Any:
    if isinstance(value, list):
        return [_answer_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        _ANSWER_NAMES.get(key, key[0].lower() + key[1:]): _answer_names(item) for key, item in value.items()
    }


def template_data(specification: Data) -> Data:
    """The data of the version that a LaunchTemplateSpecification names.

    Raises:
        ApiError: there is no such template or version.
    """
    template_id = specification.get("LaunchTemplateId", "")
    name = specification.get("LaunchTemplateName", "")
    if not template_id and not name:
        return {}
    template = backend.launch_templates.get(template_id) or next(
        (t for t in backend.launch_templates.values() if name and t["LaunchTemplateName"] == name), None
    )
    if template is None:
        code = "InvalidLaunchTemplateId.NotFound"
        raise ApiError(
            code, f"The specified launch template, with template ID {template_id}, does not exist."
        )
    number = version_number(template, str(specification.get("Version") or "$Default"))
    for version in template["Versions"]:
        if int(version["VersionNumber"]) == number:
            data: Data = version["LaunchTemplateData"]
            return data
    raise ApiError(
        "InvalidLaunchTemplateId.VersionNotFound",
        f"Could not find the specified version {number} for the launch template with ID {template_id}.",
    )


def version_number(template: Data, version: str) -> int:
    if version == "$Latest":
        return int(template["LatestVersionNumber"])
    if version == "$Default":
        return int(template["DefaultVersionNumber"])
    return int(version)


def launch_spec(data: Data, *, subnet_id: str, extra_tags: dict[str, str] | None = None) -> LaunchSpec:
    """Build the instance to be from merged launch data; an interface's own subnet comes first.

    Raises:
        ApiError: EC2 would refuse the combination (groups beside a network interface block).
    """
    interfaces = data.get("NetworkInterfaces") or []
    groups = tuple(data.get("SecurityGroupIds") or ()) + _named_groups(data, subnet_id)
    if interfaces and groups:
        raise ApiError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same "
            "request",
        )
    own_subnet = next((item["SubnetId"] for item in interfaces if item.get("SubnetId")), "")
    placement = data.get("Placement") or {}
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    tags = {**_tags_for(data, "instance"), **(extra_tags or {})}
    return LaunchSpec(
        image_id=data.get("ImageId", ""),
        instance_type=data.get("InstanceType") or "m1.small",
        subnet_id=own_subnet or subnet_id,
        interfaces=tuple(_interface(item) for item in interfaces) or (InterfaceSpec(0, groups),),
        key_name=data.get("KeyName", ""),
        user_data=data.get("UserData", ""),
        placement_group=placement.get("GroupName", "") or _group_name(placement.get("GroupId", "")),
        tenancy=placement.get("Tenancy") or "default",
        instance_profile=data.get("IamInstanceProfile") or {},
        metadata_options=data.get("MetadataOptions") or {},
        capacity_reservation_id=target.get("CapacityReservationId", ""),
        market_type=(data.get("InstanceMarketOptions") or {}).get("MarketType", ""),
        detailed_monitoring=is_true((data.get("Monitoring") or {}).get("Enabled", False)),
        tags=tuple(tags.items()),
        volume_tags=tuple(_tags_for(data, "volume").items()),
        block_devices=tuple(data.get("BlockDeviceMappings") or ()),
    )


def _interface(item: Data) -> InterfaceSpec:
    public = item.get("AssociatePublicIpAddress")
    return InterfaceSpec(
        device_index=int(item.get("DeviceIndex", 0)),
        groups=tuple(item.get("Groups") or ()),
        network_card_index=int(item.get("NetworkCardIndex", 0)),
        associate_public=None if public is None else is_true(public),
        private_address=item.get("PrivateIpAddress", ""),
        description=item.get("Description", ""),
        interface_type=item.get("InterfaceType") or "interface",
        connection_tracking=item.get("ConnectionTrackingSpecification") or {},
    )


def _tags_for(data: Data, resource: str) -> dict[str, str]:
    return {
        str(tag["Key"]): str(tag.get("Value", ""))
        for specification in data.get("TagSpecifications") or []
        if specification.get("ResourceType") == resource
        for tag in specification.get("Tags") or []
    }


def _named_groups(data: Data, subnet_id: str) -> tuple[str, ...]:
    names = data.get("SecurityGroups") or []
    vpc_id = (backend.subnets.get(subnet_id) or {}).get("VpcId")
    return tuple(
        group["GroupId"]
        for group in backend.security_groups.values()
        if group["GroupName"] in names and group["VpcId"] == vpc_id
    )


def _group_name(group_id: str) -> str:
    return next((g["GroupName"] for g in backend.placement_groups.values() if g["GroupId"] == group_id), "")
