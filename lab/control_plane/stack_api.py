"""What a stack says of a resource that is still being made.

ministack lists a resource only once it is complete, and calls the making of a new one an
update when the stack is being updated. Whoever watches a wait condition from outside (the
referee does) must see CREATE_IN_PROGRESS, and since when.
"""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend
from lab.control_plane.wire import Parameters, member_xml, nested

Record = dict[str, Any]


def register() -> None:
    original = backend.cloudformation_actions["DescribeStackResource"]

    def describe(params: Parameters) -> Any:
        request = nested(params)
        stack = backend.find_stack(request.get("StackName", ""))
        logical_id = request.get("LogicalResourceId", "")
        if stack is None or logical_id in stack.get("_resources", {}):
            return original(params)
        event = latest_event(stack, logical_id)
        if event is None or event["ResourceStatus"].startswith("DELETE"):
            return original(params)
        return backend.cloudformation_answer("DescribeStackResource", member_xml(detail(stack, event)))

    backend.cloudformation_actions["DescribeStackResource"] = describe
    backend.replace_event_status(event_status)


def event_status(stack: Record, logical_id: str, status: str) -> str:
    """CREATE_... instead of UPDATE_... for a resource that this update adds."""
    if not status.startswith("UPDATE_") or not stack:
        return status
    if status == "UPDATE_IN_PROGRESS" and logical_id not in stack.get("_resources", {}):
        return "CREATE_IN_PROGRESS"
    latest = latest_event(stack, logical_id)
    if latest is not None and latest["ResourceStatus"] == "CREATE_IN_PROGRESS":
        return status.replace("UPDATE_", "CREATE_")
    return status


def latest_event(stack: Record, logical_id: str) -> Record | None:
    """The newest event of a resource, None when it has none."""
    events = backend.stack_events(stack["StackId"])
    return next((event for event in reversed(events) if event["LogicalResourceId"] == logical_id), None)


def detail(stack: Record, event: Record) -> Record:
    """The answer's inside; its time is that of the first event of this status in a row."""
    since = event["Timestamp"]
    for earlier in reversed(backend.stack_events(stack["StackId"])):
        if earlier["LogicalResourceId"] != event["LogicalResourceId"]:
            continue
        if earlier["ResourceStatus"] != event["ResourceStatus"]:
            break
        since = earlier["Timestamp"]
    return {
        "StackResourceDetail": {
            "LogicalResourceId": event["LogicalResourceId"],
            "PhysicalResourceId": event["PhysicalResourceId"] or None,
            "ResourceType": event["ResourceType"],
            "ResourceStatus": event["ResourceStatus"],
            "ResourceStatusReason": event["ResourceStatusReason"] or None,
            "LastUpdatedTimestamp": since,
            "StackName": stack["StackName"],
            "StackId": stack["StackId"],
        }
    }
