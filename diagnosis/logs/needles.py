"""Which of some hundred literals a text holds, in one pass over it.

Looking for each literal by itself costs some 40 ms in a hundred megabytes, and there are hundreds
of them. One regular expression finds them all at a speed that hardly depends on the text, if it
looks closely at few places: its alternatives begin at one of a few characters that together occur
in every literal, and that are seldom elsewhere.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Set, Tuple

_SHORT_TEXT = 1 << 14  # below this, building the expression costs more than it saves
_WINDOW = 8  # characters looked at, from the rare one on; where there are fewer, also those before it


class Needles:
    """A set of literals to look for."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._literals = tuple(dict.fromkeys(literals))
        self._windows: Dict[bytes, List[bytes]] = {}
        self._expression = re.compile(b"")

    def present(self, text: bytes) -> Set[bytes]:
        """The literals that the text holds, and perhaps some of which it holds a part."""
        if len(text) < _SHORT_TEXT:
            return {literal for literal in self._literals if literal in text}
        if not self._windows:
            self._expression = self._build()
        # What is found is the rare character alone: two literals may lie within one another's windows.
        places = {text[at.start() : at.start() + _WINDOW] for at in self._expression.finditer(text)}
        beginnings = {place[:size] for place in places for size in range(1, _WINDOW + 1)}
        return {literal for window in beginnings & self._windows.keys() for literal in self._windows[window]}

    def _build(self) -> re.Pattern[bytes]:
        anchors = _anchors(self._literals)
        ends: Dict[bytes, Set[Tuple[bytes, bytes]]] = {}
        for literal in self._literals:
            place = min(
                (place for place, char in enumerate(literal) if char in anchors),
                key=lambda place: (_frequency(literal[place]), place),
            )
            window = literal[place : place + _WINDOW]
            self._windows.setdefault(window, []).append(literal)
            whole = literal[max(0, place - _WINDOW + len(window)) : place] + window
            ends.setdefault(window[:1], set()).add((window[1:], whole))
        return re.compile(
            b"|".join(re.escape(rare) + b"(?=" + _tree(sorted(ends[rare])) + b")" for rare in sorted(ends))
        )


def _frequency(char: int) -> float:
    """About how many of a hundred characters of logs and prose are this one."""
    text = chr(char)
    if text == " ":
        return 20.0
    if text.islower():
        return 5.5 if text in "tsoinr" else 3.5
    return 2.0 if text in ".,:-_/" else 0.3


def _anchors(literals: Iterable[bytes]) -> Set[int]:
    """Few and rare characters of which every literal has one."""
    left = set(literals)
    anchors: Set[int] = set()
    while left:
        holds: Dict[int, int] = {}
        for literal in left:
            for char in set(literal):
                holds[char] = holds.get(char, 0) + 1
        best = max(sorted(holds), key=lambda char: holds[char] / _frequency(char))
        anchors.add(best)
        left = {literal for literal in left if best not in literal}
    for char in sorted(anchors, key=_frequency, reverse=True):
        others = anchors - {char}
        if all(not others.isdisjoint(literal) for literal in literals):
            anchors = others
    return anchors


def _tree(ends: List[Tuple[bytes, bytes]]) -> bytes:
    """Alternatives with their common beginnings shared. Each is (what is left of it, all that must match)."""
    groups: Dict[bytes, List[Tuple[bytes, bytes]]] = {}
    whole: List[bytes] = []
    for left, literal in ends:
        if left:
            groups.setdefault(left[:1], []).append((left[1:], literal))
        else:
            whole.append(b"(?<=" + re.escape(literal) + b")")
    branches = [re.escape(first) + _tree(rest) for first, rest in groups.items()] + whole
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
