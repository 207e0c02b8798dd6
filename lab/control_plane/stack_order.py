"""Wait conditions beside the resources they stand beside.

ministack makes a stack's resources one after the other. Two things follow. A wait condition
must come after everything that does not depend on it, or what it waits for never starts:
`last` arranges that. And while another resource blocks (a group that cannot get its
instances), the wait conditions that could already be waiting must be able to fail the stack:
`beside` does that, with the events and the reason that CloudFormation gives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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


@dataclass
class _Waiting:
    """One wait condition that CloudFormation would have started by now."""

    logical_id: str
    url: str
    deadline: float
    needed: int


@dataclass
class Conditions:
    """The wait conditions of a stack that stand beside a resource that blocks."""

    stack: str
    waiting: list[_Waiting] = field(default_factory=list)

    def check(self) -> None:
        """Raise when one of them has failed or run out of time.

        Raises:
            StackCancelled: after its own failure was written into the stack's events.
        """
        for item in self.waiting:
            signals = backend.handle_signals(item.url) or {}
            for unique_id, signal in signals.items():
                if signal["Status"] == "FAILURE":
                    self._fail(
                        item,
                        f"WaitCondition received failed message: '{signal['Reason']}' for uniqueId: {unique_id}",
                    )
            if time.monotonic() > item.deadline:
                self._fail(
                    item,
                    f"WaitCondition timed out. Received {len(signals)} conditions when expecting {item.needed}",
                )

    def _fail(self, item: _Waiting, reason: str) -> None:
        backend.add_event(self.stack, item.logical_id, WAIT_CONDITION, "CREATE_FAILED", reason)
        raise StackCancelled


@contextmanager
def beside(stack: str, logical_id: str) -> Iterator[Conditions]:
    """The stack's unfinished wait conditions that do not depend on `logical_id`.

    A `Timeout` is counted from here, which is when CloudFormation would have started them.
    """
    definitions = backend.template_resources(stack)
    made = backend.stack_record(stack).get("_resources") or {}
    conditions = Conditions(stack)
    for name, definition in definitions.items():
        if definition.get("Type") != WAIT_CONDITION or name in made:
            continue
        if not backend.dependencies(definition, set(definitions)) <= set(made):
            continue
        properties = definition.get("Properties") or {}
        handle = properties.get("Handle") or {}
        url = made.get(handle.get("Ref", ""), {}).get("PhysicalResourceId", "")
        seconds = properties.get("Timeout")
        if not url or not str(seconds).isdigit():
            continue
        conditions.waiting.append(
            _Waiting(
                logical_id=name,
                url=url,
                deadline=time.monotonic() + int(str(seconds)),
                needed=int(properties.get("Count") or 1),
            )
        )
    yield conditions
