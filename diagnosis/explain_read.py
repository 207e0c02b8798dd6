"""Logs of any size and encoding -> facts, in constant memory.

Chunks without a known word are skipped by literal search; of the others each line is looked
at once, and of lines that differ in digits alone only the first `_SAME_SHAPE` are read fully:
a message repeated a million times by a retrying rank costs a dictionary look-up each.
"""

from __future__ import annotations

import io
import re
from typing import BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple, cast

from diagnosis.explain import LogError
from diagnosis.explain_facts import RETRIED, Book, Fact, Kind, Place, node_of, rank_of, time_of
from diagnosis.signatures import GATES, PROGRESS_WORDS, read_line, shows_progress

CHUNK_BYTES = 1 << 18
# A longer line is read in pieces that overlap; no message is as long as the overlap.
PIECE_BYTES = 1 << 16
_OVERLAP_BYTES = 2048
_EXCERPT_CHARACTERS = 400
_SAME_SHAPE = 64
_SHAPES_AT_MOST = 50_000
_GZIP = b"\x1f\x8b"

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
    if cast(io.BufferedReader, buffered).peek(2)[:2] == _GZIP:
        import gzip  # noqa: PLC0415 - start-up time: few logs are packed

        return cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    return buffered


class _Reader:
    """One log. Lines are counted from 1."""

    def __init__(self, book: Book, name: str) -> None:
        self._book = book
        self._name = name
        self._line = 1
        self._shapes: Dict[bytes, List[Kind]] = {}
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
        present = [gate for gate in GATES if gate in clean]
        if present:
            self._lines(clean, present)
        if any(self._book.has(kind) for kind in (*RETRIED, Kind.NOISE)):
            self._progress(clean)
        self._line += breaks

    def _lines(self, block: bytes, present: List[bytes]) -> None:
        counts = self._counts
        for offset, line in enumerate(block.split(b"\n")):
            if len(line) < 4:
                continue
            shape = line.translate(None, _DIGITS) if len(line) < PIECE_BYTES else line[:64]
            count = counts.get(shape)
            if count is not None:
                counts[shape] = count + 1
                if count >= _SAME_SHAPE:
                    self._again(shape)
                    continue
            for gate in present:
                if gate in line:
                    break
            else:
                continue
            kinds = self._read(line, self._line + offset)
            if count is None and len(counts) < _SHAPES_AT_MOST and len(line) < PIECE_BYTES:
                counts[shape] = 1
                self._shapes[shape] = kinds

    def _again(self, shape: bytes) -> None:
        """A repeated line is not read again, but it is still the last of its kind."""
        for kind in self._shapes.get(shape, ()):
            self._book.last_order[kind] = self._order(0)

    def _order(self, line: int) -> int:
        return (len(self._book.files) << 40) + (line or self._line)

    def _read(self, line: bytes, number: int) -> List[Kind]:
        kinds: List[Kind] = []
        for piece in _pieces(line):
            text = piece.decode("utf-8", "replace")
            parts = _BREAKS.split(text) if ("\\n" in text or "\r" in text) else [text]
            for part in parts:
                message = _ESCAPED.sub(lambda found: "\t" if found.group(1) == "t" else found.group(1), part)
                kinds += self._message(message if "\\" in part else part, number, parts[0])
        return kinds

    def _message(self, text: str, number: int, head: str) -> List[Kind]:
        if text.startswith("==> ") and text.rstrip().endswith("<=="):
            self._section = text.strip()[4:-4].strip()[:120]
        matches = read_line(text)
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
            if kind is Kind.EXIT and "rank" in self._summary:
                values = {**values, **self._summary}
                own = int(self._summary.get("rank") or -1) if self._summary.get("rank") else rank
                moment = time_of(self._summary.get("time", "")) or at
                host = self._summary.get("host", node)
                self._summary = {}
            place = Place(file=self._name, line=number, text=_excerpt(text, start, end))
            fact = Fact(
                kind=kind,
                values=values,
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
        starts = set()
        for word in PROGRESS_WORDS:
            at = block.rfind(word)
            for _ in range(_PROGRESS_LINES_A_CHUNK):
                if at < 0:
                    break
                starts.add(block.rfind(b"\n", 0, at) + 1)
                at = block.rfind(word, 0, starts and block.rfind(b"\n", 0, at) + 1)
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
