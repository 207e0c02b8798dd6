"""Writes docs/configuration.md: every setting of the `cluster` context, from its declaration.

python tools/configuration_page.py > docs/configuration.md
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import typing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cluster.settings import plain
from cluster.spec import ClusterSpec

HEAD = """\
# Configuration

Generated from `cluster/spec.py` by `make docs`; do not edit by hand.

The `cluster` object in `cdk.json`, or `-c cluster.NAME=VALUE` on any `cdk` command. A value that is not
allowed, or does not go with another, ends the synthesis with what is allowed and what to do.

| name | default | allowed | what it is |
|---|---|---|---|
"""


def _allowed(kind: object, metadata: typing.Mapping[str, object]) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return ", ".join(str(member.value) for member in kind)
    if kind is bool:
        return "true, false"
    if "one_of" in metadata:
        return ", ".join(str(value) for value in typing.cast("tuple[int, ...]", metadata["one_of"]))
    if "low" in metadata:
        return f"{metadata['low']} to {metadata['high']}"
    return str(metadata.get("shape", "text"))


def page() -> str:
    """The whole page."""
    kinds = typing.get_type_hints(ClusterSpec)
    default = ClusterSpec()
    rows = []
    for field in dataclasses.fields(ClusterSpec):
        value = plain(getattr(default, field.name))
        shown = "(blank)" if value == "" else str(value).lower() if isinstance(value, bool) else str(value)
        allowed = _allowed(kinds[field.name], field.metadata)
        cells = [field.name, shown, allowed, str(field.metadata["about"])]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
