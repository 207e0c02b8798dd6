"""The catalogue for a terminal and as JSON: `fullmesh causes [ID]`."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from cluster.serial import encode
from diagnosis.causes import Cause, Group, fill
from diagnosis.prose import beside, shell_lines, wrapped


def cause_document(cause: Cause) -> Dict[str, Any]:
    """The declaration as JSON data; commands are templates."""
    encoded: Dict[str, Any] = encode(cause._asdict())
    return encoded


def cause_text(cause: Cause) -> str:
    """One cause in full."""
    seen = ", ".join(place.value for place in cause.seen_in)
    lines = [cause.id, *wrapped(cause.title, indent=2), ""]
    lines += wrapped(cause.meaning, indent=2)
    lines += ["", *wrapped(f"Decided by: {cause.decided_by}.", indent=2), f"  Seen in: {seen}."]
    if cause.explains:
        lines += wrapped(f"Explains: {', '.join(dict.fromkeys(cause.explains))}.", indent=2)
    if not cause.decides_verdict:
        lines.append("  Never decides the mesh's verdict.")
    lines += ["", *wrapped(cause.remediation, indent=2)]
    for command in fill(cause.commands, {}):
        lines += shell_lines(command, indent=4)
    return "\n".join(lines) + "\n"


def causes_text(causes: Sequence[Cause]) -> str:
    """All causes by group, an entry each."""
    blocks: List[str] = []
    for group in Group:
        own = [cause for cause in causes if cause.group is group]
        if own:
            entries = [line for cause in own for line in beside(f"  {cause.id}", cause.title, 29)]
            blocks.append("\n".join([group.value, *entries]))
    return "\n\n".join(blocks) + "\n"
