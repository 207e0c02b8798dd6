"""Logs as streams: files, folders, standard input, packed or not. What cannot be read is noted."""

from __future__ import annotations

import io
import os
import sys
from typing import BinaryIO, Iterator, Sequence, Tuple, cast

from diagnosis.logs.facts import Book
from diagnosis.logs.read import read_log

STANDARD_INPUT = "-"
# What packed files begin with.
_GZIP, _BZIP2, _XZ, _ZIP, _ZSTD = b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_FILES_AT_MOST = 10_000  # below one folder


def read_paths(book: Book, paths: Sequence[str]) -> None:
    """Read every log into the book; failures go to `book.unread`."""
    for path in paths:
        for name in _below(path):
            try:
                stream = sys.stdin.buffer if name == STANDARD_INPUT else open(name, "rb")  # noqa: SIM115 - below
            except OSError as error:
                book.files.append(name)
                book.unread.append((name, f"cannot be opened: {error.strerror}"))
                continue
            with stream:
                read_streams(book, [(name, stream)])


def _below(path: str) -> Iterator[str]:
    """The path, or of a folder the files below it, in order."""
    if path == STANDARD_INPUT or not os.path.isdir(path):
        yield path
        return
    left = _FILES_AT_MOST
    for folder, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files)[:left]:
            yield os.path.join(folder, file)
            left -= 1


def read_streams(book: Book, logs: Sequence[Tuple[str, BinaryIO]]) -> None:
    """Read logs that are open already, each a name and a stream."""
    for name, stream in logs:
        place = len(book.files)
        try:
            for member, unpacked in _unpacked(name, stream):
                read_log(book, member, unpacked)
        except (OSError, EOFError) as error:
            if len(book.files) == place:
                book.files.append(name)
            book.unread.append((book.files[-1], f"cannot be read to its end: {error}"))


def _unpacked(name: str, stream: BinaryIO) -> Iterator[Tuple[str, BinaryIO]]:
    """(name, plain stream) of what a stream holds: one, or of a zip archive each member.

    Raises:
        OSError: an archive is broken, or of a kind that Python's library does not read.
    """
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast(io.RawIOBase, stream))
    begin = cast(io.BufferedReader, buffered).peek(6)[:6]
    # Each of these is imported when it is needed: few logs are packed.
    if begin.startswith(_GZIP):
        import gzip  # noqa: PLC0415

        yield name, cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    elif begin.startswith(_BZIP2) and begin[3:4].isdigit():
        import bz2  # noqa: PLC0415

        yield name, cast(BinaryIO, bz2.BZ2File(buffered))
    elif begin.startswith(_XZ):
        import lzma  # noqa: PLC0415

        with lzma.LZMAFile(buffered) as inner:
            yield name, cast(BinaryIO, inner)
    elif begin.startswith(_ZIP):
        import zipfile  # noqa: PLC0415

        if not buffered.seekable():
            raise OSError("a zip archive is read from a file only, its list of members stands at its end")
        try:
            with zipfile.ZipFile(buffered) as archive:
                for member in archive.infolist():
                    if not member.is_dir():
                        with archive.open(member) as file:
                            yield f"{name}/{member.filename}", cast(BinaryIO, file)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise OSError(str(error)) from error
    elif begin.startswith(_ZSTD):
        raise OSError(f"it is packed with zstd, which is not read; unpack it: zstd -d {name}")
    else:
        yield name, buffered
