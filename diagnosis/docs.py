"""`python -m diagnosis.docs > docs/causes.md`: the reference page, from the catalogue."""

from __future__ import annotations

import sys
from typing import List

from diagnosis.causes import CAUSES, Cause, Group, fill

_HEAD = """\
# The causes

<!-- Generated from diagnosis/catalogue: python -m diagnosis.docs > docs/causes.md -->

Every verdict names causes from this list. Ids are stable. Where the evidence does not decide, the verdict is
`undetermined` and lists candidates and the one command that decides.
"""


def page() -> str:
    """The whole page as Markdown."""
    lines: List[str] = [_HEAD]
    for group in Group:
        lines += [f"## {group.value}", ""]
        for item in CAUSES:
            if item.group is group:
                lines += _entry(item)
    return "\n".join(lines).rstrip("\n") + "\n"


def _entry(item: Cause) -> List[str]:
    lines = [
        f"### {item.id}",
        "",
        f"{item.title[0].upper()}{item.title[1:]}. {item.meaning}",
        "",
        f"- Decided by: {item.decided_by}.",
        f"- Seen in: {', '.join(place.value for place in item.seen_in)}.",
        f"- Remedy: {item.remediation}",
    ]
    if item.explains:
        lines.append(f"- Explains: {', '.join(dict.fromkeys(item.explains))}.")
    if not item.decides_verdict:
        lines.append("- Never decides the mesh's verdict.")
    lines.append("")
    if item.commands:
        lines += ["```sh", *fill(item.commands, {}), "```", ""]
    return lines


if __name__ == "__main__":
    sys.stdout.write(page())
