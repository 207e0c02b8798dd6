"""AWS::AutoScaling::AutoScalingGroup: complete only at desired capacity, updated by rolling.

CloudFormation makes independent resources side by side, and ministack one after the other.
Where that would change the outcome, this module makes up for it: while a group waits for
capacity, the stack's wait conditions are watched too (`stack_order`), so that a failure
signalled because nothing could be launched ends the deployment, as it does on AWS.
"""

from __future__ import annotations

import re
import time
from typing import Any

from lab.control_plane import auto_scaling, auto_scaling_api, backend, stack_order
from lab.control_plane.wire import is_true

Record = dict[str, Any]

TYPE = "AWS::AutoScaling::AutoScalingGroup"
POLL_S = 0.1
CAPACITY_TIMEOUT_S = 3600.0
_LAUNCH_PROPERTIES = ("LaunchTemplate", "MixedInstancesPolicy", "VPCZoneIdentifier", "PlacementGroup")
_DURATION = re.compile(r"^PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?$")


def register() -> None:
    original = backend.original_type(TYPE)

    def create(logical_id: str, properties: Record, stack: str) -> tuple[str, Record]:
        def make() -> tuple[str, Record]:
            made: tuple[str, Record] = original["create"](logical_id, properties, stack)
            _take_properties(made[0], properties)
            auto_scaling.reconcile(made[0])
            return made

        name, attributes = backend.on_loop(make)
        try:
            _wait_for_capacity(name, stack, logical_id)
            _wait_for_signals(stack, logical_id)
        except Exception:
            backend.on_loop(lambda: auto_scaling_api.drop_group(name))
            raise
        return name, attributes

    def update(
        name: str, old: Record, new: Record, stack: str, logical_id: str
    ) -> tuple[str, Record]:
        policy = backend.resource_definition(stack, logical_id).get("UpdatePolicy") or {}

        def change() -> tuple[str, Record]:
            made: tuple[str, Record] = original["update"](name, old, new, stack, logical_id)
            _take_properties(made[0], new)
            return made

        answer = backend.on_loop(change)
        rolling = policy.get("AutoScalingRollingUpdate")
        if rolling and _launches_anew(old, new):
            _roll(answer[0], rolling, stack, logical_id)
        backend.on_loop(lambda: auto_scaling.reconcile(answer[0]))
        _wait_for_capacity(answer[0], stack, logical_id)
        return answer

    def delete(name: str, properties: Record) -> None:
        backend.on_loop(lambda: (auto_scaling_api.drop_group(name), original["delete"](name, properties)))

    backend.register_type(
        TYPE,
        create=create,
        update=update,
        delete=delete,
        replacing=("AutoScalingGroupName", "InstanceId"),
        blocking=True,
        tagged=True,
    )
    backend.send_back_failed_update(TYPE)


def _take_properties(name: str, properties: Record) -> None:
    """The members of the record that ministack leaves out."""
    record = auto_scaling.group(name)
    record["PlacementGroup"] = properties.get("PlacementGroup", "")
    record["MixedInstancesPolicy"] = properties.get("MixedInstancesPolicy") or {}


def _launches_anew(old: Record, new: Record) -> bool:
    return any(old.get(item) != new.get(item) for item in _LAUNCH_PROPERTIES)


def _roll(name: str, policy: Record, stack: str, logical_id: str) -> None:
    """Replace every member, in batches, keeping MinInstancesInService of them."""
    processes = set(policy.get("SuspendProcesses") or ())
    batch = max(1, int(policy.get("MaxBatchSize", 1)))
    keep = int(policy.get("MinInstancesInService", 0))
    outdated = [item["InstanceId"] for item in backend.on_loop(lambda: auto_scaling.members(name))]
    state = auto_scaling.state_of(name)
    before = set(state.suspended)
    state.suspended |= processes
    try:
        while outdated:
            size = min(batch, max(1, len(outdated) - keep), len(outdated))
            ending, outdated = outdated[:size], outdated[size:]
            backend.add_event(
                stack,
                logical_id,
                TYPE,
                "UPDATE_IN_PROGRESS",
                f"Terminating instance(s) [{','.join(ending)}]; replacing with {size} new instance(s).",
            )
            backend.on_loop(lambda ids=ending: auto_scaling.replace_members(name, ids))  # type: ignore[misc]
            _wait_for_capacity(name, stack, logical_id)
            if is_true(policy.get("WaitOnResourceSignals", False)):
                _wait_for_signals(stack, logical_id)
            time.sleep(_seconds(policy.get("PauseTime")))
    finally:
        state.suspended &= before


def _wait_for_capacity(name: str, stack: str, logical_id: str) -> None:
    """Block until the group stands at desired capacity.

    Raises:
        StackCancelled: a wait condition of the stack failed meanwhile.
        TimeoutError: an hour passed.
    """
    deadline = time.monotonic() + CAPACITY_TIMEOUT_S
    with stack_order.beside(stack, logical_id) as conditions:
        while not backend.on_loop(lambda: auto_scaling.is_satisfied(name)):
            conditions.check()
            if time.monotonic() > deadline:
                raise TimeoutError("Group did not stabilize. The desired capacity was not reached in time.")
            time.sleep(POLL_S)


def _wait_for_signals(stack: str, logical_id: str) -> None:
    policy = backend.resource_definition(stack, logical_id).get("CreationPolicy") or {}
    if "ResourceSignal" in policy:
        backend.wait_for_resource_signals(stack, logical_id, TYPE, policy["ResourceSignal"] or {})


def _seconds(duration: object) -> int:
    match = _DURATION.match(str(duration)) if duration else None
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds
