"""Security group rules of a CloudFormation template, as describe-security-groups would print them."""

from __future__ import annotations

from typing import Any, Dict, Mapping

Json = Dict[str, Any]

ALLOW_ALL: Mapping[str, str] = {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}
"""What EC2 gives a group for which no outbound rule was told."""


def name_of(value: Any) -> str:
    """The logical id behind a Ref or Fn::GetAtt, or the literal itself."""
    if isinstance(value, dict):
        if "Ref" in value:
            return str(value["Ref"])
        if "Fn::GetAtt" in value:
            target = value["Fn::GetAtt"]
            return str(target[0] if isinstance(target, list) else target.split(".")[0])
        return str(value)
    return "" if value is None else str(value)


def permission(rule: Mapping[str, Any], *, egress: bool) -> Json:
    """One rule of a template as one IpPermission."""
    end = "Destination" if egress else "Source"
    group_key, prefix_list_key = f"{end}SecurityGroupId", f"{end}PrefixListId"
    said = {"Description": rule["Description"]} if rule.get("Description") else {}
    sources: Json = {"IpRanges": [], "Ipv6Ranges": [], "UserIdGroupPairs": [], "PrefixListIds": []}
    if "CidrIp" in rule:
        sources["IpRanges"].append({"CidrIp": _cidr(rule["CidrIp"]), **said})
    if "CidrIpv6" in rule:
        sources["Ipv6Ranges"].append({"CidrIpv6": rule["CidrIpv6"], **said})
    if group_key in rule:
        sources["UserIdGroupPairs"].append({"GroupId": name_of(rule[group_key]), **said})
    if prefix_list_key in rule:
        sources["PrefixListIds"].append({"PrefixListId": name_of(rule[prefix_list_key]), **said})
    found: Json = {"IpProtocol": str(rule.get("IpProtocol")), **sources}
    for key in ("FromPort", "ToPort"):
        if rule.get(key) is not None:
            found[key] = int(rule[key])
    return found


def _cidr(value: Any) -> str:
    """A literal range; one that only the deploy knows counts as the whole world, never as nothing."""
    return value if isinstance(value, str) else "0.0.0.0/0"
