"""Logs of any size and encoding -> facts, in constant memory."""

from __future__ import annotations

import itertools
import re
from typing import BinaryIO, Dict, Iterator, List, Optional, Sequence

from diagnosis.logs.facts import Book, Fact, Place
from diagnosis.logs.head import Head, head_of
from diagnosis.logs.kinds import Kind
from diagnosis.logs.scan import SECTION, Scan
from diagnosis.logs.signatures import Match, Trigger, all_triggers, read_text
from diagnosis.logs.unwrap import joined_lines

CHUNK_BYTES = 1 << 18
# A longer line is read in pieces that overlap; no message is as long as the overlap. Before that it is
# cut where a collector joined lines or events, and where a progress bar was drawn anew.
PIECE_BYTES = 1 << 16
_OVERLAP_BYTES = 2048
_JOINTS = re.compile(rb"\\r\\n|\\n|\r|\},\s?(?=\{)")
_EXCERPT_CHARACTERS = 400

_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
# Fields of a line that a collector escaped into JSON: each escaped line break ends a message.
_BREAKS = re.compile(r"\\r\\n|\\n|\r")
_ESCAPED = re.compile(r'\\(["/\\t])')
_HTML = (("&gt;", ">"), ("&lt;", "<"), ("&quot;", '"'), ("&#39;", "'"), ("&#x27;", "'"), ("&amp;", "&"))
# Silence before these counts: a connection that idled.
_AFTER_SILENCE = (Kind.PEER_CLOSED, Kind.PEER_RESET, Kind.PAIR_BROKEN, Kind.OPERATION_TIMEOUT)
_LOOK_BACK_LINES = 20
_PEEK_BYTES = 8192
_SILENCES_AT_MOST = 50


def read_log(book: Book, name: str, stream: BinaryIO) -> None:
    """Add the facts of one log to the book.

    Raises:
        OSError, EOFError: the stream cannot be read to its end; what was read is in the book.
    """
    book.files.append(name)
    _Reader(book, name).read(stream)


class _Reader:
    """One log. Lines are counted from 1."""

    def __init__(self, book: Book, name: str) -> None:
        self._book = book
        self._name = name
        self._place = len(book.files)
        self._number = 1
        self._above = b""  # the block that is read, whose first line is `_number`
        self._silences = _SILENCES_AT_MOST
        self._summary: Dict[str, str] = {}
        self._section: Optional[str] = None
        self._scan = Scan(book, self._read, self._order)

    def read(self, stream: BinaryIO) -> None:
        rest = b""
        whole: Optional[bytes] = None
        try:
            for place, chunk in enumerate(_chunks(stream)):
                block = rest + chunk
                if place == 0:
                    self._begins(block)
                whole = block if place == 0 and len(block) < CHUNK_BYTES else None
                end = block.rfind(b"\n") + 1
                if end:
                    self._block(block[:end])
                rest = block[end:]
                if len(rest) > CHUNK_BYTES:
                    # A line without an end: read what is there, keep what a message may continue from.
                    self._block(rest)
                    rest = rest[-_OVERLAP_BYTES:]
        finally:
            if rest:
                self._block(rest)
            self._book.lines += self._number - 1 + bool(rest)
        if whole:
            self._wrapped(_clean(whole))

    def _begins(self, block: bytes) -> None:
        """When the log begins, and which hosts its first lines name: they may say nothing else."""
        for line in _clean(block[:_PEEK_BYTES]).split(b"\n")[:_LOOK_BACK_LINES]:
            head = head_of(line.decode("utf-8", "replace"))
            if head.at is not None:
                self._book.first_at.setdefault(self._name, head.at)
            if head.node is not None:
                self._book.nodes.add(head.node)

    def _block(self, block: bytes) -> None:
        clean = _clean(block)
        self._above = clean
        # Without the last break: there is no line behind it.
        self._lines(clean[:-1] if clean.endswith(b"\n") else clean)
        self._number += block.count(b"\n")

    def _lines(self, block: bytes) -> None:
        lines = block.split(b"\n")
        if max(map(len, lines)) <= PIECE_BYTES:
            self._scan.block(block, self._number)
            return
        number = self._number
        for long, group in itertools.groupby(lines, key=lambda line: len(line) > PIECE_BYTES):
            for part in group if long else [b"\n".join(group)]:
                if long:
                    self._scan.block(b"\n".join(_JOINTS.split(part)), number, inside=True)
                    number += 1
                else:
                    self._scan.block(part, number)
                    number += part.count(b"\n") + 1

    def _order(self, line: int) -> int:
        return (self._place << 40) + line

    def _read(self, line: bytes, number: int, triggers: Sequence[Trigger]) -> List[Kind]:
        """Facts of one line, which holds these triggers."""
        if line.startswith(SECTION) and line.rstrip().endswith(b"<=="):
            self._section = line.decode("utf-8", "replace").strip()[4:-4].strip()[:120]
        kinds: List[Kind] = []
        for piece in _pieces(line):
            rows = [row for trigger in triggers if trigger.literal in piece for row in trigger.rows]
            text = piece.decode("utf-8", "replace")
            parts = _BREAKS.split(text) if ("\\n" in text or "\r" in text) else [text]
            for raw in parts:
                part = _readable(raw)
                matches = read_text(part, rows)
                if matches:
                    head = _head(part, parts[0])
                    for match in matches:
                        kinds.append(match[0])
                        place = Place(file=self._name, line=number, text=_excerpt(raw, match[2], match[3]))
                        self._fact(match, place, head)
        return kinds

    def _fact(self, match: Match, place: Place, head: Head, rest: Optional[Place] = None) -> None:
        kind, values, _, _ = match
        rank, node, at = head.rank, head.node or self._section, head.at
        if kind is Kind.SUMMARY:
            self._summary.update(values)
            return
        if kind is Kind.EXIT and "rank" in self._summary:
            # torchrun's block of several lines is one fact: who, where, when, with what status.
            values = {**values, **self._summary}
            rank = int(self._summary["rank"])
            at = head_of(self._summary.get("time", "")).at or at
            node = self._summary.get("host", node)
            self._summary = {}
        self._book.add(
            Fact(
                kind=kind,
                values=values,
                place=place,
                order=self._order(place.line),
                rank=rank,
                node=node,
                at=at,
                rest=rest,
                quiet_s=self._silence(place.line, at) if kind in _AFTER_SILENCE else None,
            )
        )

    def _silence(self, number: int, at: Optional[float]) -> Optional[float]:
        """Seconds since the last line above that has a time."""
        if at is None or self._silences == 0:
            return None
        self._silences -= 1
        above = self._above.split(b"\n")[: number - self._number]
        for line in reversed(above[-_LOOK_BACK_LINES:]):
            before = head_of(line[:400].decode("utf-8", "replace")).at
            if before is not None:
                return at - before
        return None

    def _wrapped(self, whole: bytes) -> None:
        """Messages that a terminal cut in two, in a log that is short enough to be a paste."""
        for joined in joined_lines(whole):
            here = [trigger for trigger in all_triggers() if trigger.literal in joined.text]
            rows = [row for trigger in here for row in trigger.rows]
            text = joined.text.decode("utf-8", "replace")
            alone = {
                match[0]
                for part in joined.parts
                for match in read_text(_readable(part.decode("utf-8", "replace")), rows)
            }
            for match in read_text(_readable(text), rows) if here else ():
                first, last = (joined.part_at(len(text[:end].encode())) for end in (match[2], match[3]))
                if first == last or match[0] in alone:
                    continue  # it was read when its own line was
                places = [
                    Place(
                        file=self._name,
                        line=joined.number + part,
                        text=joined.parts[part].decode("utf-8", "replace").strip(),
                    )
                    for part in (first, last)
                ]
                self._fact(match, places[0], head_of(text), places[1])


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(CHUNK_BYTES)
        except (OSError, EOFError):
            raise
        except Exception as error:  # a packed file's own errors: zlib's, lzma's
            raise OSError(str(error)) from error
        if not chunk:
            return
        yield chunk


def _clean(block: bytes) -> bytes:
    if b"\0" in block:
        block = block.replace(b"\0", b"")  # UTF-16 is readable without them
    return _ANSI.sub(b"", block) if b"\x1b" in block else block


def _pieces(line: bytes) -> Iterator[bytes]:
    if len(line) <= PIECE_BYTES:
        yield line
        return
    for start in range(0, len(line), PIECE_BYTES - _OVERLAP_BYTES):
        yield line[start : start + PIECE_BYTES]


def _readable(raw: str) -> str:
    """A message without the escapes of JSON and HTML around its quotes and brackets."""
    text = raw
    if "\\" in text:
        text = _ESCAPED.sub(lambda found: "\t" if found.group(1) == "t" else found.group(1), text)
    if "&" in text:
        for escaped, plain in _HTML:
            text = text.replace(escaped, plain)
    return text


def _head(part: str, first: str) -> Head:
    """Of a message inside of a collector's line: its own prefixes, and where they are silent the line's."""
    own = head_of(part)
    if part is first or None not in own:
        return own
    outer = head_of(first)
    return Head(
        rank=own.rank if own.rank is not None else outer.rank,
        node=own.node if own.node is not None else outer.node,
        at=own.at if own.at is not None else outer.at,
    )


def _excerpt(text: str, start: int, end: int) -> str:
    """The line, or of a long one what stands around the message."""
    if len(text) > _EXCERPT_CHARACTERS:
        begin = max(0, min(start - 40, end - _EXCERPT_CHARACTERS))
        text = text[begin : begin + _EXCERPT_CHARACTERS]
    return text.strip().strip("\ufffd").strip()  # half a character, where a long line was cut
