"""What a machine or an account must have: one look each, told in a list and judged.

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Optional, Sequence, Tuple

from diagnosis.prose import beside


@dataclass(frozen=True)
class Check:
    """One prerequisite. ok None = could not be looked at, which is never fine."""

    name: str
    ok: Optional[bool]
    found: str
    remedy: str = ""
    setup_installs: bool = False  # `make setup` brings it when this user may install packages


def render(checks: Sequence[Check]) -> str:
    words = {True: "ok", False: "MISSING", None: "UNKNOWN"}
    lines = []
    for check in checks:
        lines += beside(f"{words[check.ok]:<8} {check.name}", check.found or "-", 32)
        if check.ok is not True and check.remedy:
            lines += beside("         next:", check.remedy, 15)
    return "\n".join(lines)


def judge(blocking: Sequence[Check]) -> Tuple[str, int]:
    """Verdict and exit status by what stands in the way."""
    if any(check.ok is False for check in blocking):
        return "FAIL", 1
    return ("UNKNOWN", 3) if blocking else ("PASS", 0)


def answer(checks: Sequence[Check], as_json: bool) -> Tuple[str, int]:
    """All checks as text, and the exit status."""
    verdict, status = judge([check for check in checks if check.ok is not True])
    if not as_json:
        return render(checks) + "\n", status
    document = {"schema_version": 1, "verdict": verdict, "checks": [asdict(check) for check in checks]}
    return json.dumps(document, indent=2) + "\n", status
