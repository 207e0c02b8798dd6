"""The filters of a Describe action."""

from __future__ import annotations

from lab.control_plane import backend
from lab.control_plane.wire import ApiError, matches

Facts = dict[str, list[str | None]]
"""A filter's name -> the values that a resource has under it."""


def all_match(resource_id: str, facts: Facts, filters: dict[str, list[str]]) -> bool:
    """Whether a resource passes every filter; those on tags are looked up by its id.

    Raises:
        ApiError: a filter's name is none of `facts`, as EC2 refuses it.
    """
    for name, accepted in filters.items():
        if name.startswith("tag:") or name in ("tag-key", "tag-value"):
            continue
        if name not in facts:
            raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
        if not matches(accepted, facts[name]):
            return False
    return backend.tag_filters_match(resource_id, filters)
