"""Changes documents of `aws ec2 describe-*` as EC2 would: every function gives new ones."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence

from cluster.document_groups import Key, rule_key
from cluster.document_rules import read_group, read_listed_rule
from cluster.rules import NetworkAclEntry, SecurityGroupRule, SourceKind
from cluster.snapshot import Interface
from diagnosis.rule_commands import permission

Json = Dict[str, Any]
Documents = Mapping[str, Any]

LISTS = {
    "security-groups": ("SecurityGroups", "GroupId"),
    "network-interfaces": ("NetworkInterfaces", "NetworkInterfaceId"),
    "network-acls": ("NetworkAcls", "NetworkAclId"),
}
"""Of each document that is changed in an entry: its list, and what names the entry."""

SOURCES = ("IpRanges", "Ipv6Ranges", "UserIdGroupPairs", "PrefixListIds")
NOT_YET = "sgr-what-if"
"""Stands for the id that EC2 would give to a new rule."""
ACL_NUMBERS = {"tcp": "6", "udp": "17", "icmp": "1", "icmpv6": "58"}
"""ACLs hold the numbers of protocols."""


def _lists(documents: Documents, group_id: str) -> bool:
    """Whether the rules' own document tells of this group, so that it would tell of a new rule."""
    document = documents.get("security-group-rules")
    entries = document.get("SecurityGroupRules") if isinstance(document, Mapping) else None
    return any(_is_object(item) and item.get("GroupId") == group_id for item in entries or ())


def _is_object(item: object) -> bool:
    return isinstance(item, Mapping)


def _key_of_group(rule: SecurityGroupRule) -> str:
    return "IpPermissionsEgress" if rule.egress else "IpPermissions"


def with_rule(documents: Documents, rule: SecurityGroupRule) -> Documents:
    """One rule more."""
    added = permission(rule)
    for reference in added.get("UserIdGroupPairs", ()) if rule.peering_status else ():
        reference["PeeringStatus"] = rule.peering_status

    def add(group: Json) -> None:
        group[_key_of_group(rule)].append(added)

    changed = _edited(documents, "security-groups", rule.group_id, add)
    if _lists(documents, rule.group_id):
        document = dict(changed["security-group-rules"])
        entries = list(document.get("SecurityGroupRules") or ())
        names = {item.get("SecurityGroupRuleId") for item in entries if _is_object(item)}
        number = next(number for number in range(1, len(names) + 2) if f"{NOT_YET}-{number}" not in names)
        document["SecurityGroupRules"] = [*entries, _listed(rule, f"{NOT_YET}-{number}")]
        changed = {**changed, "security-group-rules": document}
    return changed


def _listed(rule: SecurityGroupRule, rule_id: str) -> Json:
    """As describe-security-group-rules prints it."""
    found = permission(rule)
    entry: Json = {
        "SecurityGroupRuleId": rule_id,
        "GroupId": rule.group_id,
        "IsEgress": rule.egress,
        "IpProtocol": rule.protocol,
        "FromPort": found.get("FromPort", -1),
        "ToPort": found.get("ToPort", -1),
    }
    if rule.kind is SourceKind.GROUP:
        peering = {"PeeringStatus": rule.peering_status} if rule.peering_status else {}
        entry["ReferencedGroupInfo"] = {"GroupId": rule.source, **peering}
    elif rule.kind is SourceKind.PREFIX_LIST:
        entry["PrefixListId"] = rule.source
    else:
        entry["CidrIpv6" if ":" in rule.source else "CidrIpv4"] = rule.source
    return entry


def without_rule(documents: Documents, rule: SecurityGroupRule) -> Documents:
    """One rule less; the other sources of its permission stay."""
    gone = rule_key(rule)

    def take(group: Json) -> None:
        kept = []
        for entry in group[_key_of_group(rule)]:
            left = {key: list(_other_sources(entry, key, rule, gone)) for key in SOURCES if entry.get(key)}
            if any(left.values()) or not any(entry.get(key) for key in SOURCES):
                kept.append({**entry, **left})
        group[_key_of_group(rule)] = kept

    changed = _edited(documents, "security-groups", rule.group_id, take)
    document = documents.get("security-group-rules")
    if isinstance(document, Mapping) and isinstance(document.get("SecurityGroupRules"), list):
        entries = [item for item in document["SecurityGroupRules"] if not _is_listed(item, gone)]
        changed = {**changed, "security-group-rules": {**document, "SecurityGroupRules": entries}}
    return changed


def _other_sources(entry: Json, key: str, rule: SecurityGroupRule, gone: Key) -> Iterator[Any]:
    """The sources of one list of a permission that make another rule than the one that goes."""
    bare = {name: value for name, value in entry.items() if name not in SOURCES}
    for source in entry[key]:
        group: Json = {"GroupId": rule.group_id, "IpPermissions": [], "IpPermissionsEgress": []}
        group[_key_of_group(rule)] = [{**bare, key: [source]}]
        _, read = read_group(group)
        if all(rule_key(item) != gone for item in read.rules or ()):
            yield source


def _is_listed(item: Any, gone: Key) -> bool:
    try:
        return rule_key(read_listed_rule(item)[1]) == gone
    except (ValueError, TypeError, AttributeError, LookupError):
        return False  # the reader leaves it out as well, and says so


def _edited(documents: Documents, name: str, item_id: str, edit: Callable[[Json], None]) -> Documents:
    """The documents with one entry of one of them changed; as they are where none holds it."""
    document = documents.get(name)
    if not isinstance(document, Mapping):
        return documents
    key, id_key = LISTS[name]
    entries = list(document.get(key) or ())
    for place, entry in enumerate(entries):
        if _is_object(entry) and entry.get(id_key) == item_id:
            entries[place] = copy.deepcopy(entry)
            edit(entries[place])
    return {**documents, name: {**document, key: entries}}


def with_groups(documents: Documents, interface: Interface, groups: Sequence[str]) -> Documents:
    """The interface with these groups, wherever it is told of."""
    entries = [{"GroupId": item} for item in groups]

    def edit(entry: Json) -> None:
        entry["Groups"] = entries

    changed = _edited(documents, "network-interfaces", interface.id, edit)
    return _in_instances(changed, interface, entries)


def _in_instances(documents: Documents, interface: Interface, groups: List[Json]) -> Documents:
    """describe-instances repeats the groups of each interface, and of the primary one twice."""
    document = documents.get("instances")
    if not isinstance(document, Mapping):
        return documents
    document = copy.deepcopy(dict(document))
    for reservation in document.get("Reservations") or ():
        for instance in (reservation.get("Instances") or ()) if _is_object(reservation) else ():
            for entry in instance.get("NetworkInterfaces") or ():
                if entry.get("NetworkInterfaceId") == interface.id:
                    entry["Groups"] = groups
                    if interface.device_index == 0 and "SecurityGroups" in instance:
                        instance["SecurityGroups"] = groups
    return {**documents, "instances": document}


def with_acl_entry(documents: Documents, acl_id: str, entry: NetworkAclEntry) -> Documents:
    """One entry more of a network ACL."""

    def edit(acl: Json) -> None:
        acl["Entries"] = [*acl["Entries"], _acl_document(entry)]

    return _edited(documents, "network-acls", acl_id, edit)


def without_acl_entry(documents: Documents, acl_id: str, number: int, egress: bool) -> Documents:
    """One entry less."""

    def stays(item: Json) -> bool:
        return bool(item.get("RuleNumber") != number or bool(item.get("Egress")) is not egress)

    def edit(acl: Json) -> None:
        acl["Entries"] = [item for item in acl["Entries"] if stays(item)]

    return _edited(documents, "network-acls", acl_id, edit)


def _acl_document(entry: NetworkAclEntry) -> Json:
    found: Json = {
        "RuleNumber": entry.number,
        "Egress": entry.egress,
        "RuleAction": "allow" if entry.allow else "deny",
        "Protocol": ACL_NUMBERS.get(entry.protocol, entry.protocol),
        "Ipv6CidrBlock" if entry.network.version == 6 else "CidrBlock": str(entry.network),
    }
    if entry.protocol in ("tcp", "udp"):
        found["PortRange"] = {"From": entry.first, "To": entry.last}
    elif entry.protocol in ("icmp", "icmpv6"):
        found["IcmpTypeCode"] = {"Type": entry.first, "Code": entry.last}
    return found
