"""Logs that a terminal or an editor wrapped: a message that was cut at a column, put together again."""

from __future__ import annotations

from typing import Callable, Iterator, List, NamedTuple, Sequence

# Widths at which terminals wrap, where one line alone is that long; any other needs two such lines.
_USUAL = frozenset((79, 80, 99, 100, 119, 120, 131, 132, 159, 160))
_NARROW, _WIDE, _TERMINAL = 60, 260, 80
_LINES_AT_MOST = 12  # of one message; a log that is all of one width is a table


class Joined(NamedTuple):
    """Lines that belong together, with what stood between them. `number` is that of the first."""

    number: int
    parts: Sequence[bytes]
    between: bytes = b""

    @property
    def text(self) -> bytes:
        return self.between.join(self.parts)

    def part_at(self, offset: int) -> int:
        """Which of the lines holds a byte of the text."""
        for place, part in enumerate(self.parts):
            if offset <= len(part):
                return place
            offset -= len(part) + len(self.between)
        return len(self.parts) - 1


def joined_lines(block: bytes) -> Iterator[Joined]:
    """What belongs together in a short log, if it looks wrapped. Lines are counted from 1."""
    lines = [line.rstrip(b"\r") for line in block.split(b"\n")]
    width = max(map(len, lines))
    if not _NARROW <= width <= _WIDE:
        return
    if sum(len(line) == width for line in lines) > 1 or width in _USUAL:
        yield from _runs(lines, lambda line, _: len(line) == width, b"")
    # Wrapped at blanks: the next line's first word had no room.
    yield from _runs(
        lines,
        lambda line, after: (
            bool(after)
            and len(line) > width // 2
            and len(line) + len(after.split(b" ", 1)[0]) >= min(width, _TERMINAL)
        ),
        b" ",
    )


def _runs(lines: List[bytes], goes_on: Callable[[bytes, bytes], bool], between: bytes) -> Iterator[Joined]:
    run: List[bytes] = []
    for number, line in enumerate(lines, 1):
        run.append(line)
        after = lines[number] if number < len(lines) else b""
        if not (after and goes_on(line, after)) or len(run) >= _LINES_AT_MOST:
            if len(run) > 1:
                yield Joined(number - len(run) + 1, tuple(run), between)
            run = []
