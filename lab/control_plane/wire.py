"""EC2's query protocol: flat request parameters to nested values, values to XML."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from xml.sax.saxutils import escape

Value = Any
Parameters = dict[str, Any]


class ApiError(Exception):
    """A refusal, with AWS's own code and wording."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Reply:
    """The answer to an action: its name and the XML inside the response element."""

    action: str
    body: str


def new_id(prefix: str) -> str:
    """An id in EC2's long form, such as `i-0123456789abcdef0`."""
    return f"{prefix}-0{secrets.token_hex(8)}"


def nested(params: Parameters, prefix: str = "") -> Any:
    """Flat `A.1.B=x` parameters as nested dicts and lists; values stay strings.

    With a prefix only what stands below it is returned ({} when nothing does).
    """
    root: dict[str, Any] = {}
    start = f"{prefix}." if prefix else ""
    for key, raw in params.items():
        if not key.startswith(start):
            continue
        value = raw[0] if isinstance(raw, list) else raw
        place = root
        *path, last = key[len(start) :].split(".")
        for part in path:
            below = place.setdefault(part, {})
            if not isinstance(below, dict):
                break
            place = below
        else:
            place[last] = value
    return _with_lists(root)


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_with_lists(value[key]) for key in sorted(value, key=int)]
    # The AWS query protocol of Auto Scaling puts lists below `member`.
    if set(value) == {"member"}:
        return _with_lists(value["member"])
    return {key: _with_lists(item) for key, item in value.items()}


def filters_of(request: dict[str, Any]) -> dict[str, list[str]]:
    """`Filter.N.Name/Value.M` as name -> accepted values."""
    return {item["Name"]: list(item.get("Value", [])) for item in request.get("Filter", [])}


def matches(accepted: Iterable[str], actual: Iterable[str | None]) -> bool:
    """Whether any actual value fits any accepted one; `*` and `?` are wildcards."""
    values = [value for value in actual if value is not None]
    return any(fnmatchcase(value, pattern) for pattern in accepted for value in values)


def xml(value: Value) -> str:
    """A value as the inside of an element: dicts as elements, lists as `item`s, None as nothing."""
    if isinstance(value, dict):
        return "".join(f"<{tag}>{xml(item)}</{tag}>" for tag, item in value.items() if item is not None)
    if isinstance(value, (list, tuple)):
        return "".join(f"<item>{xml(item)}</item>" for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(str(value))


def member_xml(value: Value) -> str:
    """The same in the dialect of Auto Scaling, whose list elements are called `member`."""
    if isinstance(value, dict):
        return "".join(
            f"<{tag}>{member_xml(item)}</{tag}>" for tag, item in value.items() if item is not None
        )
    if isinstance(value, (list, tuple)):
        return "".join(f"<member>{member_xml(item)}</member>" for item in value)
    return xml(value)


def is_true(value: object) -> bool:
    """A boolean that may have travelled as text."""
    return str(value).lower() == "true"


def tag_list(tags: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Tags in EC2's answers."""
    return [{"key": str(tag["Key"]), "value": str(tag.get("Value", ""))} for tag in tags]
