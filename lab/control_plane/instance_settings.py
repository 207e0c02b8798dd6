"""What can be changed on an instance after its launch: metadata options, monitoring, placement; and
descriptions of rules and versions of launch templates, which ministack cannot change either.
"""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend, security_groups
from lab.control_plane.registration import register_ec2_action
from lab.control_plane.wire import ApiError, Parameters, Reply, nested, xml

Record = dict[str, Any]

METADATA_OPTIONS = (
    "HttpTokens",
    "HttpPutResponseHopLimit",
    "HttpEndpoint",
    "HttpProtocolIpv6",
    "InstanceMetadataTags",
)


def register() -> None:
    for name, handler in {
        "ModifyInstanceMetadataOptions": modify_metadata_options,
        "ModifyInstancePlacement": modify_placement,
        "DeleteLaunchTemplateVersions": delete_launch_template_versions,
    }.items():
        register_ec2_action(name, handler)
    for name, state in (("MonitorInstances", "enabled"), ("UnmonitorInstances", "disabled")):
        register_ec2_action(name, _monitoring(name, state))
    for way, direction in (("Ingress", security_groups.INGRESS), ("Egress", security_groups.EGRESS)):
        action = f"UpdateSecurityGroupRuleDescriptions{way}"
        register_ec2_action(action, _describing(action, direction))


def _instance(instance_id: str) -> Record:
    record = backend.instances.get(instance_id)
    if record is None:
        raise ApiError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
    return record


def modify_metadata_options(params: Parameters) -> Reply:
    request = nested(params)
    record = _instance(request.get("InstanceId", ""))
    options: Record = record["MetadataOptions"]
    for key in METADATA_OPTIONS:
        if key in request:
            options[key] = int(request[key]) if key == "HttpPutResponseHopLimit" else request[key]
    shown = {key[0].lower() + key[1:]: value for key, value in options.items()}
    answer = {"instanceId": record["InstanceId"], "instanceMetadataOptions": shown}
    return Reply("ModifyInstanceMetadataOptions", xml(answer))


def modify_placement(params: Parameters) -> Reply:
    """Into another placement group, or out of any: a blank name. Only while the instance is stopped."""
    request = nested(params)
    record = _instance(request.get("InstanceId", ""))
    if not set(request) & {"Affinity", "HostId", "HostResourceGroupArn", "PartitionNumber", "Tenancy"}:
        # A blank name, which means no group, does not outlive the parsing of the request.
        request = {"GroupName": "", **request}
    if "GroupName" in request:
        if record["State"]["Name"] != "stopped":
            raise ApiError(
                "IncorrectInstanceState",
                f"The instance '{record['InstanceId']}' is not in the 'stopped' state.",
            )
        name = request["GroupName"]
        found = next((g for g in backend.placement_groups.values() if g["GroupName"] == name), None)
        if name and found is None:
            raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        record["Placement"] |= {"GroupName": name, "GroupId": found["GroupId"] if found else ""}
    return Reply("ModifyInstancePlacement", xml({"return": True}))


def _monitoring(action: str, state: str) -> Any:
    def change(params: Parameters) -> Reply:
        records = [_instance(item) for item in nested(params).get("InstanceId", [])]
        for record in records:
            record["Monitoring"]["State"] = state
        listed = [{"instanceId": r["InstanceId"], "monitoring": {"state": state}} for r in records]
        return Reply(action, xml({"instancesSet": listed}))

    return change


def _describing(action: str, direction: str) -> Any:
    def describe(params: Parameters) -> Reply:
        request = nested(params)
        record = security_groups.group(request.get("GroupId", ""))
        stored = {security_groups.rule_key(rule): rule for rule in record[direction]}
        for item in security_groups.permissions(request):
            for told in security_groups.split(item, record["VpcId"]):
                rule = stored.get(security_groups.rule_key(told))
                if rule is None:
                    raise ApiError(
                        "InvalidPermission.NotFound",
                        "The specified rule does not exist in this security group.",
                    )
                security_groups.redescribe(rule, told)
        return Reply(action, xml({"return": True}))

    return describe


def delete_launch_template_versions(params: Parameters) -> Reply:
    request = nested(params)
    template_id = request.get("LaunchTemplateId", "")
    template = backend.launch_templates.get(template_id)
    if template is None:
        raise ApiError(
            "InvalidLaunchTemplateId.NotFound",
            f"The specified launch template, {template_id}, does not exist",
        )
    wanted = [int(item) for item in request.get("LaunchTemplateVersion", [])]
    if template["DefaultVersionNumber"] in wanted:
        raise ApiError("InvalidParameterValue", "The default version of a launch template cannot be deleted")
    gone = [item for item in template["Versions"] if item["VersionNumber"] in wanted]
    template["Versions"] = [item for item in template["Versions"] if item not in gone]
    template["LatestVersionNumber"] = max(item["VersionNumber"] for item in template["Versions"])
    listed = [{"launchTemplateId": template_id, "versionNumber": item["VersionNumber"]} for item in gone]
    answer = {"successfullyDeletedLaunchTemplateVersionSet": listed}
    return Reply("DeleteLaunchTemplateVersions", xml(answer))
