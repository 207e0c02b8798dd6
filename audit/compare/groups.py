"""Security groups: every rule that the template tells, in the group or beside it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from audit import undo
from audit.compare.scene import Scene, declared_tags
from audit.difference import Change, Deviation, Meaning
from audit.documents import Json
from audit.intrinsics import known
from audit.template import Resource
from cluster.document_rules import read_group
from cluster.rules import SecurityGroupRule, SourceKind
from cluster.snapshot import SecurityGroup
from cluster.template_rules import ALLOW_ALL, permission

GROUP = "AWS::EC2::SecurityGroup"
BESIDE = {"AWS::EC2::SecurityGroupIngress": False, "AWS::EC2::SecurityGroupEgress": True}
CLOSED_DEFAULT = "Custom::ClosedDefaultGroup"

Key = tuple[Any, ...]
Told = dict[Key, tuple[SecurityGroupRule, str]]  # key -> the rule, and the logical id that tells it


def compare(scene: Scene) -> None:
    """Every group of the stack, and the VPC's default group that the stack has emptied."""
    entries = scene.table("security-groups", "GroupId", "the rules of security groups")
    if entries is None:
        return
    for resource in scene.stack.of_type(GROUP):
        told = _told(scene, resource)
        if told is not None:
            _group(scene, resource, told, entries)
    for resource in scene.stack.of_type(CLOSED_DEFAULT):
        _group(scene, resource, {}, entries)


def _told(scene: Scene, resource: Resource) -> Told | None:
    """The rules that the template gives a group; None where one of them cannot be told."""
    rules: list[tuple[Json, bool, str]] = [
        *((rule, False, resource.logical_id) for rule in resource.get("SecurityGroupIngress") or ()),
        *((rule, True, resource.logical_id) for rule in resource.get("SecurityGroupEgress") or ()),
    ]
    for other in scene.stack.of_type(*BESIDE):
        if other.get("GroupId") == resource.id:
            rules.append((other.properties, BESIDE[other.type], other.logical_id))
    if not any(egress for _, egress, _ in rules):
        rules.append((dict(ALLOW_ALL), True, resource.logical_id))
    told: Told = {}
    for rule, egress, logical_id in rules:
        if not known(rule):
            scene.note(f"the rules of {resource.id} cannot be compared: {logical_id} is not known in full")
            return None
        for each in _as_ec2(resource.id, rule, egress):
            told[_key(each)] = (each, logical_id)
    return told


def _as_ec2(group_id: str, rule: Json, egress: bool) -> Iterable[SecurityGroupRule]:
    one = permission(rule, egress=egress)
    document = {
        "GroupId": group_id,
        "IpPermissions": [] if egress else [one],
        "IpPermissionsEgress": [one] if egress else [],
    }
    return read_group(document)[1].rules or ()


def _key(rule: SecurityGroupRule) -> Key:
    """What makes two rules one, whatever they are described as."""
    if rule.protocol in ("icmp", "icmpv6"):
        traffic: Any = (rule.first, rule.last)
    else:
        traffic = str(rule.ports(rule.protocol))
    source = str(rule.network) if rule.network is not None else rule.source
    return (rule.egress, rule.protocol, traffic, rule.kind, source)


def _group(scene: Scene, resource: Resource, told: Told, entries: dict[str, Json]) -> None:
    group = scene.snapshot.security_groups.get(resource.id)
    if resource.id not in entries or group is None or group.rules is None:
        if resource.id in entries:
            scene.note(f"the rules of {resource.id} could not be read")
        else:
            scene.missing(resource, "the group is gone, and with it every rule that lets members in")
        return
    disputed = {_key(rule) for rule in group.rules if rule.disputed}
    if disputed:
        scene.note(f"rules of {group.id} cannot be compared: they changed while they were read; look again")
    found = {_key(rule): rule for rule in group.rules if not rule.disputed}
    told = {key: rule for key, rule in told.items() if key not in disputed}
    lost = {key: told[key] for key in told if key not in found}
    more = {key: found[key] for key in found if key not in told}
    for pair in _changed(lost, more):
        (rule, logical_id), actual = lost.pop(pair[0]), more.pop(pair[1])
        _note(scene, logical_id, group, rule, actual)
    for rule, logical_id in lost.values():
        _note(scene, logical_id, group, rule, None)
    for actual in more.values():
        _note(scene, resource.logical_id, group, None, actual)
    for key, (rule, logical_id) in told.items():
        if key in found and found[key].description != rule.description:
            _described(scene, logical_id, group, rule, found[key])
    if resource.type == GROUP:
        tags = entries[resource.id].get("Tags") or ()
        scene.tags(resource.id, resource.logical_id, declared_tags(resource), tags)


def _changed(lost: Told, more: dict[Key, SecurityGroupRule]) -> Iterator[tuple[Key, Key]]:
    """Pairs that are one rule with other ports: the same protocol, way and source, once on each side."""

    def alike(keys: Iterable[Key]) -> dict[Key, list[Key]]:
        found: dict[Key, list[Key]] = {}
        for key in keys:
            found.setdefault((key[0], key[1], *key[3:]), []).append(key)
        return found

    before, after = alike(lost), alike(more)
    for same, keys in before.items():
        if len(keys) == 1 and len(after.get(same, ())) == 1:
            yield keys[0], after[same][0]


def _way(rule: SecurityGroupRule) -> str:
    return "egress" if rule.egress else "ingress"


def _words(rule: SecurityGroupRule | None) -> str | None:
    if rule is None:
        return None
    source = f"{rule.traffic} {'to' if rule.egress else 'from'} {rule.source}"
    return f"{source} ({rule.rule_id})" if rule.rule_id else source


def _note(
    scene: Scene,
    logical_id: str,
    group: SecurityGroup,
    told: SecurityGroupRule | None,
    actual: SecurityGroupRule | None,
) -> None:
    rule = told or actual
    assert rule is not None  # noqa: S101 - one of them is why this is called
    if told is not None:
        what = told.description or f"{told.traffic} {'to' if told.egress else 'from'} {told.source}"
        why = f'what the stack counts on is not allowed any more: "{what}"'
        if actual is not None:
            why = f'a rule allows something else than the stack told: "{what}"'
    else:
        why = (
            "members may send where the stack lets nobody send"
            if rule.egress
            else "it admits somebody who is not there now, but may come"
        )
    scene.add(
        Deviation(
            resource=group.id,
            logical_id=logical_id,
            attribute=f"{_way(rule)} rule",
            expected=_words(told),
            actual=_words(actual),
            why=why,
            undo=undo.rules(
                group.id, gone=() if actual is None else (actual,), back=() if told is None else (told,)
            ),
            revert=tuple(_revert(told, actual)),
        )
    )


def _revert(told: SecurityGroupRule | None, actual: SecurityGroupRule | None) -> Iterator[Change]:
    """Bring the told rule back before the other one goes, so that members are never without both."""
    for rule, verb in ((told, "authorize"), (actual, "revoke")):
        if rule is not None:
            arguments: Json = {"GroupId": rule.group_id}
            if verb == "revoke" and rule.rule_id:
                arguments["SecurityGroupRuleIds"] = [rule.rule_id]  # this one, whatever it was changed to
            else:
                arguments["IpPermissions"] = [as_permission(rule)]
            yield Change("ec2", f"{verb}_security_group_{_way(rule)}", arguments)


def as_permission(rule: SecurityGroupRule) -> Json:
    """The rule as EC2's calls take it."""
    key, name = {
        SourceKind.GROUP: ("UserIdGroupPairs", "GroupId"),
        SourceKind.PREFIX_LIST: ("PrefixListIds", "PrefixListId"),
        SourceKind.CIDR: ("Ipv6Ranges", "CidrIpv6") if ":" in rule.source else ("IpRanges", "CidrIp"),
    }[rule.kind]
    source = {name: rule.source, **({"Description": rule.description} if rule.description else {})}
    ports = {} if rule.first is None else {"FromPort": rule.first, "ToPort": rule.last}
    if rule.protocol in ("tcp", "udp") and rule.first is None:
        ports = {"FromPort": 0, "ToPort": 65535}
    return {"IpProtocol": rule.protocol, **ports, key: [source]}


def _described(
    scene: Scene, logical_id: str, group: SecurityGroup, told: SecurityGroupRule, actual: SecurityGroupRule
) -> None:
    arguments = {"GroupId": group.id, "IpPermissions": [as_permission(told)]}
    scene.add(
        Deviation(
            resource=group.id,
            logical_id=logical_id,
            attribute=f"description of the {_way(told)} rule {told.traffic} {told.source}",
            expected=told.description,
            actual=actual.description,
            why="only the description differs: the rule lets the same traffic pass",
            at_least=Meaning.COSMETIC,
            revert=(Change("ec2", f"update_security_group_rule_descriptions_{_way(told)}", arguments),),
        )
    )
