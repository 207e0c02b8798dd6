"""Plain text for terminals: without control characters, in 80 columns; commands that a shell reads whole."""

from __future__ import annotations

import textwrap
from typing import List

WIDTH = 80


def plain(text: str) -> str:
    """Text without control characters: evidence may quote what a broken program printed."""
    return "".join(char if char.isprintable() else " " for char in text)


def ascii_line(text: str) -> str:
    """One line of printable ASCII."""
    return " ".join("".join(char if " " <= char <= "~" else "?" for char in " ".join(text.split())).split())


def wrapped(text: str, indent: int = 0, width: int = WIDTH, hanging: int = 0) -> List[str]:
    """Prose in lines of at most `width` columns; a longer word stays whole. hanging: of all but the first."""
    margin = " " * indent
    return textwrap.wrap(
        plain(text),
        width=width,
        initial_indent=margin,
        subsequent_indent=margin + " " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def beside(name: str, text: str, column: int, width: int = WIDTH) -> List[str]:
    """A name and, from `column` on, what it is: an entry of a list."""
    return textwrap.wrap(
        plain(text),
        width=width,
        initial_indent=f"{name:<{column - 1}} ",
        subsequent_indent=" " * column,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shell_lines(command: str, indent: int = 0, width: int = WIDTH) -> List[str]:
    """A command over several lines that a shell reads as one: broken at blanks outside of quotes."""
    margin = " " * indent
    lines: List[str] = []
    current = ""
    for word in _shell_words(plain(command)):
        joined = f"{current} {word}" if current else word
        # Everything behind a # is a comment up to the line's end: no break there.
        if current and " # " not in f" {joined} " and len(margin) + len(joined) + 2 > width:
            lines.append(f"{margin}{current} \\")
            current, margin = word, " " * (indent + 2)
        else:
            current = joined
    return [*lines, margin + current]


def _shell_words(command: str) -> List[str]:
    """Words between blanks that no quote and no $( ) holds together."""
    words: List[str] = []
    word, quote, depth = "", "", 0
    for char in command:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
        if char == " " and not quote and depth <= 0:
            words.append(word)
            word = ""
        else:
            word += char
    return [item for item in (*words, word) if item]
