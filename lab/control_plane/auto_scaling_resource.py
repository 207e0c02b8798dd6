"""AWS::AutoScaling::AutoScalingGroup: complete only at desired capacity, updated by rolling.

CloudFormation makes independent resources side by side, and ministack one after the other.
Where that would change the outcome, this module makes up for it: while a group waits for
capacity, the stack's wait conditions are watched too (`stack_order`), so that a failure
signalled because nothing could be launched ends the deployment, as it does on AWS.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

from lab.control_plane import auto_scaling, auto_scaling_api, backend, stack_order
from lab.control_plane.loop import on_loop
from lab.control_plane.registration import Made, OriginalType, Resource, register_type
from lab.control_plane.wire import is_true

Record = dict[str, Any]

TYPE = "AWS::AutoScaling::AutoScalingGroup"
POLL_S = 0.1
CAPACITY_TIMEOUT_S = 3600.0
_LAUNCH_PROPERTIES = ("LaunchTemplate", "MixedInstancesPolicy", "VPCZoneIdentifier", "PlacementGroup")
_DURATION = re.compile(r"^PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?$")


def register() -> None:
    original = OriginalType(TYPE)

    def create(resource: Resource) -> Made:
        def make() -> Made:
            made = original.create(resource)
            _take_properties(made[0], resource.properties)
            auto_scaling.reconcile(made[0])
            return made

        made = on_loop(make)
        try:
            _wait_for_capacity(made[0], resource)
            backend.wait_for_resource_signals(resource.stack, resource.logical_id, TYPE)
        except Exception:
            on_loop(lambda: auto_scaling_api.drop_group(made[0]))
            raise
        return made

    def update(resource: Resource) -> Made:
        policy = backend.resource_definition(resource.stack, resource.logical_id).get("UpdatePolicy") or {}
        if is_true((policy.get("AutoScalingReplacingUpdate") or {}).get("WillReplace")):
            raise ValueError("the lab replaces no whole group (WillReplace); use AutoScalingRollingUpdate")
        rolling = policy.get("AutoScalingRollingUpdate") or {}
        rolls = bool(rolling) and any(
            resource.old.get(item) != resource.properties.get(item) for item in _LAUNCH_PROPERTIES
        )

        def change() -> Made:
            made = original.update(resource)
            _take_properties(made[0], resource.properties)
            auto_scaling.state_of(made[0]).held = rolls
            return made

        made = on_loop(change)
        if rolls:
            _roll(made[0], rolling, resource)
        on_loop(lambda: auto_scaling.reconcile(made[0]))
        _wait_for_capacity(made[0], resource)
        return made

    def delete(resource: Resource) -> None:
        def end() -> None:
            auto_scaling_api.drop_group(resource.physical_id)
            original.delete(resource)

        on_loop(end)

    register_type(
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


def _roll(name: str, policy: Record, resource: Resource) -> None:
    """Replace every member, in batches, keeping MinInstancesInService of them.

    Nothing is launched or ended beside the batches until the last one has begun.
    """
    batch = max(1, int(policy.get("MaxBatchSize", 1)))
    keep = int(policy.get("MinInstancesInService", 0))
    state = on_loop(lambda: auto_scaling.state_of(name))
    outdated = [item["InstanceId"] for item in on_loop(lambda: auto_scaling.members(name))]
    before = set(state.suspended)
    state.suspended |= set(policy.get("SuspendProcesses") or ())
    try:
        while outdated:
            size = min(batch, max(1, len(outdated) - keep), len(outdated))
            ending, outdated = outdated[:size], outdated[size:]
            backend.add_event(
                resource.stack,
                resource.logical_id,
                TYPE,
                "UPDATE_IN_PROGRESS",
                f"Terminating instance(s) [{','.join(ending)}]; replacing with {size} new instance(s).",
            )
            on_loop(partial(auto_scaling.replace_members, name, ending, last=not outdated))
            _wait_for_capacity(name, resource)
            if is_true(policy.get("WaitOnResourceSignals", False)):
                backend.wait_for_resource_signals(resource.stack, resource.logical_id, TYPE)
            time.sleep(_seconds(policy.get("PauseTime")))
    finally:
        state.held = False
        state.suspended &= before


def _wait_for_capacity(name: str, resource: Resource) -> None:
    """Block until the group stands at desired capacity.

    Raises:
        StackCancelled: a wait condition of the stack failed meanwhile.
        TimeoutError: an hour passed.
    """
    deadline = time.monotonic() + CAPACITY_TIMEOUT_S
    conditions = stack_order.Beside(resource.stack)
    while not on_loop(lambda: auto_scaling.is_settled(name)):
        conditions.check()
        if time.monotonic() > deadline:
            raise TimeoutError("Group did not stabilize. The desired capacity was not reached in time.")
        time.sleep(POLL_S)


def _seconds(duration: object) -> int:
    match = _DURATION.match(str(duration)) if duration else None
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds
