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
import functools
import typing
from typing import Any, Dict, Tuple, Type, TypeVar

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
    if origin is not None:
        return _decode_generic(origin, typing.get_args(kind), value, where)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise DecodeError(f"{where}: {value!r} is none of {allowed}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    # A bool is an int to Python, but true is not a number in JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise DecodeError(f"{where}: expected {kind.__name__}, got {value!r}")
    return value


def _decode_generic(origin: Any, inner: Tuple[Any, ...], value: Any, where: str) -> Any:
    """Optional[X], Tuple[X, ...] and Dict[K, V]; other generic types do not travel."""
    if origin is typing.Union:
        if value is None and type(None) in inner:
            return None
        (kind,) = (item for item in inner if item is not type(None))
        return _decode(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise DecodeError(f"{where}: expected a list, got {value!r}")
        return tuple(_decode(inner[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise DecodeError(f"{where}: expected an object, got {value!r}")
        return {
            _decode(inner[0], key, where): _decode(inner[1], item, f"{where}.{key}")
            for key, item in value.items()
        }
    raise TypeError(f"{where}: {origin} does not travel; use Optional, Tuple[X, ...] or Dict")


# Evaluating annotations costs more than all else here, and a judge reads thousands of probes.
_hints = functools.lru_cache(maxsize=None)(typing.get_type_hints)


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DecodeError(f"{where}: expected an object, got {value!r}")
    hints = _hints(kind)
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
