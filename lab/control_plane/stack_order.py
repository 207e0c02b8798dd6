"""Wait conditions beside the resources they stand beside.

ministack makes a stack's resources one after the other. Two things follow. A wait condition
must come after everything that does not depend on it, or what it waits for never starts:
`last` arranges that. And while another resource blocks (a group that cannot get its
instances), the wait conditions that could already be waiting must be able to fail the stack:
`Beside` does that, with the events and the reason that CloudFormation gives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab.control_plane import backend

Record = dict[str, Any]

WAIT_CONDITION = "AWS::CloudFormation::WaitCondition"


class StackCancelled(RuntimeError):
    """Another resource failed; this one is given up, in CloudFormation's words."""

    def __init__(self) -> None:
        super().__init__("Resource creation cancelled")


def register() -> None:
    backend.replace_resource_order(last)


def last(order: list[str], definitions: Record) -> list[str]:
    """The same order with wait conditions, and what depends on them, moved to the end."""
    late: set[str] = set()
    names = set(order)
    for logical_id in order:
        definition = definitions[logical_id]
        is_wait = definition.get("Type") == WAIT_CONDITION
        if is_wait or backend.dependencies(definition, names) & late:
            late.add(logical_id)
    return [item for item in order if item not in late] + [item for item in order if item in late]


@dataclass(frozen=True)
class _Waiting:
    """One wait condition that CloudFormation would have started by now."""

    logical_id: str
    url: str
    deadline: float  # monotonic seconds
    needed: int


class Beside:
    """The unfinished wait conditions of a stack whose own dependencies all stand.

    Made when a resource begins to block; their time-outs are counted from then, which is
    when CloudFormation would have started them.
    """

    def __init__(self, stack: str) -> None:
        self._stack = stack
        self._waiting = list(_startable(stack, time.monotonic()))
        self._started = False

    def check(self) -> None:
        """Raise when one of them has failed or run out of time.

        Raises:
            StackCancelled: after its own failure was written into the stack's events.
        """
        if not self._started:
            self._started = True
            for item in self._waiting:
                backend.add_event(self._stack, item.logical_id, WAIT_CONDITION, "CREATE_IN_PROGRESS", "")
        for item in self._waiting:
            signals = backend.handle_signals(item.url) or {}
            failures = [(key, signal) for key, signal in signals.items() if signal["Status"] == "FAILURE"]
            for unique_id, signal in failures:
                reason = f"'{signal['Reason']}' for uniqueId: {unique_id}"
                self._fail(item, f"WaitCondition received failed message: {reason}")
            if time.monotonic() > item.deadline:
                counted = f"Received {len(signals)} conditions when expecting {item.needed}"
                self._fail(item, f"WaitCondition timed out. {counted}")

    def _fail(self, item: _Waiting, reason: str) -> None:
        backend.add_event(self._stack, item.logical_id, WAIT_CONDITION, "CREATE_FAILED", reason)
        raise StackCancelled


def _startable(stack: str, now: float) -> Iterator[_Waiting]:
    definitions = backend.template_resources(stack)
    made = backend.stack_record(stack).get("_resources") or {}
    for name, definition in definitions.items():
        if definition.get("Type") != WAIT_CONDITION or name in made:
            continue
        properties = definition.get("Properties") or {}
        handle = (properties.get("Handle") or {}).get("Ref", "")
        seconds = str(properties.get("Timeout"))
        if (
            handle in made
            and seconds.isdigit()
            and backend.dependencies(definition, set(definitions)) <= set(made)
        ):
            yield _Waiting(
                logical_id=name,
                url=made[handle]["PhysicalResourceId"],
                deadline=now + int(seconds),
                needed=int(properties.get("Count") or 1),
            )
