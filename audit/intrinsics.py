"""CloudFormation's intrinsic functions, worked out as far as ids, the account and exports tell."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from audit.documents import Json


class _Unresolved:
    """A value that cannot be told here; it equals nothing, itself included."""

    def __repr__(self) -> str:
        return "(not known before the deploy)"

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]  # Python's way to say: no key of a dict


UNRESOLVED = _Unresolved()

# Attributes that are the physical id under another name.
_ID_ATTRIBUTES = frozenset(
    (
        "GroupId",
        "VpcId",
        "SubnetId",
        "RouteTableId",
        "InternetGatewayId",
        "NatGatewayId",
        "LaunchTemplateId",
        "Id",
        "NetworkAclId",
    )
)
_OWN_VPC = "AWS::EC2::VPC"


def known(value: Any) -> bool:
    """Whether a value, at any depth, holds nothing unresolved."""
    if isinstance(value, dict):
        return all(known(item) for item in value.values())
    if isinstance(value, list):
        return all(known(item) for item in value)
    return value is not UNRESOLVED


class Resolver:
    """Works out intrinsic functions."""

    def __init__(
        self,
        *,
        template: Json,
        physical: Mapping[str, str],
        pseudo: Mapping[str, str],
        parameters: Mapping[str, Any],
        exports: Mapping[str, str],
    ) -> None:
        self._resources: Json = template.get("Resources") or {}
        self._mappings: Json = template.get("Mappings") or {}
        self._physical = physical
        self._pseudo = pseudo
        self._parameters = parameters
        self._exports = exports
        self._functions: Mapping[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._attribute,
            "Fn::Join": self._join,
            "Fn::Sub": self._sub,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
            "Fn::Base64": self._base64,
            "Fn::ImportValue": self._import,
            "Fn::FindInMap": self._mapped,
        }

    def value(self, value: Any) -> Any:
        """The value with every function worked out; what cannot be is UNRESOLVED in its place."""
        if isinstance(value, list):
            return [item for item in map(self.value, value) if item is not None]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (name, argument), *_ = value.items()
            if name in self._functions:
                return self._functions[name](argument)
            if name.startswith("Fn::"):
                return UNRESOLVED
        found = {key: self.value(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not None}

    def _ref(self, name: Any) -> Any:
        if name == "AWS::NoValue":
            return None
        if name in self._pseudo:
            return self._pseudo[name] or UNRESOLVED
        if name in self._resources:
            return self._physical.get(name) or UNRESOLVED
        return self._parameters.get(name, UNRESOLVED)

    def _attribute(self, argument: Any) -> Any:
        parts = argument if isinstance(argument, list) else str(argument).split(".", 1)
        if len(parts) != 2 or not isinstance(parts[1], str):
            return UNRESOLVED
        name, attribute = parts
        kind = (self._resources.get(name) or {}).get("Type", "")
        physical = self._physical.get(name, "")
        if not physical:
            return UNRESOLVED
        if attribute in _ID_ATTRIBUTES and (attribute != "VpcId" or kind == _OWN_VPC):
            return physical
        if attribute == "Arn":
            return physical if physical.startswith("arn:") else self._arn(kind, physical)
        return UNRESOLVED

    def _arn(self, kind: str, physical: str) -> Any:
        account, region, partition = (
            self._pseudo.get(f"AWS::{name}") for name in ("AccountId", "Region", "Partition")
        )
        return {
            "AWS::IAM::InstanceProfile": f"arn:{partition}:iam::{account}:instance-profile/{physical}",
            "AWS::IAM::Role": f"arn:{partition}:iam::{account}:role/{physical}",
            "AWS::Lambda::Function": f"arn:{partition}:lambda:{region}:{account}:function:{physical}",
        }.get(kind, UNRESOLVED)

    def told_part(self, value: Any) -> str:
        """A text in which what cannot be told is left blank; "" where it is no text."""
        if isinstance(value, dict) and "Fn::Join" in value:
            separator, parts = self._pair(value["Fn::Join"])
            if isinstance(separator, str) and isinstance(parts, list):
                return separator.join(part if isinstance(part, str) else "" for part in parts)
        found = self.value(value)
        return found if isinstance(found, str) else ""

    def pattern(self, value: Any) -> str:
        """A regular expression for a text: what cannot be told may be anything."""
        if isinstance(value, dict) and "Fn::Base64" in value:
            return self.pattern(value["Fn::Base64"])
        if isinstance(value, dict) and "Fn::Join" in value:
            separator, parts = self._pair(value["Fn::Join"])
            if isinstance(separator, str) and isinstance(parts, list):
                return re.escape(separator).join(_pattern(part) for part in parts)
        return _pattern(self.value(value))

    def _join(self, argument: Any) -> Any:
        separator, parts = self._pair(argument)
        if not isinstance(separator, str) or not isinstance(parts, list):
            return UNRESOLVED
        return _text(parts, separator)

    def _sub(self, argument: Any) -> Any:
        text, given = (argument, {}) if isinstance(argument, str) else self._pair(argument)
        if not isinstance(text, str) or not isinstance(given, dict):
            return UNRESOLVED
        pieces: list[Any] = []
        for index, piece in enumerate(re.split(r"\$\{([^}]+)\}", text)):
            if index % 2 == 0:
                pieces.append(piece)
            elif piece.startswith("!"):
                pieces.append("${" + piece[1:] + "}")
            elif piece in given:
                pieces.append(given[piece])
            else:
                pieces.append(self._attribute(piece) if "." in piece else self._ref(piece))
        return _text(pieces, "")

    def _select(self, argument: Any) -> Any:
        index, items = self._pair(argument)
        if not isinstance(items, list) or not str(index).isdigit() or int(index) >= len(items):
            return UNRESOLVED
        return items[int(index)]

    def _split(self, argument: Any) -> Any:
        separator, text = self._pair(argument)
        if not isinstance(separator, str) or not isinstance(text, str):
            return UNRESOLVED
        return text.split(separator)

    def _base64(self, argument: Any) -> Any:
        text = self.value(argument)
        return base64.b64encode(text.encode()).decode() if isinstance(text, str) else UNRESOLVED

    def _import(self, argument: Any) -> Any:
        return self._exports.get(str(self.value(argument)), UNRESOLVED)

    def _mapped(self, argument: Any) -> Any:
        found: Any = self._mappings
        for key in argument if isinstance(argument, list) else ():
            found = found.get(str(self.value(key)), UNRESOLVED) if isinstance(found, dict) else UNRESOLVED
        return found

    def _pair(self, argument: Any) -> tuple[Any, Any]:
        pair = [self.value(item) for item in argument] if isinstance(argument, list) else []
        return (pair[0], pair[1]) if len(pair) == 2 else (UNRESOLVED, UNRESOLVED)


def _text(pieces: list[Any], separator: str) -> Any:
    """The pieces as one text; UNRESOLVED when one of them is."""
    if not known(pieces) or any(isinstance(piece, (dict, list)) for piece in pieces):
        return UNRESOLVED
    return separator.join(str(piece) for piece in pieces)


def _pattern(value: Any) -> str:
    return ".*" if value is UNRESOLVED or isinstance(value, (dict, list)) else re.escape(str(value))
