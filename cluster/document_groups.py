"""Joins the two documents that describe security groups: the groups, and their rules listed one by one."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Sequence, Tuple

from cluster.rules import SecurityGroupRule
from cluster.snapshot import SecurityGroup, Table

Key = Tuple[object, ...]


def joined(groups: Table[SecurityGroup], listed: Table[SecurityGroupRule]) -> Table[SecurityGroup]:
    """Groups with their rules; the rules' own ids are added where their document is there.

    A group that the groups' document does not hold, and does not claim not to exist, is told by a whole
    document of the rules alone. Where both describe a group and disagree, they were read at different
    times: a rule that one of them lacks is disputed.
    """
    by_group: Dict[str, List[SecurityGroupRule]] = {}
    for rule in listed:
        by_group.setdefault(rule.group_id, []).append(rule)
    items = {group.id: _confirmed(group, by_group.get(group.id, ()), listed.complete) for group in groups}
    if listed.complete and not groups.complete:
        for group_id, own in by_group.items():
            items.setdefault(group_id, SecurityGroup(id=group_id, rules=tuple(own)))
    return Table(items=items, problem=groups.problem)


def _confirmed(group: SecurityGroup, listed: Sequence[SecurityGroupRule], whole: bool) -> SecurityGroup:
    """The group with rule ids; a document that names no rule of it says nothing about it."""
    if not listed:
        return group
    own = group.rules or ()
    named = {rule_key(rule): rule.rule_id for rule in listed}
    known = {rule_key(rule) for rule in own}
    rules = [
        dataclasses.replace(
            rule, rule_id=named.get(rule_key(rule), ""), disputed=whole and rule_key(rule) not in named
        )
        for rule in own
    ]
    rules += [dataclasses.replace(rule, disputed=True) for rule in listed if rule_key(rule) not in known]
    return dataclasses.replace(group, rules=tuple(rules))


def rule_key(rule: SecurityGroupRule) -> Key:
    """What makes two rules one, however a document writes it."""
    ports = (rule.first, rule.last)
    if ports in ((None, None), (-1, -1), (0, 65535)):
        ports = (None, None)
    return (rule.group_id, rule.egress, rule.protocol, ports, rule.network or rule.source)
