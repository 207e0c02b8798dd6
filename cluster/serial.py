"""Frozen dataclasses to JSON and back.

The data that travels (node configuration, reports, verdicts) is declared once as
dataclasses; this module is the only place that knows how they become JSON.
Enums travel as their value, tuples as lists, nested dataclasses as objects.
Unknown keys are ignored, so that an older reader can read a newer row; a missing
key without a default is an error, so that a half-written row is never read as whole.
"""

from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Any, Dict, Type, TypeVar

T = TypeVar("T")


class DecodeError(ValueError):
    """A JSON document does not have the shape of the dataclass it should hold."""


def encode(value: Any) -> Any:
    """Turn dataclasses, enums, tuples and mappings into what `json.dumps` takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(encode(key)): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(item) for item in value]
    return value


def decode(kind: Type[T], document: Any, where: str = "") -> T:
    """Build a `kind` (a dataclass) from a parsed JSON document.

    Raises:
        DecodeError: names the path of the first value that does not fit.
    """
    built: T = _decode(kind, document, where or kind.__name__)
    return built


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin is typing.Union:
        if value is None and type(None) in typing.get_args(kind):
            return None
        (inner,) = [a for a in typing.get_args(kind) if a is not type(None)]
        return _decode(inner, value, where)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        if not isinstance(value, list):
            raise DecodeError(f"{where}: expected a list, got {value!r}")
        return tuple(_decode(inner, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        key_kind, item_kind = typing.get_args(kind)
        if not isinstance(value, dict):
            raise DecodeError(f"{where}: expected an object, got {value!r}")
        return {
            _decode(key_kind, key, where): _decode(item_kind, item, f"{where}.{key}")
            for key, item in value.items()
        }
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise DecodeError(f"{where}: {value!r} is none of {allowed}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and (
        not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    ):
        raise DecodeError(f"{where}: expected {kind.__name__}, got {value!r}")
    return value


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DecodeError(f"{where}: expected an object, got {value!r}")
    hints = typing.get_type_hints(kind)
    arguments: Dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            arguments[field.name] = _decode(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DecodeError(f"{where}.{field.name}: is missing")
    try:
        return kind(**arguments)
    except ValueError as error:
        raise DecodeError(f"{where}: {error}") from error
