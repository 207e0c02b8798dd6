"""How much of each instance type the lab's zone still has.

Unlimited unless said otherwise. `FULLMESH_LAB_CAPACITY_ERROR` names types that cannot be
had (`m5.large`, or `m5.large:2` for two instances only, separated by commas), and a running
control plane takes the same as JSON: `PUT /_fullmesh/capacity {"m5.large": 2}` ({} lifts
every limit). The refusal is EC2's own, so that what reacts to it can be tried.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from lab.control_plane import backend
from lab.control_plane.wire import ApiError

ENVIRONMENT_VARIABLE = "FULLMESH_LAB_CAPACITY_ERROR"

_lock = threading.Lock()
_limits: dict[str, int] = {}


def parse(text: str) -> dict[str, int]:
    """`m5.large:2,c5.large` -> {"m5.large": 2, "c5.large": 0}.

    Raises:
        ValueError: a count that is not a number of 0 or more.
    """
    limits = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = item.partition(":")
        if count and not count.isdigit():
            raise ValueError(f"capacity of {name} is {count!r}, expected a count: set TYPE or TYPE:COUNT")
        limits[name] = int(count or 0)
    return limits


def set_limits(limits: dict[str, int]) -> None:
    """Replace all limits: instance type -> how many may run at once."""
    with _lock:
        _limits.clear()
        _limits.update(limits)


def limits() -> dict[str, int]:
    with _lock:
        return dict(_limits)


def claim(instance_type: str, zone: str) -> None:
    """Raise EC2's refusal when one more instance of the type is more than there is.

    Raises:
        ApiError: InsufficientInstanceCapacity.
    """
    limit = limits().get(instance_type)
    if limit is None:
        return
    running = sum(
        record["InstanceType"] == instance_type and record["State"]["Name"] in ("pending", "running")
        for record in backend.instances.values()
    )
    if running >= limit:
        refuse(instance_type, zone)


def refuse(instance_type: str, zone: str) -> NoReturn:
    """EC2's answer when there is no more of a type.

    Raises:
        ApiError: InsufficientInstanceCapacity, always.
    """
    raise ApiError(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you "
        f"requested ({zone}). Our system will be working on provisioning additional capacity.",
    )
