"""How the lab's actions and resource types are added to ministack's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.control_plane import backend
from lab.control_plane.wire import ApiError, Reply

Record = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One resource of a stack, as a handler gets it.

    properties: the template's, resolved; old: those before an update; physical_id: blank
    while it is created; stack, logical_id: blank when it is deleted or read.
    """

    properties: Record
    old: Record = field(default_factory=dict)
    physical_id: str = ""
    stack: str = ""
    logical_id: str = ""


Made = tuple[str, Record]  # the physical id (`Ref`) and the attributes (`Fn::GetAtt`)
MakeHandler = Callable[[Resource], Made]
DeleteHandler = Callable[[Resource], None]
DriftReader = Callable[[Resource], "Record | None"]
ActionHandler = Callable[[Record], Reply]
RawHandlers = dict[str, Callable[..., Any]]


def register_ec2_action(name: str, handler: ActionHandler) -> None:
    """Let `handler` answer the EC2 action `name`; it gets the raw query parameters."""

    def answer(params: Record) -> Any:
        try:
            reply = handler(params)
        except ApiError as error:
            return backend.ec2_error(error.code, error.message)
        return backend.ec2_answer(f"{reply.action}Response", reply.body)

    backend.ec2_actions[name] = answer


def register_auto_scaling_action(name: str, handler: ActionHandler) -> None:
    """The same for Auto Scaling, whose answers have one more element around them."""

    def answer(params: Record) -> Any:
        try:
            reply = handler(params)
        except ApiError as error:
            return backend.auto_scaling_error(error.code, error.message)
        inner = f"<{reply.action}Result>{reply.body}</{reply.action}Result>"
        return backend.auto_scaling_answer(f"{reply.action}Response", inner)

    backend.auto_scaling_actions[name] = answer


def register_type(
    name: str,
    *,
    create: MakeHandler,
    delete: DeleteHandler,
    update: MakeHandler | None = None,
    replacing: tuple[str, ...] = (),
    blocking: bool = False,
    tagged: bool = False,
) -> None:
    """Add (or replace) a CloudFormation resource type.

    replacing: properties whose change makes a new resource, as a change set reports it.
    blocking: the handlers may wait, so they run on a thread of their own.
    tagged: the type has a `Tags` list that stack-level tags are added to.
    """

    def raw_create(logical_id: str, properties: Record, stack: str) -> Made:
        return create(Resource(properties=properties, stack=stack, logical_id=logical_id))

    def raw_delete(physical_id: str, properties: Record) -> None:
        delete(Resource(properties=properties, physical_id=physical_id))

    handlers: RawHandlers = {"create": raw_create, "delete": raw_delete}
    if update is not None:
        change = update

        def raw_update(physical_id: str, old: Record, new: Record, stack: str, logical_id: str) -> Made:
            return change(
                Resource(properties=new, old=old, physical_id=physical_id, stack=stack, logical_id=logical_id)
            )

        handlers["update"] = raw_update
    backend.add_resource_type(name, handlers, replacing=replacing, blocking=blocking, tagged=tagged)


class OriginalType:
    """ministack's own handlers of a type, to be wrapped by ours."""

    def __init__(self, name: str) -> None:
        self._handlers = backend.resource_type(name)

    def create(self, resource: Resource) -> Made:
        made: Made = self._handlers["create"](resource.logical_id, resource.properties, resource.stack)
        return made

    def update(self, resource: Resource) -> Made:
        given = (resource.physical_id, resource.old, resource.properties, resource.stack)
        if self._handlers.get("update_with_logical_id"):
            made: Made = self._handlers["update"](*given, resource.logical_id)
        else:
            made = self._handlers["update"](*given)
        return made

    def delete(self, resource: Resource) -> None:
        self._handlers["delete"](resource.physical_id, resource.properties)


def register_drift_reader(name: str, read: DriftReader, properties: frozenset[str]) -> None:
    """read(resource) -> its current properties; None = it is gone."""

    def raw_read(physical_id: str, given: Record) -> Record | None:
        return read(Resource(properties=given, physical_id=physical_id))

    backend.add_drift_reader(name, raw_read, properties)


def keep_tags(resource_id: str, properties: Record) -> None:
    """Put a resource's `Tags` property where DescribeTags and filters find it."""
    tags = properties.get("Tags") or []
    if tags:
        backend.ec2_tags[resource_id] = [
            {"Key": str(tag["Key"]), "Value": str(tag.get("Value", ""))} for tag in tags
        ]


def drop(store: backend.Store, key: str) -> None:
    """Remove a record and its tags; one that is gone is no error."""
    store.pop(key, None)
    backend.ec2_tags.pop(key, None)


def refused(error: ApiError) -> ValueError:
    """EC2's refusal in the words in which CloudFormation passes it on."""
    return ValueError(f"{error.message} (Service: Ec2, Status Code: 400, Error Code: {error.code})")
