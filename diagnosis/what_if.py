"""What the account would show after a change: new documents, made from those that were read.

Pure, and nothing is changed anywhere. The documents are changed as EC2's own calls would change them, so
whatever judges or compares documents answers for the world after the change, too. What EC2 would refuse is
an error here, with EC2's code.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple

from cluster.document_groups import rule_key
from cluster.rules import SecurityGroupRule, SourceKind
from cluster.snapshot import ClusterSnapshot, Interface, NetworkAcl, SecurityGroup, Table
from diagnosis.rule_commands import rule_command, rule_line, way
from diagnosis.what_if_documents import (
    with_acl_entry,
    with_groups,
    with_rule,
    without_acl_entry,
    without_rule,
)
from diagnosis.what_if_words import AclChange, Change, ChangeError, GroupChange, RuleById, RuleChange


class NotReadError(RuntimeError):
    """What a change is about was not read, so that nobody can tell what it does."""


@dataclass(frozen=True)
class Applied:
    """The world after one change.

    text: the change as it was understood. command: the AWS CLI's, with real ids.
    rule: the one that came or went; None = the change was of another kind. came: whether it came.
    notes: what is to be known besides.
    """

    documents: Mapping[str, Any]
    text: str
    command: str
    rule: Optional[SecurityGroupRule] = None
    came: bool = False
    notes: Tuple[str, ...] = ()


def apply(documents: Mapping[str, Any], change: Change, problems: Mapping[str, str]) -> Applied:
    """The documents after the change; those given stay as they are.

    documents, problems: as `ClusterSnapshot.from_documents` takes them.

    Raises:
        ChangeError: EC2 would refuse it, or it names something that is not there.
        NotReadError: what it is about was not read.
    """
    snapshot = ClusterSnapshot.from_documents(documents, problems)
    if isinstance(change, RuleById):
        return _rule(documents, snapshot, _by_id(snapshot, change))
    if isinstance(change, RuleChange):
        return _rule(documents, snapshot, change)
    if isinstance(change, GroupChange):
        return _group(documents, snapshot, change)
    return _acl(documents, snapshot, change)


def _read_group(snapshot: ClusterSnapshot, group_id: str) -> SecurityGroup:
    group = snapshot.security_groups.get(group_id)
    if group is None or group.rules is None:
        raise _absent(snapshot.security_groups, group_id, "security group", "InvalidGroup.NotFound")
    return group


def _absent(table: Table[Any], item_id: str, kind: str, code: str) -> Exception:
    if table.problem:
        return NotReadError(f"what {item_id} holds is not known: {table.problem}")
    there = ", ".join(sorted(table.items)[:6]) + (" and more" if len(table) > 6 else "")
    return ChangeError(
        f"there is no {kind} {item_id} in what was read ({code}); there are: {there or 'none'}"
    )


def _by_id(snapshot: ClusterSnapshot, change: RuleById) -> RuleChange:
    rules = _read_group(snapshot, change.group_id).rules or ()
    for rule in rules:
        if rule.rule_id == change.rule_id:
            return RuleChange(authorize=False, rule=rule)
    named = ", ".join(rule.rule_id for rule in rules if rule.rule_id)
    raise ChangeError(
        f"{change.group_id} has no rule {change.rule_id} (InvalidSecurityGroupRuleId.NotFound); "
        f"its rules' ids: {named or 'not read, name the rule by its values'}"
    )


def _rule(documents: Mapping[str, Any], snapshot: ClusterSnapshot, change: RuleChange) -> Applied:
    rule = change.rule
    own = _read_group(snapshot, rule.group_id).rules or ()
    there = next((item for item in own if rule_key(item) == rule_key(rule)), None)
    if change.authorize:
        if there is not None:
            raise ChangeError(
                f"{rule_line(rule)} is there already: EC2 would answer InvalidPermission.Duplicate"
            )
        rule = _as_read(snapshot, rule)
        changed = with_rule(documents, rule)
    else:
        if there is None:
            raise ChangeError(_not_found(rule, own))
        rule = there
        changed = without_rule(documents, rule)
    notes: Tuple[str, ...] = ()
    if rule.peering_status == "active" and change.authorize:
        notes = (f"{rule.source} is none of the groups that were read: who carries it is not known",)
    verb = "authorize" if change.authorize else "revoke"
    return Applied(
        documents=changed,
        text=f"{verb} {rule_line(rule)}",
        command=rule_command(rule, authorize=change.authorize),
        rule=rule,
        came=change.authorize,
        notes=notes,
    )


def _not_found(rule: SecurityGroupRule, own: Sequence[SecurityGroupRule]) -> str:
    """EC2 takes no part of a rule away: a revoke names a rule exactly."""
    same = [item for item in own if item.egress is rule.egress]
    near = [item for item in same if item.source == rule.source] or same
    there = "; ".join(rule_line(item) for item in near[:6]) + (" and more" if len(near) > 6 else "")
    return (
        f"there is no rule {rule_line(rule)}: EC2 would answer InvalidPermission.NotFound and take nothing "
        f"away, for a revoke names a rule exactly; {'there is' if near else 'it has'}: "
        f"{there or f'no {way(rule)} rule'}"
    )


def _as_read(snapshot: ClusterSnapshot, rule: SecurityGroupRule) -> SecurityGroupRule:
    """A group that was not read is one of a peered VPC, or there is none: nobody knows who carries it."""
    if rule.kind is SourceKind.GROUP and snapshot.security_groups.get(rule.source) is None:
        return dataclasses.replace(rule, peering_status="active")
    return rule


def _group(documents: Mapping[str, Any], snapshot: ClusterSnapshot, change: GroupChange) -> Applied:
    interface = _interface(snapshot, change.target)
    if interface.group_ids is None:
        raise NotReadError(f"which groups {interface.id} carries was not read")
    carried, group_id = list(interface.group_ids), change.group_id
    if change.attach:
        group = _read_group(snapshot, group_id)
        if group_id in carried:
            raise ChangeError(f"{interface.id} carries {group_id} already: nothing would change")
        if group.vpc_id and interface.vpc_id and group.vpc_id != interface.vpc_id:
            raise ChangeError(
                f"{group_id} is of {group.vpc_id}, {interface.id} of {interface.vpc_id}: EC2 would refuse it"
            )
        groups = [*carried, group_id]
    else:
        if group_id not in carried:
            raise ChangeError(f"{interface.id} does not carry {group_id}; it carries {', '.join(carried)}")
        groups = [item for item in carried if item != group_id]
        if not groups:
            raise ChangeError(f"{group_id} is the only group of {interface.id}, and an interface needs one")
    verb, between = ("attach", "to") if change.attach else ("detach", "from")
    return Applied(
        documents=with_groups(documents, interface, groups),
        text=f"{verb} {group_id} {between} {interface.id}",
        command="aws ec2 modify-network-interface-attribute --network-interface-id "
        f"{interface.id} --groups {' '.join(groups)}",
    )


def _interface(snapshot: ClusterSnapshot, target: str) -> Interface:
    found = snapshot.interfaces.get(target)
    if found is None and target.startswith("i-"):
        found = next(iter(snapshot.interfaces_of(target)), None)
    if found is None:
        code = "InvalidInstanceID" if target.startswith("i-") else "InvalidNetworkInterfaceID"
        raise _absent(snapshot.interfaces, target, "interface of", f"{code}.NotFound")
    return found


def _acl(documents: Mapping[str, Any], snapshot: ClusterSnapshot, change: AclChange) -> Applied:
    acl = snapshot.network_acls.get(change.acl_id)
    if acl is None:
        raise _absent(snapshot.network_acls, change.acl_id, "network ACL", "InvalidNetworkAclID.NotFound")
    there = _entry_numbered(acl, change)
    side = "egress" if change.egress else "ingress"
    if change.entry is not None and there:
        raise ChangeError(
            f"{acl.id} has an {side} entry {change.number} already: EC2 would answer "
            "NetworkAclEntryAlreadyExists"
        )
    if change.entry is None and not there:
        numbers = ", ".join(str(item.number) for item in acl.entries if item.egress is change.egress)
        raise ChangeError(
            f"{acl.id} has no {side} entry {change.number}: EC2 would answer "
            f"InvalidNetworkAclEntry.NotFound; there are: {numbers}"
        )

    if change.entry is not None:
        changed = with_acl_entry(documents, acl.id, change.entry)
    else:
        changed = without_acl_entry(documents, acl.id, change.number, change.egress)
    said = f"{change.entry} {side}" if change.entry else f"{side} entry {change.number} deleted"
    return Applied(documents=changed, text=f"{acl.id}: {said}", command=_acl_command(change))


def _entry_numbered(acl: NetworkAcl, change: AclChange) -> bool:
    return any(item.number == change.number and item.egress is change.egress for item in acl.entries)


def _acl_command(change: AclChange) -> str:
    side = "--egress" if change.egress else "--ingress"
    where = f"--network-acl-id {change.acl_id} --rule-number {change.number} {side}"
    entry = change.entry
    if entry is None:
        return f"aws ec2 delete-network-acl-entry {where}"
    block = "--ipv6-cidr-block" if entry.network.version == 6 else "--cidr-block"
    more = f"--port-range From={entry.first},To={entry.last} " if entry.protocol in ("tcp", "udp") else ""
    if entry.protocol in ("icmp", "icmpv6"):
        more = f"--icmp-type-code Type={entry.first},Code={entry.last} "
    return (
        f"aws ec2 create-network-acl-entry {where} --protocol {entry.protocol} {more}"
        f"{block} {entry.network} --rule-action {'allow' if entry.allow else 'deny'}"
    )
