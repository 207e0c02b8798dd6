"""Logs of any size and encoding -> facts, in constant memory.

Chunks without a known word are skipped by literal search; of the others each line is looked
at once, and of lines that differ in digits alone only the first `_SAME_SHAPE` are read fully:
a message repeated a million times by a retrying rank costs a dictionary look-up each.
"""

from __future__ import annotations

import io
import re
from typing import BinaryIO, Dict, Iterator, List, Optional, Sequence, Set, Tuple, cast

from diagnosis.explain import LogError
from diagnosis.explain_facts import RETRIED, Book, Fact, Kind, Place, node_of, rank_of, time_of
from diagnosis.signatures import (
    ERROR_WORDS,
    GATES,
    PROGRESS_WORDS,
    WORDS,
    Signature,
    read_text,
    shows_progress,
    triggers_by_gate,
)

CHUNK_BYTES = 1 << 18
# A longer line is read in pieces that overlap; no message is as long as the overlap.
PIECE_BYTES = 1 << 16
_OVERLAP_BYTES = 2048
_EXCERPT_CHARACTERS = 400
_SAME_SHAPE = 64
_SHAPES_AT_MOST = 20_000
_WORDS_AT_MOST = 50_000
_LONG_WORD = 64
_LONG_SHAPE = 1024
_SECTION = b"==> "  # what tail prints above each of several files
_GZIP = b"\x1f\x8b\x08"  # with the only compression method there is

_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
_DIGITS = b"0123456789"
_PROGRESS_LINES_A_CHUNK = 8
# Fields of a line that a collector escaped into JSON: each escaped line break ends a message.
_BREAKS = re.compile(r"\\r\\n|\\n|\r")
_ESCAPED = re.compile(r'\\(["/\\t])')


def read_logs(logs: Sequence[Tuple[str, BinaryIO]]) -> Book:
    """Facts of all logs. Each is (name, binary stream); gzip is unpacked.

    Raises:
        LogError: a stream cannot be read to its end.
    """
    book = Book()
    for name, stream in logs:
        book.files.append(name)
        try:
            _Reader(book, name).read(_unpacked(stream))
        except (OSError, EOFError) as error:
            raise LogError(f"{name} cannot be read to its end: {error}") from error
    return book


def _unpacked(stream: BinaryIO) -> BinaryIO:
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast(io.RawIOBase, stream))
    if cast(io.BufferedReader, buffered).peek(3)[:3] == _GZIP:
        import gzip  # noqa: PLC0415 - start-up time: few logs are packed

        return cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    return buffered


class _Reader:
    """One log. Lines are counted from 1."""

    def __init__(self, book: Book, name: str) -> None:
        self._book = book
        self._name = name
        self._line = 1
        self._dull: Set[bytes] = set()  # shapes without any gate
        self._words: Set[bytes] = set()  # words that belong to no message
        self._unlike = False  # this log is not made of words
        self._told: Dict[bytes, List[Kind]] = {}  # shapes that were read, and what they said
        self._counts: Dict[bytes, int] = {}
        self._summary: Dict[str, str] = {}
        self._section: Optional[str] = None

    def read(self, stream: BinaryIO) -> None:
        rest = b""
        while True:
            try:
                chunk = stream.read(CHUNK_BYTES)
            except (OSError, EOFError):
                raise
            except Exception as error:
                raise OSError(str(error)) from error
            if not chunk:
                break
            block = rest + chunk
            end = block.rfind(b"\n") + 1
            if end:
                self._block(block[:end])
                rest = block[end:]
            else:
                rest = block
            if len(rest) > CHUNK_BYTES:
                # A line without an end: read what is there, keep what a message may continue from.
                self._block(rest)
                rest = rest[-_OVERLAP_BYTES:]
        if rest:
            self._block(rest)
        self._book.lines += self._line - 1 + bool(rest)

    def _block(self, block: bytes) -> None:
        breaks = block.count(b"\n")
        clean = block
        if b"\0" in clean:
            clean = clean.replace(b"\0", b"")  # UTF-16 is readable without them
        if b"\x1b" in clean:
            clean = _ANSI.sub(b"", clean)
        self._lines(clean)
        if any(self._book.has(kind) for kind in (*RETRIED, Kind.NOISE)):
            self._progress(clean)
        self._line += breaks

    def _lines(self, block: bytes) -> None:
        """Read the lines of a block whose shape (the line without digits) is new or worth a count."""
        shapes = block.translate(None, _DIGITS).split(b"\n")
        fresh = set(shapes) - self._dull
        together = b"\n".join(fresh)
        if not self._has_words(together):
            self._remember_dull(fresh)
            return
        present = [gate for gate in GATES if gate in together]
        if not present:
            self._remember_dull(fresh)
            return
        active = self._active(present, together, block)
        # Only what may matter is looked at by line number.
        needles = {trigger.translate(None, _DIGITS) for trigger, _ in active} | {_SECTION}
        if not self._book.full(Kind.OTHER_ERROR):
            needles.update(ERROR_WORDS)
        wanted = {shape for shape in fresh if any(needle in shape for needle in needles)}
        self._remember_dull(fresh - wanted)
        if not wanted:
            return
        lines = block.split(b"\n")
        counts, told = self._counts, self._told
        for offset, shape in enumerate(shapes):
            if shape not in wanted:
                continue
            count = counts.get(shape, 0)
            if count >= _SAME_SHAPE:
                for kind in told[shape]:
                    # A repeated line is not read again, but it is still the last of its kind.
                    self._book.last_order[kind] = self._order(self._line + offset)
                continue
            kinds = self._read(lines[offset], self._line + offset, active)
            if len(counts) < _SHAPES_AT_MOST or shape in counts:
                counts[shape] = count + 1
                told[shape] = kinds

    def _has_words(self, text: bytes) -> bool:
        """Whether a word of the text may belong to a message. Words seen before are not searched again."""
        if self._unlike:
            return True
        fresh = set(text.split()) - self._words
        together = b" ".join(fresh)
        # Where most words are new (packed data, random names), looking at words saves nothing.
        many = len(self._words) > _WORDS_AT_MOST // 2
        self._unlike = many and len(together) * 2 > len(text) > CHUNK_BYTES // 2
        found = any(word in together for word in WORDS)
        if len(self._words) + len(fresh) <= _WORDS_AT_MOST:
            self._words |= {
                word
                for word in fresh
                if len(word) <= _LONG_WORD and not (found and any(part in word for part in WORDS))
            }
        return found

    def _active(self, present: List[bytes], together: bytes, block: bytes) -> List[Tuple[bytes, Signature]]:
        """Triggers that this block holds, of the kinds of which more facts are wanted."""
        active: List[Tuple[bytes, Signature]] = []
        table = triggers_by_gate()
        for gate in present:
            for trigger, signature in table[gate]:
                plain = trigger.translate(None, _DIGITS)
                if plain not in together or (plain != trigger and trigger not in block):
                    continue
                if not self._book.full(signature.kind):
                    active.append((trigger, signature))
                    continue
                at = block.rfind(trigger)
                if at >= 0:
                    line = self._line + block.count(b"\n", 0, at)
                    order = max(self._order(line), self._book.last_order.get(signature.kind, 0))
                    self._book.last_order[signature.kind] = order
        return active

    def _remember_dull(self, shapes: Set[bytes]) -> None:
        if len(self._dull) + len(shapes) <= _SHAPES_AT_MOST:
            self._dull |= {shape for shape in shapes if len(shape) < _LONG_SHAPE}

    def _order(self, line: int) -> int:
        return (len(self._book.files) << 40) + line

    def _read(self, line: bytes, number: int, active: List[Tuple[bytes, Signature]]) -> List[Kind]:
        kinds: List[Kind] = []
        for piece in _pieces(line):
            signatures = [signature for trigger, signature in active if trigger in piece]
            if not signatures and not any(word in piece for word in (*ERROR_WORDS, _SECTION)):
                continue
            text = piece.decode("utf-8", "replace")
            parts = _BREAKS.split(text) if ("\\n" in text or "\r" in text) else [text]
            for part in parts:
                message = _ESCAPED.sub(lambda found: "\t" if found.group(1) == "t" else found.group(1), part)
                kinds += self._message(message if "\\" in part else part, number, parts[0], signatures)
        return kinds

    def _message(self, text: str, number: int, head: str, signatures: List[Signature]) -> List[Kind]:
        if text.startswith(_SECTION.decode()) and text.rstrip().endswith("<=="):
            self._section = text.strip()[4:-4].strip()[:120]
        matches = read_text(text, signatures)
        if not matches:
            return []
        rank = rank_of(text)
        rank = rank if rank is not None else rank_of(head)
        node = node_of(text) or node_of(head) or self._section
        at = time_of(text)
        at = at if at is not None else time_of(head)
        for kind, values, start, end in matches:
            if kind is Kind.SUMMARY:
                self._summary.update(values)
                continue
            own, moment, host = rank, at, node
            merged = values
            if kind is Kind.EXIT and "rank" in self._summary:
                merged = {**values, **self._summary}
                own = int(self._summary["rank"])
                moment = time_of(self._summary.get("time", "")) or at
                host = self._summary.get("host", node)
                self._summary = {}
            place = Place(file=self._name, line=number, text=_excerpt(text, start, end))
            fact = Fact(
                kind=kind,
                values=merged,
                place=place,
                order=self._order(number),
                rank=own,
                node=host,
                at=moment,
            )
            self._book.add(fact)
        return [match[0] for match in matches]

    def _progress(self, block: bytes) -> None:
        """The last line of a block that shows work going on; earlier ones add nothing."""
        starts: Set[int] = set()
        for word in PROGRESS_WORDS:
            end = len(block)
            for _ in range(_PROGRESS_LINES_A_CHUNK):
                at = block.rfind(word, 0, end)
                if at < 0:
                    break
                end = block.rfind(b"\n", 0, at) + 1
                starts.add(end)
        for start in sorted(starts, reverse=True):
            end = block.find(b"\n", start)
            line = block[start : end if end >= 0 else len(block)][:PIECE_BYTES]
            text = line.decode("utf-8", "replace")
            if shows_progress(text):
                number = self._line + block.count(b"\n", 0, start)
                self._book.facts[Kind.PROGRESS] = [
                    *self._book.facts.get(Kind.PROGRESS, [])[:1],
                    Fact(
                        kind=Kind.PROGRESS,
                        values={},
                        place=Place(file=self._name, line=number, text=_excerpt(text, 0, len(text))),
                        order=self._order(number),
                        rank=rank_of(text),
                        node=node_of(text),
                        at=time_of(text),
                    ),
                ]
                return


def _pieces(line: bytes) -> Iterator[bytes]:
    if len(line) <= PIECE_BYTES:
        yield line
        return
    for start in range(0, len(line), PIECE_BYTES - _OVERLAP_BYTES):
        yield line[start : start + PIECE_BYTES]


def _excerpt(text: str, start: int, end: int) -> str:
    """The line, or of a long one what stands around the message."""
    if len(text) > _EXCERPT_CHARACTERS:
        begin = max(0, min(start - 40, end - _EXCERPT_CHARACTERS))
        text = text[begin : begin + _EXCERPT_CHARACTERS]
    return text.strip()
