"""The entries of the prefix lists that rules and routes name, which no Describe call shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from audit import readings
from audit.account import Account, Unread
from audit.documents import Documents, Json


def named(groups: Json, tables: Json) -> list[str]:
    """Ids of the lists in the rules of groups and in routes.

    A gateway endpoint's route needs none: its list holds a service's public addresses.
    """
    found = {
        item["PrefixListId"]
        for group in groups.get("SecurityGroups", ())
        for key in ("IpPermissions", "IpPermissionsEgress")
        for permission in group.get(key, ())
        for item in permission.get("PrefixListIds", ())
    }
    found |= {
        route["DestinationPrefixListId"]
        for table in tables.get("RouteTables", ())
        for route in table.get("Routes", ())
        if route.get("DestinationPrefixListId") and not str(route.get("GatewayId")).startswith("vpce-")
    }
    return sorted(found)


def read(account: Account, ids: Iterable[str]) -> Json:
    """The entries of each list.

    Raises:
        Unread: AWS did not answer, or refused.
    """
    lists = []
    for each in ids:
        answer = account.pages(readings.PREFIX_LISTS, PrefixListId=each)
        lists.append({"PrefixListId": each, "Entries": answer.get("Entries", [])})
    return {"PrefixLists": lists}


def with_lists(session: Any, documents: Documents, ids: Iterable[str]) -> Documents:
    """The documents with the entries of these lists, too; as they are where those cannot be read."""
    name = readings.PREFIX_LISTS.name
    there = documents.entries(name)
    missing = sorted(set(ids) - {str(item.get("PrefixListId")) for item in there})
    if not missing:
        return documents
    try:
        fresh = read(Account(session), missing)["PrefixLists"]
    except Unread:
        return documents  # the answer says which list was not read, and how to
    lists = {"PrefixLists": [*there, *fresh]}
    return dataclasses.replace(documents, documents={**documents.documents, name: lists})
