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
from typing import Any, Callable, Dict, List, Tuple, Type, TypeVar

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
    try:
        built: T = _reader(typing.cast(typing.Hashable, kind))(document)
    except _Misfit as misfit:
        raise DecodeError(f"{where or kind.__name__}{misfit.path}: {misfit.text}") from None
    return built


class _Misfit(Exception):
    """A value that does not fit. path: grows to the front on the way out, so that reading costs nothing."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.path = path


_Reader = Callable[[Any], Any]


# Looked up once a type: evaluating annotations costs more than all else here, and a judge reads
# thousands of probes.
@functools.cache
def _reader(kind: Any) -> _Reader:
    """What turns a JSON value into a `kind`, or raises _Misfit."""
    origin = typing.get_origin(kind)
    if origin is not None:
        return _generic_reader(kind, origin, typing.get_args(kind))
    if kind is Any:
        return lambda value: value
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(kind)
    if issubclass(kind, enum.Enum):
        return _enum_reader(kind)
    return _plain_reader(kind)


def _plain_reader(kind: Any) -> _Reader:
    def read(value: Any) -> Any:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        # A bool is an int to Python, but true is not a number in JSON.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _Misfit(f"expected {kind.__name__}, got {value!r}")
        return value

    return read


def _enum_reader(kind: Any) -> _Reader:
    members = {member.value: member for member in kind}

    def read(value: Any) -> Any:
        try:
            return members[value]
        except (KeyError, TypeError):  # TypeError: a list or an object
            raise _Misfit(f"{value!r} is none of {', '.join(map(str, members))}") from None

    return read


def _generic_reader(kind: Any, origin: Any, inner: Tuple[Any, ...]) -> _Reader:
    """Optional[X], Tuple[X, ...] and Dict[K, V]; other generic types do not travel."""
    if origin is typing.Union and type(None) in inner:
        (wrapped,) = (item for item in inner if item is not type(None))
        read = _reader(wrapped)
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        return _tuple_reader(_reader(inner[0]))
    if origin is dict:
        return _dict_reader(_reader(inner[0]), _reader(inner[1]))
    raise TypeError(f"{kind} does not travel; use Optional, Tuple[X, ...] or Dict")


def _tuple_reader(read: _Reader) -> _Reader:
    def read_all(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Misfit(f"expected a list, got {value!r}")
        found: List[Any] = []
        try:
            for item in value:
                found.append(read(item))
        except _Misfit as misfit:
            misfit.path = f"[{len(found)}]{misfit.path}"
            raise
        return tuple(found)

    return read_all


def _dict_reader(read_key: _Reader, read: _Reader) -> _Reader:
    def read_all(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit(f"expected an object, got {value!r}")
        found: Dict[Any, Any] = {}
        for key, item in value.items():
            known = read_key(key)
            try:
                found[known] = read(item)
            except _Misfit as misfit:
                misfit.path = f".{key}{misfit.path}"
                raise
        return found

    return read_all


def _dataclass_reader(kind: Any) -> _Reader:
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit(f"expected an object, got {value!r}")
        arguments: Dict[str, Any] = {}
        name = ""
        try:
            for name, item in value.items():
                reader = readers.get(name)
                if reader is not None:
                    arguments[name] = reader(item)
        except _Misfit as misfit:
            misfit.path = f".{name}{misfit.path}"
            raise
        for name in needed:
            if name not in arguments:
                raise _Misfit("is missing", f".{name}")
        try:
            return kind(**arguments)
        except ValueError as error:
            raise _Misfit(str(error)) from error

    return read
