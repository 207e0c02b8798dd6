"""Security group rules: stored one source each, as EC2 does, by API and by template.

Drift detection here is as blind as CloudFormation's: a property is compared only where the
template sets it, so a group without inline rules never shows a rule that was added by hand.
Rules made by separate SecurityGroupIngress and SecurityGroupEgress resources are not
counted as the group's own.
"""

from __future__ import annotations

import copy
from typing import Any

from lab.control_plane import backend
from lab.control_plane.filters import Facts, all_match
from lab.control_plane.registration import register_ec2_action
from lab.control_plane.wire import (
    ApiError,
    Parameters,
    Reply,
    filters_of,
    nested,
    new_id,
    tag_list,
    xml,
)

Record = dict[str, Any]

INGRESS, EGRESS = "IpPermissions", "IpPermissionsEgress"
ATTACHED = "_Attached"  # marks a rule that a resource of its own made
_PROTOCOLS = {"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6"}
# list of sources -> (its id in a request or template, the same in a rule's answer)
_SOURCES = {
    "IpRanges": ("CidrIp", "cidrIpv4"),
    "Ipv6Ranges": ("CidrIpv6", "cidrIpv6"),
    "PrefixListIds": ("PrefixListId", "prefixListId"),
    "UserIdGroupPairs": ("GroupId", "referencedGroupInfo"),
}


def register() -> None:
    for direction, name in ((INGRESS, "Ingress"), (EGRESS, "Egress")):
        register_ec2_action(f"AuthorizeSecurityGroup{name}", _authorizing(direction, name))
        register_ec2_action(f"RevokeSecurityGroup{name}", _revoking(direction, name))
    register_ec2_action("DescribeSecurityGroups", describe_groups)
    register_ec2_action("DescribeSecurityGroupRules", describe_rules)
    backend.compare_rules_by(lambda rule: {"key": rule_key(rule)})


def group(group_id: str) -> Record:
    record = backend.security_groups.get(group_id)
    if record is None:
        raise ApiError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
    return record


def split(permission: Record, vpc_id: str = "") -> list[Record]:
    """One rule for each source of a permission, with protocol names and group ids resolved."""
    protocol = str(permission.get("IpProtocol", "-1")).lower()
    base: Record = {"IpProtocol": _PROTOCOLS.get(protocol, protocol)}
    if base["IpProtocol"] != "-1":
        base |= {
            key: int(permission[key])
            for key in ("FromPort", "ToPort")
            if permission.get(key) not in (None, "")
        }
    rules = []
    for name in _SOURCES:
        for source in permission.get(name) or []:
            entry = dict(source)
            if name == "UserIdGroupPairs":
                entry["GroupId"] = entry.get("GroupId") or _group_by_name(entry.get("GroupName", ""), vpc_id)
                entry = {
                    "GroupId": entry["GroupId"],
                    "UserId": entry.get("UserId") or backend.account_id(),
                } | {key: entry[key] for key in ("Description",) if entry.get(key)}
            rules.append({**base, **{other: [] for other in _SOURCES}, name: [entry]})
    return rules


def rule_key(rule: Record) -> tuple[Any, ...]:
    """What makes two rules the same to EC2: all but description, owner and id."""
    sources = sorted(
        (name, str(source.get(_SOURCES[name][0], ""))) for name in _SOURCES for source in rule.get(name) or []
    )
    protocol = str(rule.get("IpProtocol", "-1")).lower()
    ports = (rule.get("FromPort"), rule.get("ToPort")) if protocol != "-1" else (None, None)
    return (_PROTOCOLS.get(protocol, protocol), *ports, tuple(sources))


def rule_id(rule: Record) -> str:
    identifier: str = rule.setdefault("SecurityGroupRuleId", new_id("sgr"))
    return identifier


def redescribe(rule: Record, told: Record) -> None:
    """Give a stored rule the descriptions of another one with the same sources; none where it has none."""
    for name in _SOURCES:
        for source, other in zip(rule[name], told[name]):
            source.pop("Description", None)
            if other.get("Description"):
                source["Description"] = other["Description"]


def add_rules(group_id: str, direction: str, rules: list[Record]) -> None:
    """Add all rules or none.

    Raises:
        ApiError: one of them is there already.
    """
    stored = group(group_id)[direction]
    present = {rule_key(rule) for rule in stored}
    for rule in rules:
        if rule_key(rule) in present:
            raise ApiError(
                "InvalidPermission.Duplicate", f'the specified rule "{_words(rule)}" already exists'
            )
    for rule in rules:
        rule_id(rule)
        stored.append(rule)


def remove_rules(group_id: str, direction: str, rules: list[Record]) -> list[Record]:
    """Remove rules, whatever their description.

    Raises:
        ApiError: one of them is not there; then nothing is removed.
    """
    record = group(group_id)
    keys = {rule_key(rule) for rule in rules}
    gone = [rule for rule in record[direction] if rule_key(rule) in keys]
    if len(gone) < len(keys):
        raise ApiError(
            "InvalidPermission.NotFound", "The specified rule does not exist in this security group."
        )
    record[direction] = [rule for rule in record[direction] if rule_key(rule) not in keys]
    return gone


def _authorizing(direction: str, name: str) -> Any:
    def authorize(params: Parameters) -> Reply:
        request = nested(params)
        record = group(request.get("GroupId", ""))
        rules = [rule for item in permissions(request) for rule in split(item, record["VpcId"])]
        add_rules(record["GroupId"], direction, rules)
        for specification in request.get("TagSpecification", []):
            for rule in rules:
                backend.ec2_tags[rule_id(rule)] = list(specification.get("Tag", []))
        answer = [_rule_answer(record["GroupId"], direction, rule) for rule in rules]
        return Reply(f"AuthorizeSecurityGroup{name}", xml({"return": True, "securityGroupRuleSet": answer}))

    return authorize


def _revoking(direction: str, name: str) -> Any:
    def revoke(params: Parameters) -> Reply:
        request = nested(params)
        record = group(request.get("GroupId", ""))
        wanted = request.get("SecurityGroupRuleId", [])
        if wanted:
            known = {rule_id(rule): rule for rule in record[direction]}
            missing = [item for item in wanted if item not in known]
            if missing:
                raise ApiError(
                    "InvalidSecurityGroupRuleId.NotFound",
                    f"The security group rule ID '{missing[0]}' does not exist",
                )
            rules = [known[item] for item in wanted]
        else:
            rules = [rule for item in permissions(request) for rule in split(item, record["VpcId"])]
        gone = remove_rules(record["GroupId"], direction, rules)
        answer = [_rule_answer(record["GroupId"], direction, rule) for rule in gone]
        return Reply(
            f"RevokeSecurityGroup{name}", xml({"return": True, "revokedSecurityGroupRuleSet": answer})
        )

    return revoke


def permissions(request: Record) -> list[Record]:
    """IpPermissions of a request, in the nested form or in the old flat one."""
    listed = request.get("IpPermissions")
    if listed:
        return [{**item, "UserIdGroupPairs": item.get("Groups", [])} for item in listed]
    if "IpProtocol" not in request:
        raise ApiError("MissingParameter", "The request must contain the parameter IpPermissions")
    flat: Record = {key: request.get(key) for key in ("IpProtocol", "FromPort", "ToPort")}
    flat["IpRanges"] = [{"CidrIp": request["CidrIp"]}] if request.get("CidrIp") else []
    flat["UserIdGroupPairs"] = [
        {"GroupName": request["SourceSecurityGroupName"]}
        for _ in "1"
        if request.get("SourceSecurityGroupName")
    ]
    return [flat]


def _group_by_name(name: str, vpc_id: str) -> str:
    for record in backend.security_groups.values():
        if record["GroupName"] == name and (not vpc_id or record["VpcId"] == vpc_id):
            return str(record["GroupId"])
    raise ApiError("InvalidGroup.NotFound", f"The security group '{name}' does not exist")


def describe_groups(params: Parameters) -> Reply:
    request = nested(params)
    wanted, filters = request.get("GroupId", []), filters_of(request)
    for item in wanted:
        group(item)
    names = request.get("GroupName", [])
    listed = [
        _group_answer(record)
        for record in backend.security_groups.values()
        if (not wanted or record["GroupId"] in wanted)
        and (not names or record["GroupName"] in names)
        and _group_matches(record, filters)
    ]
    return Reply("DescribeSecurityGroups", xml({"securityGroupInfo": listed}))


def describe_rules(params: Parameters) -> Reply:
    request = nested(params)
    wanted, filters = set(request.get("SecurityGroupRuleId", [])), filters_of(request)
    wanted |= set(filters.get("security-group-rule-id", []))
    listed = [
        _rule_answer(record["GroupId"], direction, rule)
        for record in backend.security_groups.values()
        if not filters.get("group-id") or record["GroupId"] in filters["group-id"]
        for direction in (INGRESS, EGRESS)
        for rule in record[direction]
        if (not wanted or rule_id(rule) in wanted) and backend.tag_filters_match(rule_id(rule), filters)
    ]
    return Reply("DescribeSecurityGroupRules", xml({"securityGroupRuleSet": listed}))


def _group_matches(record: Record, filters: dict[str, list[str]]) -> bool:
    facts: Facts = {
        "group-id": [record["GroupId"]],
        "group-name": [record["GroupName"]],
        "vpc-id": [record["VpcId"]],
        "description": [record["Description"]],
        "owner-id": [record["OwnerId"]],
        "ip-permission.group-id": [
            source["GroupId"] for rule in record[INGRESS] for source in rule["UserIdGroupPairs"]
        ],
        "egress.ip-permission.group-id": [
            source["GroupId"] for rule in record[EGRESS] for source in rule["UserIdGroupPairs"]
        ],
    }
    return all_match(record["GroupId"], facts, filters)


def _words(rule: Record) -> str:
    source = next(str(s[_SOURCES[n][0]]) for n in _SOURCES for s in rule[n])
    protocol = "ALL" if rule["IpProtocol"] == "-1" else rule["IpProtocol"].upper()
    ports = f", from port: {rule['FromPort']}, to port: {rule['ToPort']}" if "FromPort" in rule else ""
    return f"peer: {source}, {protocol}{ports}, ALLOW"


def _group_answer(record: Record) -> Record:
    return {
        "ownerId": record["OwnerId"],
        "groupId": record["GroupId"],
        "groupName": record["GroupName"],
        "groupDescription": record["Description"],
        "vpcId": record["VpcId"],
        "securityGroupArn": (
            f"arn:aws:ec2:{backend.region()}:{record['OwnerId']}:security-group/{record['GroupId']}"
        ),
        "ipPermissions": _grouped(record[INGRESS]),
        "ipPermissionsEgress": _grouped(record[EGRESS]),
        "tagSet": tag_list(backend.ec2_tags.get(record["GroupId"], [])),
    }


def _grouped(rules: list[Record]) -> list[Record]:
    """Rules as EC2 lists them: one permission for all sources of the same ports."""
    permissions: dict[tuple[Any, ...], Record] = {}
    for rule in rules:
        ports = tuple(rule.get(key) for key in ("IpProtocol", "FromPort", "ToPort"))
        permission = permissions.setdefault(
            ports,
            {
                "ipProtocol": ports[0],
                "fromPort": ports[1],
                "toPort": ports[2],
                "groups": [],
                "ipRanges": [],
                "ipv6Ranges": [],
                "prefixListIds": [],
            },
        )
        for name in _SOURCES:
            target = "groups" if name == "UserIdGroupPairs" else name[0].lower() + name[1:]
            for source in copy.deepcopy(rule.get(name) or []):
                if name == "UserIdGroupPairs":
                    source.setdefault("UserId", backend.account_id())
                permission[target].append({key[0].lower() + key[1:]: value for key, value in source.items()})
    return list(permissions.values())


def _rule_answer(group_id: str, direction: str, rule: Record) -> Record:
    answer: Record = {
        "securityGroupRuleId": rule_id(rule),
        "groupId": group_id,
        "groupOwnerId": backend.account_id(),
        "isEgress": direction == EGRESS,
        "ipProtocol": rule["IpProtocol"],
        "fromPort": rule.get("FromPort", -1),
        "toPort": rule.get("ToPort", -1),
    }
    for name, (key, target) in _SOURCES.items():
        for source in rule.get(name) or []:
            value: Any = source[key]
            if name == "UserIdGroupPairs":
                value = {"groupId": value, "userId": source.get("UserId") or backend.account_id()}
            answer |= {target: value, "description": source.get("Description") or None}
    answer["tagSet"] = tag_list(backend.ec2_tags.get(rule_id(rule), []))
    return answer
