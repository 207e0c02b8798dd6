"""Reads the entries of prefix lists and puts them into the rules and routes that name one."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any, Dict, Mapping, Tuple

from cluster.document_rules import need
from cluster.rules import Network, SourceKind
from cluster.snapshot import RouteTable, SecurityGroup, Table

Lists = Mapping[str, Tuple[Network, ...]]


def read_prefix_lists(document: Any) -> Dict[str, Tuple[Network, ...]]:
    """The entries of each list that was read to its end, by its id.

    A list that is paginated and not finished, or of another shape, stays unread.
    """
    found: Dict[str, Tuple[Network, ...]] = {}
    lists = document.get("PrefixLists") if isinstance(document, Mapping) else None
    for item in lists if isinstance(lists, list) else ():
        try:
            if item.get("NextToken") or not isinstance(item.get("Entries"), list):
                continue
            entries = (ipaddress.ip_network(need(entry, "Cidr"), strict=False) for entry in item["Entries"])
            found[need(item, "PrefixListId")] = tuple(entries)
        except (ValueError, TypeError, AttributeError):
            continue
    return found


def with_group_entries(groups: Table[SecurityGroup], lists: Lists) -> Table[SecurityGroup]:
    """The groups with the entries of the prefix lists that their rules name."""
    return dataclasses.replace(groups, items={key: _group(item, lists) for key, item in groups.items.items()})


def _group(group: SecurityGroup, lists: Lists) -> SecurityGroup:
    if not lists or group.rules is None:
        return group
    rules = tuple(
        dataclasses.replace(rule, entries=lists.get(rule.source))
        if rule.kind is SourceKind.PREFIX_LIST
        else rule
        for rule in group.rules
    )
    return dataclasses.replace(group, rules=rules)


def with_route_entries(tables: Table[RouteTable], lists: Lists) -> Table[RouteTable]:
    """The route tables with the entries of the prefix lists that their routes name."""
    return dataclasses.replace(tables, items={key: _table(item, lists) for key, item in tables.items.items()})


def _table(table: RouteTable, lists: Lists) -> RouteTable:
    routes = tuple(
        dataclasses.replace(route, entries=lists.get(route.prefix_list)) if route.prefix_list else route
        for route in table.routes
    )
    return dataclasses.replace(table, routes=routes)
