"""Everything an audit looks at, as documents: read from an account, or from a folder that one was saved to.

The eight documents of `cluster.snapshot` are exactly what `aws ec2 describe-*` prints, and so
are the others, except for three that no single command prints: `vpc-attributes`,
`prefix-list-entries` and `nodes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.snapshot import DOCUMENTS, PREFIX_LIST_ENTRIES, ClusterSnapshot, read_directory

Json = dict[str, Any]

LIST_KEYS: Mapping[str, str] = {
    "security-groups": "SecurityGroups",
    "security-group-rules": "SecurityGroupRules",
    "network-acls": "NetworkAcls",
    "route-tables": "RouteTables",
    "subnets": "Subnets",
    "network-interfaces": "NetworkInterfaces",
    "instances": "Reservations",
    "vpcs": "Vpcs",
    "stacks": "Stacks",
    "stack-resources": "StackResourceSummaries",
    "vpc-attributes": "VpcAttributes",
    "vpc-endpoints": "VpcEndpoints",
    "flow-logs": "FlowLogs",
    "internet-gateways": "InternetGateways",
    "nat-gateways": "NatGateways",
    "launch-template-versions": "LaunchTemplateVersions",
    "auto-scaling-groups": "AutoScalingGroups",
    "placement-groups": "PlacementGroups",
    "capacity-reservations": "CapacityReservations",
    "volumes": "Volumes",
    PREFIX_LIST_ENTRIES: "PrefixLists",
    "nodes": "Nodes",
}
"""The list that each document holds; `identity` and `stack-template` hold none."""

NAMES = (*LIST_KEYS, "identity", "stack-template")
PROBLEMS = "problems"
"""Beside the documents a folder tells here why one of them was not read."""


@dataclass(frozen=True)
class Documents:
    """documents: by name. problems: why one was not read, or not whole. denied: missing IAM actions."""

    documents: Mapping[str, Any] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    denied: tuple[str, ...] = ()

    def snapshot(self) -> ClusterSnapshot:
        """What rules and members are judged by."""
        return ClusterSnapshot.from_documents(
            {name: self.documents.get(name) for name in (*DOCUMENTS, PREFIX_LIST_ENTRIES)}, self.problems
        )

    def has(self, name: str) -> bool:
        return self.documents.get(name) is not None

    def problem(self, name: str) -> str:
        """Why the document does not hold everything; blank = it does."""
        document = self.documents.get(name)
        if document is None:
            return self.problems.get(name) or f"{name} was not read"
        key = LIST_KEYS.get(name)
        if not isinstance(document, dict) or (key and not isinstance(document.get(key), list)):
            return f"{name} has no list {key!r}" if key else f"{name} is no object"
        if document.get("NextToken"):
            return f"{name} ends with a NextToken: there is more that was not read"
        return self.problems.get(name, "")

    def entries(self, name: str) -> list[Json]:
        """What the document's list holds; none where it was not read: `problem` tells that."""
        document = self.documents.get(name)
        found = document.get(LIST_KEYS[name]) if isinstance(document, dict) else None
        return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []

    def instances(self) -> list[Json]:
        """The instances of all reservations."""
        return [
            instance
            for reservation in self.entries("instances")
            for instance in reservation.get("Instances") or ()
            if isinstance(instance, dict)
        ]

    def deployed_at(self) -> Any:
        """When the stack was deployed last, as its document says it; None = it was not read."""
        for stack in self.entries("stacks"):
            if not str(stack.get("StackName")).endswith("-evidence"):
                return stack.get("LastUpdatedTime") or stack.get("CreationTime")
        return None

    @classmethod
    def from_directory(cls, path: Path) -> Documents:
        """Read every document that a folder holds.

        Raises:
            NotADirectoryError: there is no such folder.
        """
        documents, absent = read_directory(path, (*NAMES, PROBLEMS))
        told = documents.pop(PROBLEMS, None)
        told = told if isinstance(told, dict) else {}
        absent.pop(PROBLEMS, None)
        noted = told.get("problems")
        problems = {
            **absent,
            **({str(k): str(v) for k, v in noted.items()} if isinstance(noted, dict) else {}),
        }
        denied = told.get("denied")
        return cls(
            documents=documents,
            problems=problems,
            denied=tuple(str(item) for item in denied) if isinstance(denied, list) else (),
        )

    def save(self, path: Path) -> None:
        """Write a folder that `from_directory` reads back.

        Raises:
            OSError: the folder or a file in it cannot be written.
        """
        path.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            file = path / f"{name}.json"
            if self.has(name):
                file.write_text(_text(self.documents[name]), encoding="utf-8")
            else:
                file.unlink(missing_ok=True)  # of an older picture
        noted = {"problems": dict(self.problems), "denied": list(self.denied)}
        (path / f"{PROBLEMS}.json").write_text(_text(noted), encoding="utf-8")


def _text(document: Any) -> str:
    """As the AWS CLI prints it: times in ISO 8601."""
    return json.dumps(document, indent=4, default=lambda value: value.isoformat()) + "\n"
