"""The vocabulary of settings: their enumerations, how a value is read and what it may be.

`cluster.spec` declares the settings themselves; this module knows only kinds of values.
"""

from __future__ import annotations

import enum
import re
from typing import Any, Dict, Mapping, Tuple

from cluster.ports import PortRange


class Architecture(str, enum.Enum):
    X86_64 = "x86_64"
    ARM64 = "arm64"


class OperatingSystem(str, enum.Enum):
    AL2023 = "al2023"
    UBUNTU = "ubuntu"


class TorchSource(str, enum.Enum):
    """Where a node takes torch from: a pip index, an archive shipped as an asset, or its image."""

    INDEX = "index"
    WHEELHOUSE = "wheelhouse"
    IMAGE = "image"


class NetworkKind(str, enum.Enum):
    """PUBLIC: public addresses without inbound. PRIVATE: behind NAT. ISOLATED: endpoints only."""

    PUBLIC = "public"
    PRIVATE = "private"
    ISOLATED = "isolated"


class PortProfile(str, enum.Enum):
    """ALL: all TCP between members. PINNED: master port and one range. EFA: all protocols, both ways."""

    ALL = "all"
    PINNED = "pinned"
    EFA = "efa"


class Placement(str, enum.Enum):
    CLUSTER = "cluster"
    SPREAD = "spread"
    NONE = "none"


class Capacity(str, enum.Enum):
    """RESERVATION makes one in the placement group; EXISTING and BLOCK use one by its id."""

    NONE = "none"
    RESERVATION = "reservation"
    EXISTING = "existing"
    BLOCK = "block"


def about(text: str, *, proven: bool = True) -> Dict[str, Any]:
    """Metadata of a setting without limits of its own.

    proven: the nodes prove it, so that a change needs a new proof.
    """
    return {"about": text, "proven": proven}


def within(low: float, high: float, text: str, *, proven: bool = True) -> Dict[str, Any]:
    """Metadata of a number (or of both ends of a port range) from low to high."""
    return {"about": text, "low": low, "high": high, "proven": proven}


def one_of(values: Tuple[int, ...], text: str, *, proven: bool = True) -> Dict[str, Any]:
    """Metadata of a number that must be one of a few."""
    return {"about": text, "one_of": values, "proven": proven}


def matching(pattern: str, shape: str, text: str, *, proven: bool = True) -> Dict[str, Any]:
    """Metadata of text in a form; shape: that form in words, for the error."""
    return {"about": text, "pattern": pattern, "shape": shape, "proven": proven}


def plain(value: Any) -> Any:
    """The value as JSON holds it."""
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, PortRange) else value


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


_SHOWN_CHARACTERS = 80
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")


def shown(value: Any) -> str:
    """A value that was given, on one line and no longer than a line."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def convert(kind: Any, raw: Any) -> Any:
    """Turn a JSON value or an override's text into the setting's type, or say what is allowed."""
    text = raw.strip() if isinstance(raw, str) else raw
    if issubclass(kind, enum.Enum):
        for member in kind:
            if text == member.value:
                return member
        raise ValueError(f"{shown(raw)} is none of {', '.join(str(member.value) for member in kind)}")
    if kind is bool:
        found = _BOOLEANS.get(str(text).lower()) if isinstance(text, (str, bool)) else None
        if found is None:
            raise ValueError(f"{shown(raw)} is neither true nor false")
        return found
    if kind is PortRange:
        try:
            return PortRange.parse(str(text))
        except ValueError:
            raise ValueError(f"{shown(raw)} is not a port range such as 50000-50999") from None
    if kind is str:
        if not isinstance(raw, str):
            raise ValueError(f"{shown(raw)} is not text")
        return text
    return _number(kind, raw, text)


def _number(kind: Any, raw: Any, text: Any) -> float:
    if isinstance(text, bool) or not isinstance(text, (int, float, str)):
        raise ValueError(f"{shown(raw)} is not a number")
    # Python would take other scripts' digits and 1_000, too: a reader would not.
    form = _NUMBER if kind is float else _WHOLE_NUMBER
    try:
        if isinstance(text, str) and not form.fullmatch(text):
            raise ValueError
        number = float(text) if kind is float else int(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(raw)} is not a {'number' if kind is float else 'whole number'}") from None
    if isinstance(text, float) and number != text:
        raise ValueError(f"{shown(raw)} is not a whole number")
    return number


def check(value: Any, allowed: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the value and what is allowed, when it is outside the metadata's limits."""
    low, high = allowed.get("low"), allowed.get("high")
    if "one_of" in allowed and value not in allowed["one_of"]:
        raise ValueError(f"{value} is none of {', '.join(map(str, allowed['one_of']))}")
    if low is not None and high is not None:
        first, last = (value.first, value.last) if isinstance(value, PortRange) else (value, value)
        if not (low <= first and last <= high):
            raise ValueError(f"{str(value)[:_SHOWN_CHARACTERS]} is not within {low}-{high}")
    if "pattern" in allowed and not re.fullmatch(allowed["pattern"], value, re.ASCII):
        raise ValueError(f"{shown(value)} is not {allowed['shape']}")
