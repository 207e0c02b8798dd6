"""The snapshot without one difference: what the meaning of that difference is told from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TypeVar

from audit.difference import Undo
from cluster.rules import NetworkAclEntry, Route, SecurityGroupRule
from cluster.snapshot import ClusterSnapshot, Interface, NetworkAcl, RouteTable, SecurityGroup, Table

T = TypeVar("T")


def _changed(table: Table[T], item_id: str, change: Callable[[T], T]) -> Table[T]:
    """The table with one item changed; as it is where it does not hold the item."""
    item = table.get(item_id)
    if item is None:
        return table
    return dataclasses.replace(table, items={**table.items, item_id: change(item)})


def rules(
    group_id: str, *, gone: Iterable[SecurityGroupRule] = (), back: Iterable[SecurityGroupRule] = ()
) -> Undo:
    """A group without the rules in `gone`, and with those in `back`."""
    away = set(gone)
    more = tuple(back)

    def change(group: SecurityGroup) -> SecurityGroup:
        kept = tuple(rule for rule in group.rules or () if rule not in away)
        return dataclasses.replace(group, rules=(*kept, *more))

    def undo(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        groups = _changed(snapshot.security_groups, group_id, change)
        return dataclasses.replace(snapshot, security_groups=groups)

    return undo


def acl_entries(
    acl_id: str, *, gone: Iterable[NetworkAclEntry] = (), back: Iterable[NetworkAclEntry] = ()
) -> Undo:
    """An ACL without the entries in `gone`, and with those in `back`."""
    away = set(gone)
    more = tuple(back)

    def change(acl: NetworkAcl) -> NetworkAcl:
        kept = tuple(entry for entry in acl.entries if entry not in away)
        return dataclasses.replace(acl, entries=(*kept, *more))

    def undo(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        return dataclasses.replace(snapshot, network_acls=_changed(snapshot.network_acls, acl_id, change))

    return undo


def subnet_acl(subnet_id: str, acl_id: str) -> Undo:
    """The subnet associated with this ACL, and with no other."""

    def undo(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        items = {}
        for acl in snapshot.network_acls:
            others = tuple(item for item in acl.subnet_ids if item != subnet_id)
            own = (subnet_id,) if acl.id == acl_id else ()
            items[acl.id] = dataclasses.replace(acl, subnet_ids=(*others, *own))
        return dataclasses.replace(
            snapshot, network_acls=dataclasses.replace(snapshot.network_acls, items=items)
        )

    return undo


def routes(table_id: str, *, gone: Iterable[Route] = (), back: Iterable[Route] = ()) -> Undo:
    """A route table without the routes in `gone`, and with those in `back`."""
    away = set(gone)
    more = tuple(back)

    def change(table: RouteTable) -> RouteTable:
        kept = tuple(route for route in table.routes if route not in away)
        return dataclasses.replace(table, routes=(*kept, *more))

    def undo(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        return dataclasses.replace(snapshot, route_tables=_changed(snapshot.route_tables, table_id, change))

    return undo


def subnet_routes(subnet_id: str, table_id: str) -> Undo:
    """The subnet associated with this route table, and with no other."""

    def undo(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        items = {}
        for table in snapshot.route_tables:
            others = tuple(item for item in table.subnet_ids if item != subnet_id)
            own = (subnet_id,) if table.id == table_id else ()
            items[table.id] = dataclasses.replace(table, subnet_ids=(*others, *own))
        return dataclasses.replace(
            snapshot, route_tables=dataclasses.replace(snapshot.route_tables, items=items)
        )

    return undo


def interface(interface_id: str, change: Callable[[Interface], Interface]) -> Undo:
    """An interface changed."""

    def undo(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        return dataclasses.replace(snapshot, interfaces=_changed(snapshot.interfaces, interface_id, change))

    return undo


def without_interfaces(ids: Iterable[str]) -> Undo:
    """As if these interfaces did not exist."""
    gone = frozenset(ids)

    def undo(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        kept = {item.id: item for item in snapshot.interfaces if item.id not in gone}
        return dataclasses.replace(snapshot, interfaces=dataclasses.replace(snapshot.interfaces, items=kept))

    return undo
