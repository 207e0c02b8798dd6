"""Finds the lines of a log that may say something, at the speed of the disk.

A log of a hundred megabytes holds few different lines, once numbers and ids are taken out of
them. Of each block the new lines are searched for a few literals, and what holds none is
forgotten; of lines that differ in numbers alone only the first `SAME_SHAPE` are read fully. What is
remembered is bounded, and so is how often one literal makes lines be read that tell nothing new.
"""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, List, Sequence, Set

from diagnosis.logs.facts import Book
from diagnosis.logs.kinds import Kind
from diagnosis.logs.needles import Needles
from diagnosis.logs.signatures import DELETED, PROGRESS_TRIGGERS, Trigger, all_triggers

SAME_SHAPE = 64
SECTION = b"==> "  # what tail prints above each of several files
_SHAPES_AT_MOST = 20_000
_LONG_SHAPE = 1024
# A literal that made so many lines be read, none of the last of which told anything new, is tired: from
# then on the last line of each block that holds it is enough. A long line counts as several.
_VAIN_READS = 1500
_READS_AT_MOST = 12_000
# Where very many literals make lines be read, each gets less patience, and takes turns when it is tired.
_READS_IN_ALL = 60_000
_VAIN_READS_THEN = 50
_TIRED_AT_ONCE = 24
_LINE_BYTES = 512
# Where hardly any two lines are alike, work is looked for in the last bytes of a block alone: its words
# are too common, and what matters of it is when it was last seen.
_TAIL_BYTES = 4096
_LITTLE_ALIKE = 1 << 16

# Reads one line: (its bytes, its number, the literals in it) -> the kinds of its facts.
Read = Callable[[bytes, int, Sequence[Trigger]], List[Kind]]


class Scan:
    """One log, block by block. `read` is called for the lines that may say something."""

    def __init__(self, book: Book, read: Read, order: Callable[[int], int]) -> None:
        self._book = book
        self._read = read
        self._order = order
        self._work = [trigger for trigger in all_triggers() if trigger.literal in PROGRESS_TRIGGERS]
        self._rows = [trigger for trigger in all_triggers() if trigger.literal not in PROGRESS_TRIGGERS]
        self._needles = Needles(trigger.needle for trigger in self._rows)
        self._number, self._step = 1, 1  # of the block's first line, and from one line to the next
        self._dull: Set[bytes] = set()  # shapes without any literal
        self._told: Dict[bytes, List[Kind]] = {}  # shapes that were read, and what they said
        self._counts: Dict[bytes, int] = {}
        self._turn = 0
        self._all_reads = 0
        self._reads: Dict[bytes, int] = {}  # of a literal: lines read for it
        self._vain: Dict[bytes, int] = {}  # and how many of the last of them told nothing new

    def block(self, block: bytes, number: int, *, inside: bool = False) -> None:
        """Whole lines, of which `number` is the first; or what one line was cut into, when `inside` of it."""
        self._number, self._step = number, 0 if inside else 1
        shapes = block.translate(None, DELETED).split(b"\n")
        fresh = set(shapes) - self._dull
        together = b"\n".join(fresh)
        unlike = len(together) > _LITTLE_ALIKE and len(together) * 3 > len(block)
        present: FrozenSet[bytes] = frozenset(self._needles.present(together))
        active = [trigger for trigger in self._rows if trigger.needle in present]
        if not unlike:
            active += [trigger for trigger in self._work if trigger.needle in together]
        # Where the needle says less than the literal, the block itself decides.
        active = [
            trigger
            for trigger in active
            if len(trigger.needle) == len(trigger.literal) or trigger.literal in block
        ]
        awake = [trigger for trigger in active if not self._tired(trigger)]
        needles = [literal for literal in {SECTION, *(one.needle for one in awake)} if literal in together]
        wanted = (
            {shape for shape in fresh if any(literal in shape for literal in needles)} if needles else set()
        )
        if len(awake) == len(active) and not unlike:
            self._remember_dull(fresh - wanted)
        if wanted:
            self._lines(block.split(b"\n"), shapes, wanted, awake)
        tired = [trigger for trigger in active if self._tired(trigger)]
        if len(tired) > _TIRED_AT_ONCE:
            self._turn = (self._turn + _TIRED_AT_ONCE) % len(tired)
            tired = (tired + tired)[self._turn : self._turn + _TIRED_AT_ONCE]
        for trigger in tired:
            self._last(block, 0, [trigger])
        if unlike:
            self._last(block, max(0, len(block) - _TAIL_BYTES), self._work)

    def _lines(
        self,
        lines: Sequence[bytes],
        shapes: Sequence[bytes],
        wanted: Set[bytes],
        awake: List[Trigger],
    ) -> None:
        counts, told = self._counts, self._told
        for offset, shape in enumerate(shapes):
            if shape not in wanted:
                continue
            number = self._number + offset * self._step
            count = counts.get(shape, 0)
            if count >= SAME_SHAPE or (count and not told[shape]):
                for kind in told[shape]:
                    # A repeated line is not read again, but it is still the last of its kind.
                    self._book.last_order[kind] = self._order(number)
                continue
            line = lines[offset]
            here = [trigger for trigger in awake if trigger.literal in line]
            if not here and not line.startswith(SECTION):
                continue  # it is like one that holds a literal, and holds none itself
            kinds = self._counted(line, number, here)
            if len(counts) < _SHAPES_AT_MOST or shape in counts:
                counts[shape] = count + 1
                told[shape] = kinds

    def _counted(self, line: bytes, number: int, here: List[Trigger]) -> List[Kind]:
        known = self._book.kept
        kinds = self._read(line, number, here)
        cost = 1 + len(line) // _LINE_BYTES
        self._all_reads += cost
        for trigger in here:
            literal = trigger.literal
            self._reads[literal] = self._reads.get(literal, 0) + cost
            self._vain[literal] = 0 if self._book.kept > known else self._vain.get(literal, 0) + cost
        return kinds

    def _tired(self, trigger: Trigger) -> bool:
        vain, reads = self._vain.get(trigger.literal, 0), self._reads.get(trigger.literal, 0)
        patience = _VAIN_READS if self._all_reads < _READS_IN_ALL else _VAIN_READS_THEN
        return vain >= patience or reads >= _READS_AT_MOST

    def _last(self, block: bytes, begin: int, triggers: List[Trigger]) -> None:
        """The last line that holds one of the literals: it tells when that was last said."""
        at = max(block.rfind(trigger.literal, begin) for trigger in triggers)
        if at >= 0:
            # Of a line without an end what is near: a message is no longer than that.
            start = block.rfind(b"\n", max(0, at - _TAIL_BYTES), at) + 1 or max(0, at - _TAIL_BYTES)
            end = block.find(b"\n", at, at + _TAIL_BYTES)
            line = block[start : end if end >= 0 else at + _TAIL_BYTES]
            here = [trigger for trigger in triggers if trigger.literal in line]
            self._read(line, self._number + self._step * block.count(b"\n", 0, start), here)

    def _remember_dull(self, shapes: Set[bytes]) -> None:
        if len(self._dull) + len(shapes) <= _SHAPES_AT_MOST:
            self._dull |= {shape for shape in shapes if len(shape) < _LONG_SHAPE}
