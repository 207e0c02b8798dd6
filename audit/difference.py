"""What a difference is, and how grave: the data between comparing, judging and showing."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cluster.snapshot import ClusterSnapshot


class Meaning(str, Enum):
    """What a difference does, the gravest last.

    A security group's change never cuts a connection that is tracked; a network ACL's or a route's
    does (docs.aws.amazon.com/AWSEC2/latest/UserGuide/security-group-connection-tracking.html). So a
    pair that a group's rules part is broken for new connections only: the running job hides it until
    its next start.
    """

    COSMETIC = "cosmetic"
    WEAKENS = "weakens"
    UNDETERMINED = "undetermined"
    OPENS_CLUSTER = "opens-cluster"
    BREAKS_NEW_CONNECTIONS = "breaks-new-connections-only"
    BREAKS_MESH = "breaks-mesh"

    @property
    def grade(self) -> int:
        return list(Meaning).index(self)

    @property
    def breaks(self) -> bool:
        return self in (Meaning.BREAKS_MESH, Meaning.BREAKS_NEW_CONNECTIONS)


Undo = Callable[[ClusterSnapshot], ClusterSnapshot]
"""Gives the snapshot in which this difference alone does not exist."""


Key = tuple[str, str, str]
"""The same for the same difference in another audit."""


@dataclass(frozen=True)
class Change:
    """One AWS call of a revert. service, operation, arguments: as boto3 takes them."""

    service: str
    operation: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        """The same as a command of the AWS CLI."""
        words = [f"aws {self.service} {self.operation.replace('_', '-')}"]
        words.append(f"--cli-input-json '{json.dumps(dict(self.arguments))}'")
        return " ".join(words)


@dataclass(frozen=True)
class Deviation:
    """Something that is not as the stack was told, before anybody judged what it does.

    resource: the physical id. logical_id: of the template's resource it belongs to; blank = none.
    attribute: what of the resource. expected, actual: JSON values; None = nothing.
    why: what it does where no pair breaks and nobody gets in. at_least: how grave that is.
    undo: None where rules do not depend on it. pairs: (source, destination, ports) of instances that
    it is known to part whatever the rules are. revert: calls that bring it back. alike: differences with
    the same value are judged at once; None = this one alone. involves: the member whose pairs alone it
    can part; blank = any.
    """

    resource: str
    logical_id: str
    attribute: str
    expected: Any
    actual: Any
    why: str
    at_least: Meaning = Meaning.WEAKENS
    undo: Undo | None = None
    pairs: tuple[tuple[str, str, str], ...] = ()
    revert: tuple[Change, ...] = ()
    alike: Hashable = None
    involves: str = ""

    @property
    def key(self) -> Key:
        return (self.resource, self.attribute, f"{self.expected} -> {self.actual}")


@dataclass(frozen=True)
class Parted:
    """Members that cannot reach each other: every source every destination but itself, on these ports.

    Told in groups: of a thousand members there are a million pairs.
    """

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    ports: tuple[str, ...]

    @property
    def pair_count(self) -> int:
        """Ordered pairs of members."""
        itself = len(set(self.sources).intersection(self.destinations))
        return len(self.sources) * len(self.destinations) - itself

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """(source, destination, contiguous ports) of each pair: O(N x N)."""
        for source in self.sources:
            for destination in self.destinations:
                if source != destination:
                    for run in self.ports:
                        yield source, destination, run


@dataclass(frozen=True)
class Difference:
    """A deviation with its meaning.

    parted: whom it breaks. opens_to: who gets in by it, as in `exposed`.
    """

    deviation: Deviation
    meaning: Meaning
    detail: str
    parted: tuple[Parted, ...] = ()
    opens_to: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def pair_count(self) -> int:
        """Ordered pairs of members that it breaks."""
        return sum(item.pair_count for item in self.parted)

    def each_pair(self) -> Iterator[tuple[str, str, str]]:
        """(source, destination, contiguous ports) of each broken pair: O(N x N)."""
        for item in self.parted:
            yield from item.pairs()

    @property
    def pairs(self) -> tuple[tuple[str, str, str], ...]:
        """The same, sorted."""
        return tuple(sorted(self.each_pair(), key=lambda run: (*run[:2], int(run[2].partition("-")[0]))))

    def summary(self) -> dict[str, Any]:
        """The public JSON without the list of pairs."""
        found = self.deviation
        return {
            "resource": found.resource,
            "logical_id": found.logical_id,
            "attribute": found.attribute,
            "expected": found.expected,
            "actual": found.actual,
            "meaning": self.meaning.value,
            "detail": self.detail,
            "opens_to": [dict(item) for item in self.opens_to],
        }

    def document(self) -> dict[str, Any]:
        """The public JSON."""
        pairs = [
            {"source": source, "destination": destination, "ports": ports}
            for source, destination, ports in self.pairs
        ]
        return {**self.summary(), "pairs": pairs}
