"""AWS::EC2::SecurityGroupIngress and -Egress, and what drift detection reads of a group."""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend, security_groups
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
    backend.register_drift_reader(
        "AWS::EC2::SecurityGroup",
        _read_group,
        frozenset({"GroupDescription", "VpcId", "SecurityGroupIngress", "SecurityGroupEgress"}),
    )


def _register_rule(name: str, direction: str) -> None:
    def create(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
        rule = _rule(properties, direction)
        rule[ATTACHED] = True
        _add(properties["GroupId"], direction, rule)
        return security_groups.rule_id(rule), {"Id": security_groups.rule_id(rule)}

    def delete(physical_id: str, properties: Record) -> None:
        record = backend.security_groups.get(properties.get("GroupId", ""))
        if record is not None:
            record[direction] = [
                rule for rule in record[direction] if security_groups.rule_id(rule) != physical_id
            ]

    def update(physical_id: str, old: Record, new: Record, stack: str, logical_id: str) -> tuple[str, Record]:
        for rule in _stored(new["GroupId"], direction):
            if security_groups.rule_id(rule) == physical_id:
                _describe(rule, new.get("Description"))
        return physical_id, {"Id": physical_id}

    def read(physical_id: str, properties: Record) -> Record | None:
        for rule in _stored(properties["GroupId"], direction):
            if security_groups.rule_id(rule) == physical_id:
                return {"GroupId": properties["GroupId"], **as_properties(rule, direction)}
        return None

    backend.register_type(
        name,
        create=create,
        delete=delete,
        update=update,
        replacing=("GroupId", "IpProtocol", "FromPort", "ToPort", *_SOURCES[direction]),
    )
    backend.register_drift_reader(
        name,
        read,
        frozenset({"GroupId", "IpProtocol", "FromPort", "ToPort", "Description", *_SOURCES[direction]}),
    )


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


def _add(group_id: str, direction: str, rule: Record) -> None:
    try:
        security_groups.add_rules(group_id, direction, [rule])
    except ApiError as error:
        raise ValueError(f"{error.message} (Service: Ec2, Error Code: {error.code})") from error


def _stored(group_id: str, direction: str) -> list[Record]:
    rules: list[Record] = (backend.security_groups.get(group_id) or {}).get(direction, [])
    return rules


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


def _read_group(physical_id: str, properties: Record) -> Record | None:
    record = backend.security_groups.get(physical_id)
    if record is None:
        return None
    return {
        "GroupDescription": record["Description"],
        "VpcId": record["VpcId"],
        "SecurityGroupIngress": [as_properties(r, INGRESS) for r in record[INGRESS] if not r.get(ATTACHED)],
        "SecurityGroupEgress": [as_properties(r, EGRESS) for r in record[EGRESS] if not r.get(ATTACHED)],
    }
