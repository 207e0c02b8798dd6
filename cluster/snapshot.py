"""A picture of what EC2 holds: the documents of `aws ec2 describe-*`, as objects.

A document that is absent, cut off, paginated and not finished, or holds an entry that
cannot be read, makes its table incomplete and says why. What such a table does hold is
true; what it does not hold is unknown, never absent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Generic, Iterable, Iterator, Mapping, Optional, Tuple, TypeVar

from cluster.rules import Network, NetworkAclEntry, Route, SecurityGroupRule

T = TypeVar("T")

DOCUMENTS = (
    "security-groups",
    "security-group-rules",
    "network-acls",
    "route-tables",
    "subnets",
    "network-interfaces",
    "instances",
    "vpcs",
)


PREFIX_LIST_ENTRIES = "prefix-list-entries"
"""{"PrefixLists": [{"PrefixListId", "Entries"}, ...]}: only needed where a rule or a route names a list."""


@dataclass(frozen=True)
class Table(Generic[T]):
    """What one document told, by id. problem: why it does not tell all; blank = it does."""

    items: Dict[str, T] = field(default_factory=dict)
    problem: str = ""

    @property
    def complete(self) -> bool:
        return not self.problem

    def get(self, item_id: str) -> Optional[T]:
        return self.items.get(item_id)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items.values())

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class Vpc:
    id: str
    cidrs: Tuple[str, ...]  # IPv4 and IPv6, every associated block
    tags: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Subnet:
    id: str
    vpc_id: str
    cidrs: Tuple[str, ...]
    availability_zone: str = ""
    tags: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SecurityGroup:
    """rules: None when the group is known to exist but its rules were not read."""

    id: str
    name: str = ""
    vpc_id: str = ""
    description: str = ""
    rules: Optional[Tuple[SecurityGroupRule, ...]] = None
    tags: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkAcl:
    id: str
    vpc_id: str
    subnet_ids: Tuple[str, ...]
    entries: Tuple[NetworkAclEntry, ...]
    default: bool = False


@dataclass(frozen=True)
class RouteTable:
    id: str
    vpc_id: str
    main: bool
    subnet_ids: Tuple[str, ...]
    routes: Tuple[Route, ...]


@dataclass(frozen=True)
class Interface:
    """One network interface. addresses: all private IPv4, the primary one first, then IPv6.

    group_ids: None when the document does not list them.
    """

    id: str
    subnet_id: str
    vpc_id: str
    group_ids: Optional[Tuple[str, ...]]
    addresses: Tuple[str, ...] = ()
    public_addresses: Tuple[str, ...] = ()
    instance_id: str = ""
    device_index: Optional[int] = None
    network_card_index: int = 0
    status: str = ""
    kind: str = "interface"
    description: str = ""

    @property
    def address(self) -> str:
        """The primary private address; blank for an interface without one (EFA-only)."""
        return self.addresses[0] if self.addresses else ""


@dataclass(frozen=True)
class Instance:
    id: str
    state: str = ""
    instance_type: str = ""
    image_id: str = ""
    availability_zone: str = ""
    placement_group: str = ""
    subnet_id: str = ""
    vpc_id: str = ""
    tags: Dict[str, str] = field(default_factory=dict)
    metadata_options: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterSnapshot:
    security_groups: Table[SecurityGroup] = field(default_factory=Table)
    network_acls: Table[NetworkAcl] = field(default_factory=Table)
    route_tables: Table[RouteTable] = field(default_factory=Table)
    subnets: Table[Subnet] = field(default_factory=Table)
    interfaces: Table[Interface] = field(default_factory=Table)
    instances: Table[Instance] = field(default_factory=Table)
    vpcs: Table[Vpc] = field(default_factory=Table)
    prefix_lists: Dict[str, Tuple[Network, ...]] = field(default_factory=dict)  # read to their end

    @classmethod
    def from_documents(
        cls, documents: Mapping[str, Any], problems: Optional[Mapping[str, str]] = None
    ) -> ClusterSnapshot:
        """Read parsed documents; the keys are those of `DOCUMENTS`.

        A value is exactly what `aws ec2 describe-KEY --output json` prints; None or no key
        means that it was not read. The entries of prefix lists are read too, see `PREFIX_LIST_ENTRIES`.
        problems: why a document is absent ("access denied").
        """
        from cluster.documents import read_documents  # noqa: PLC0415 - the reader builds these classes

        return read_documents(documents, problems or {})

    @classmethod
    def from_directory(cls, path: Path) -> ClusterSnapshot:
        """Read KEY.json for every key of `DOCUMENTS` from a folder.

        A file that is missing, unreadable or cut off makes its table incomplete.

        Raises:
            NotADirectoryError: there is no such folder.
        """
        documents, problems = read_directory(path, (*DOCUMENTS, PREFIX_LIST_ENTRIES))
        return cls.from_documents(documents, problems)

    def interfaces_of(self, instance_id: str) -> Tuple[Interface, ...]:
        """The instance's interfaces, the primary one (device index 0) first."""
        own = [item for item in self.interfaces if item.instance_id == instance_id]
        return tuple(sorted(own, key=_interface_order))

    def running_with_tag(self, key: str, value: str) -> Tuple[str, ...]:
        """Ids of running instances with the tag, in the document's order.

        Only all of them when `instances.complete`.
        """
        return tuple(i.id for i in self.instances if i.state == "running" and i.tags.get(key) == value)


def read_directory(path: Path, names: Iterable[str]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """NAME.json of a folder, parsed; and why some are not there.

    Beside prefix-list-entries.json, what `aws ec2 get-managed-prefix-list-entries` printed for one list
    counts too, as prefix-list-entries.pl-....json.

    Raises:
        NotADirectoryError: there is no such folder.
    """
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder; expected one with {', '.join(DOCUMENTS)} as .json")
    documents: Dict[str, Any] = {}
    problems: Dict[str, str] = {}
    lists = sorted(file.stem for file in path.glob(f"{PREFIX_LIST_ENTRIES}.pl-*.json"))
    for name in (*names, *lists):
        file = path / f"{name}.json"
        try:
            documents[name] = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            problems[name] = f"{file.name} is absent"
        except (ValueError, RecursionError) as error:
            problems[name] = f"{file.name} is cut off or not JSON ({error})"
        except OSError as error:
            problems[name] = f"{file.name} could not be read ({error.strerror})"
    single = [
        {**documents.pop(name), "PrefixListId": name.partition(".")[2]}
        for name in lists
        if isinstance(documents.get(name), dict)
    ]
    if single:
        joined = documents.get(PREFIX_LIST_ENTRIES)
        known = joined.get("PrefixLists") if isinstance(joined, dict) else None
        documents[PREFIX_LIST_ENTRIES] = {
            "PrefixLists": [*(known if isinstance(known, list) else ()), *single]
        }
    return documents, problems


def _interface_order(item: Interface) -> Tuple[int, int]:
    unknown_last = 1_000_000
    return (unknown_last if item.device_index is None else item.device_index, item.network_card_index)
