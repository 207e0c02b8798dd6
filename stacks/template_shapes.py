"""How a template's values must look to be judged without a deploy.

What does not look so (a parameter, a function, another resource's attribute) is told with its place, and
left out: it counts neither as there nor as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cluster.template_rules import name_of

Tell = Callable[[str, str], None]
"""Takes the place and the reason of what cannot be read."""

NO_VALUE = {"Ref": "AWS::NoValue"}
"""What CloudFormation takes as if the property were not there."""


class Shape(Protocol):
    """How a value must look to be judged; what does not is told, and None stands for it.

    The third argument of `read` is the type of every resource of the template, by its logical id.
    """

    def read(self, value: Any, where: str, types: Mapping[str, str], tell: Tell, /) -> Any: ...


@dataclass(frozen=True)
class Literal:
    """A value that stands in the template. parse: raises ValueError for any that cannot be judged."""

    what: str
    parse: Callable[[str], object]

    def read(self, value: Any, where: str, _: Mapping[str, str], tell: Tell) -> Any:
        if function := _function(value):
            tell(where, f"{function} is known to the deploy only")
            return None
        try:
            self.parse(str(value).lower())
        except ValueError:
            tell(where, f"{value!r} is not {self.what}")
            return None
        return value


@dataclass(frozen=True)
class Reference:
    """A resource of this type.

    by_id: the id of one outside of the template will do; else that might be what members use, unread.
    """

    kind: str
    by_id: bool = True

    def read(self, value: Any, where: str, types: Mapping[str, str], tell: Tell) -> Any:
        function = _function(value)
        if function.startswith(("Ref ", "Fn::GetAtt ")):
            told = types.get(name_of(value)) == self.kind
        else:
            told = self.by_id and isinstance(value, str)
        if not told:
            tell(where, f"which {self.kind} {function or repr(value)} is cannot be told from the template")
        return value if told else None


@dataclass(frozen=True)
class Items:
    """A list; an item that cannot be read is left out."""

    shape: Shape

    def read(self, value: Any, where: str, types: Mapping[str, str], tell: Tell) -> Any:
        if not isinstance(value, list):
            tell(where, f"{_function(value) or repr(value)} is not a list that stands in the template")
            return None
        kept = [item for item in value if item != NO_VALUE]
        found = (self.shape.read(item, f"{where}/{at}", types, tell) for at, item in enumerate(kept))
        return [item for item in found if item is not None]


@dataclass(frozen=True)
class Fields:
    """An object. required: of each of these, one key. unjudged: keys whose meaning nothing here knows.

    whole: it is one thing, as a rule is, of which nothing counts unless everything can be read.
    """

    shapes: Mapping[str, Shape]
    required: tuple[tuple[str, ...], ...] = ()
    unjudged: tuple[str, ...] = ()
    whole: bool = False

    def read(self, value: Any, where: str, types: Mapping[str, str], tell: Tell) -> Any:
        if not isinstance(value, dict) or _function(value):
            tell(where, f"{_function(value) or repr(value)} is known to the deploy only")
            return None
        found = {key: item for key, item in value.items() if item != NO_VALUE}
        lost = False
        for key in self.unjudged:
            if key in found:
                lost = True
                tell(f"{where}/{key}", f"what {found[key]!r} names cannot be told from the template")
        for keys in () if lost else self.required:
            if not any(key in found for key in keys):
                lost = True
                tell(where, f"it has no {' or '.join(keys)}")
        for key, shape in self.shapes.items():
            if key not in found:
                continue
            told: list[str] = []

            def noted(place: str, reason: str, told: list[str] = told) -> None:
                told.append(place)
                tell(place, reason)

            item = shape.read(found.pop(key), f"{where}/{key}", types, noted)
            lost = lost or bool(told)
            if item is not None:
                found[key] = item
        return None if self.whole and lost else found


def _function(value: Any) -> str:
    """The function or reference that stands in place of a value; blank = the value itself."""
    if not isinstance(value, dict):
        return ""
    if "Ref" in value:
        return f"Ref {value['Ref']}"
    if "Fn::GetAtt" in value:
        target = value["Fn::GetAtt"]
        return f"Fn::GetAtt {'.'.join(map(str, target)) if isinstance(target, list) else target}"
    return next((key for key in value if key.startswith("Fn::")), "")
