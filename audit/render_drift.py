"""Differences in words, for a terminal of 80 columns."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.baseline import ReviewedException
from audit.difference import Difference, Key, Meaning
from diagnosis.prose import plain, wrapped

PAIRS_SHOWN = 4

_WORDS = {
    Meaning.BREAKS_MESH: "breaks the mesh",
    Meaning.BREAKS_NEW_CONNECTIONS: "breaks new connections",
    Meaning.OPENS_CLUSTER: "opens the cluster",
    Meaning.UNDETERMINED: "cannot be told",
    Meaning.WEAKENS: "weakens a guarantee",
    Meaning.COSMETIC: "cosmetic",
}


def tally(differences: Sequence[Difference]) -> str:
    """How many differences there are, and how grave."""
    counted = Counter(item.meaning for item in differences)
    parts = [f"{counted[meaning]} {words}" for meaning, words in _WORDS.items() if counted[meaning]]
    many = len(differences)
    return f"{many} difference{'' if many == 1 else 's'} from the stack: {', '.join(parts)}"


def drift_lines(differences: Sequence[Difference], who: Mapping[Key, Sequence[Any]]) -> list[str]:
    """One block a difference; the gravest first. who: calls that may have made one, by its key."""
    lines: list[str] = []
    for item in differences:
        found = item.deviation
        owner = f" ({found.logical_id})" if found.logical_id else ""
        lines += ["", *wrapped(f"{item.meaning.value}: {found.resource}{owner}, {found.attribute}")]
        lines += wrapped(f"expected: {_shown(found.expected)}", indent=3)
        lines += wrapped(f"actual:   {_shown(found.actual)}", indent=3)
        lines += wrapped(item.detail, indent=3)
        shown = list(itertools.islice(item.each_pair(), PAIRS_SHOWN))
        lines += [plain(f"     - {source} to {to}: {ports}") for source, to, ports in shown]
        more = item.pair_count - len({run[:2] for run in shown})
        if more > 0:
            lines.append(f"     - and {more} more pairs (see --json)")
        for call in who.get(found.key, ()):
            lines += wrapped(f"{call['at']} {call['user']}: {call['event']}", indent=3)
    return lines[1:]


def baseline_lines(
    accepted: Sequence[tuple[Difference, ReviewedException]], problems: Sequence[str]
) -> list[str]:
    """What reviewed exceptions let be, and what is wrong with them."""
    lines: list[str] = []
    for item, exception in accepted:
        found = item.deviation
        text = f"let be until {exception.expires}: {found.resource}, {found.attribute}: {exception.reason}"
        lines += ["", *wrapped(text)]
    for text in problems:
        lines += ["", *wrapped(text)]
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, default=str)
