"""AWS::EC2::SecurityGroupIngress and -Egress, and what drift detection reads of a group."""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend, security_groups
from lab.control_plane.registration import Made, Resource, refused, register_drift_reader, register_type
from lab.control_plane.security_groups import ATTACHED, EGRESS, INGRESS
from lab.control_plane.wire import ApiError

Record = dict[str, Any]

# A rule's property in a template -> (list of sources, id in it), for each direction.
_INGRESS_SOURCES = {
    "CidrIp": ("IpRanges", "CidrIp"),
    "CidrIpv6": ("Ipv6Ranges", "CidrIpv6"),
    "SourcePrefixListId": ("PrefixListIds", "PrefixListId"),
    "SourceSecurityGroupId": ("UserIdGroupPairs", "GroupId"),
}
_EGRESS_SOURCES = {
    "CidrIp": ("IpRanges", "CidrIp"),
    "CidrIpv6": ("Ipv6Ranges", "CidrIpv6"),
    "DestinationPrefixListId": ("PrefixListIds", "PrefixListId"),
    "DestinationSecurityGroupId": ("UserIdGroupPairs", "GroupId"),
}
_SOURCES = {INGRESS: _INGRESS_SOURCES, EGRESS: _EGRESS_SOURCES}


def register() -> None:
    _register_rule("AWS::EC2::SecurityGroupIngress", INGRESS)
    _register_rule("AWS::EC2::SecurityGroupEgress", EGRESS)
    register_drift_reader(
        "AWS::EC2::SecurityGroup",
        _read_group,
        frozenset({"GroupDescription", "VpcId", "SecurityGroupIngress", "SecurityGroupEgress"}),
    )


def _register_rule(name: str, direction: str) -> None:
    def create(resource: Resource) -> Made:
        rule = _rule(resource.properties, direction)
        rule[ATTACHED] = True
        try:
            security_groups.add_rules(resource.properties["GroupId"], direction, [rule])
        except ApiError as error:
            raise refused(error) from error
        return security_groups.rule_id(rule), {"Id": security_groups.rule_id(rule)}

    def update(resource: Resource) -> Made:
        rule = _find(resource, direction)
        if rule is not None:
            _describe(rule, resource.properties.get("Description"))
        return resource.physical_id, {"Id": resource.physical_id}

    def delete(resource: Resource) -> None:
        record = backend.security_groups.get(resource.properties.get("GroupId", ""))
        if record is not None:
            record[direction] = [
                rule for rule in record[direction] if security_groups.rule_id(rule) != resource.physical_id
            ]

    def read(resource: Resource) -> Record | None:
        rule = _find(resource, direction)
        if rule is None:
            return None
        return {"GroupId": resource.properties["GroupId"], **as_properties(rule, direction)}

    compared = ("GroupId", "IpProtocol", "FromPort", "ToPort", *_SOURCES[direction])
    register_type(name, create=create, update=update, delete=delete, replacing=compared)
    register_drift_reader(name, read, frozenset({*compared, "Description"}))


def _find(resource: Resource, direction: str) -> Record | None:
    group = backend.security_groups.get(resource.properties.get("GroupId", "")) or {}
    for rule in group.get(direction, []):
        if security_groups.rule_id(rule) == resource.physical_id:
            found: Record = rule
            return found
    return None


def _rule(properties: Record, direction: str) -> Record:
    permission = {key: properties.get(key) for key in ("IpProtocol", "FromPort", "ToPort")}
    for name, (sources, key) in _SOURCES[direction].items():
        if properties.get(name):
            source = {key: properties[name]}
            if properties.get("Description"):
                source["Description"] = properties["Description"]
            permission[sources] = [source]
    rules = security_groups.split(permission)
    if len(rules) != 1:
        raise ValueError(f"a rule names one peer, this one names {len(rules)}: {properties}")
    return rules[0]


def _describe(rule: Record, description: str | None) -> None:
    for sources, _ in _INGRESS_SOURCES.values():
        for source in rule[sources]:
            source.pop("Description", None)
            if description:
                source["Description"] = description


def as_properties(rule: Record, direction: str) -> Record:
    """A stored rule as the properties of its template form."""
    found: Record = {key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in rule}
    for name, (sources, key) in _SOURCES[direction].items():
        for source in rule.get(sources) or []:
            found[name] = source[key]
            if source.get("Description"):
                found["Description"] = source["Description"]
    return found


def _read_group(resource: Resource) -> Record | None:
    record = backend.security_groups.get(resource.physical_id)
    if record is None:
        return None
    return {
        "GroupDescription": record["Description"],
        "VpcId": record["VpcId"],
        "SecurityGroupIngress": [as_properties(r, INGRESS) for r in record[INGRESS] if not r.get(ATTACHED)],
        "SecurityGroupEgress": [as_properties(r, EGRESS) for r in record[EGRESS] if not r.get(ATTACHED)],
    }
