"""What a comparison works on, and what it finds: shared by every module beside this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from audit.difference import Change, Deviation, Meaning
from audit.documents import Documents, Json
from audit.intrinsics import UNRESOLVED
from audit.template import DeployedStack, Resource
from cluster.snapshot import ClusterSnapshot

AWS_TAGS = "aws:"
"""Tags of this prefix are AWS's own: nobody else can set them."""


class Scene:
    """One stack, its documents, and the differences found so far.

    unread: what could not be compared, and why.
    """

    def __init__(self, documents: Documents, stack: DeployedStack, snapshot: ClusterSnapshot) -> None:
        self.documents = documents
        self.stack = stack
        self.snapshot = snapshot
        self.deviations: list[Deviation] = []
        self.unread: list[str] = []

    def table(self, name: str, key: str, what: str) -> dict[str, Json] | None:
        """A document's entries by id; None, and noted, when they were not all read. what: is compared."""
        problem = self.documents.problem(name)
        if problem:
            self.note(f"{what} cannot be compared: {problem}")
            return None
        return {str(entry.get(key)): entry for entry in self.documents.entries(name)}

    def note(self, text: str) -> None:
        if text not in self.unread:
            self.unread.append(text)

    def add(self, deviation: Deviation) -> None:
        self.deviations.append(deviation)

    def missing(self, resource: Resource, why: str, at_least: Meaning = Meaning.WEAKENS) -> None:
        """The stack's resource does not exist any more."""
        self.add(
            Deviation(
                resource=resource.id,
                logical_id=resource.logical_id,
                attribute="existence",
                expected=resource.type,
                actual=None,
                why=why,
                at_least=at_least,
            )
        )

    def value(  # noqa: PLR0917 - the columns of a table, always in this order
        self,
        resource: str,
        logical_id: str,
        attribute: str,
        expected: Any,
        actual: Any,
        why: str,
        at_least: Meaning = Meaning.WEAKENS,
        revert: tuple[Change, ...] = (),
    ) -> None:
        """Note the difference of one value; nothing is compared with what the template does not tell."""
        if expected is UNRESOLVED or expected is None or plain(expected) == plain(actual):
            return
        self.add(
            Deviation(
                resource=resource,
                logical_id=logical_id,
                attribute=attribute,
                expected=expected,
                actual=actual,
                why=why,
                at_least=at_least,
                revert=revert,
            )
        )

    def tags(
        self,
        resource: str,
        logical_id: str,
        expected: Mapping[str, Any],
        actual: Iterable[Any],
        why: str = "",
    ) -> None:
        """Note tags that are missing, different or more; AWS's own do not count."""
        found = {str(tag.get("Key")): tag.get("Value", "") for tag in actual if isinstance(tag, dict)}
        found = {key: value for key, value in found.items() if not key.startswith(AWS_TAGS)}
        told = {**self.stack.tags, **expected}
        comparable = {key: value for key, value in told.items() if value is not UNRESOLVED}
        unknown = set(told) - set(comparable)
        differing = sorted(
            key for key in {*comparable, *found} - unknown if comparable.get(key) != found.get(key)
        )
        if not differing:
            return
        lost = [key for key in differing if key in told and key not in found]
        added = [key for key in differing if key not in told]
        changes = []
        if set(differing) - set(added):
            tags = [{"Key": key, "Value": told[key]} for key in differing if key in told]
            changes.append(Change("ec2", "create_tags", {"Resources": [resource], "Tags": tags}))
        if added:
            gone = [{"Key": key} for key in added]
            changes.append(Change("ec2", "delete_tags", {"Resources": [resource], "Tags": gone}))
        self.add(
            Deviation(
                resource=resource,
                logical_id=logical_id,
                attribute="tags",
                expected={key: told[key] for key in differing if key in told},
                actual={key: found[key] for key in differing if key in found},
                why=why
                if lost and why
                else "a tag says something else; no packet and no guarantee depends on it",
                at_least=Meaning.WEAKENS if lost and why else Meaning.COSMETIC,
                revert=tuple(changes),
            )
        )


def declared_tags(resource: Resource, key: str = "Tags") -> dict[str, Any]:
    """The tags that the template gives a resource."""
    return {
        str(tag.get("Key")): tag.get("Value", "") for tag in resource.get(key) or () if isinstance(tag, dict)
    }


def plain(value: Any) -> Any:
    """CloudFormation's texts and EC2's numbers alike: "4" is 4, "true" is True; lists have an order."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value).lower() if isinstance(value, (bool, int, float)) else str(value)
