"""Logs that a terminal or an editor wrapped: a message that was cut at a column, put together again."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Sequence

# Widths at which terminals wrap, where one line alone is that long; any other needs two such lines.
_USUAL = frozenset((79, 80, 99, 100, 119, 120, 131, 132, 159, 160))
_NARROW, _WIDE = 60, 260
_LINES_AT_MOST = 12  # of one message; a log that is all of one width is a table


class Joined(NamedTuple):
    """Lines that belong together; `number` is that of the first."""

    number: int
    parts: Sequence[bytes]

    @property
    def text(self) -> bytes:
        return b"".join(self.parts)

    def part_at(self, offset: int) -> int:
        """Which of the lines holds a byte of the text."""
        for place, part in enumerate(self.parts):
            if offset < len(part):
                return place
            offset -= len(part)
        return len(self.parts) - 1


def joined_lines(block: bytes) -> Iterator[Joined]:
    """What belongs together in a short log, if it looks wrapped. Lines are counted from 1."""
    lines = [line.rstrip(b"\r") for line in block.split(b"\n")]
    width = max(map(len, lines))
    full = sum(len(line) == width for line in lines)
    if not _NARROW <= width <= _WIDE or (full < 2 and width not in _USUAL):
        return
    run: List[bytes] = []
    for number, line in enumerate(lines, 1):
        run.append(line)
        if len(line) < width or len(run) > _LINES_AT_MOST:
            if 1 < len(run) <= _LINES_AT_MOST and line:
                yield Joined(number - len(run) + 1, tuple(run))
            run = []
