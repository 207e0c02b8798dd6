"""Where members meet: small named objects that everyone can list and read.

A name is `MEMBER/OBJECT`; a member posts below its own MEMBER only. Three places do:
the evidence bucket, a shared directory, and a service on rank 0 (probe/tcp_board.py).
"""

from __future__ import annotations

import os
import uuid
from typing import Dict, Optional, Protocol, Sequence, Tuple

from probe.members import Member, parse_registration


class BoardError(Exception):
    """The meeting place cannot be listed, read or written; the text says what to check.

    Raised from the OSError, where there is one.
    """


class BoardContentError(BoardError):
    """The place answers, but what is there does not read as it should, or it takes no such object.

    Trying again does not help, and it says nothing of the way to the place.
    """


class NowhereError(BoardError):
    """There is no place to meet, and waiting does not make one."""


class Board(Protocol):
    """The meeting place of one run. Every method raises BoardError when the place cannot be used."""

    def post(self, name: str, body: bytes) -> None:
        """Write (or replace) this member's object `name`, whole or not at all."""

    def names(self) -> Tuple[str, ...]:
        """`MEMBER/OBJECT` of every object of the run, sorted."""

    def read(self, name: str) -> bytes:
        """The body of `MEMBER/OBJECT`."""

    def where(self, name: str) -> str:
        """A place that a person can open, for `MEMBER/OBJECT`."""


def registered(names: Sequence[str]) -> Tuple[Member, ...]:
    """The members that a listing tells, one each.

    A member that started twice may have two registrations; it tried the ports of the first
    again, so they rarely differ, and the last in order counts.

    Raises:
        BoardContentError: a registration's name does not read as one.
    """
    found: Dict[str, Member] = {}
    for name in names:
        member_id, _, rest = name.rpartition("/")
        try:
            member = parse_registration(member_id, rest)
        except ValueError as error:
            raise BoardContentError(f"a registration cannot be read: {error}") from error
        if member is not None:
            found[member_id] = member
    return tuple(found.values())


class Nowhere:
    """The board of a member that has no place to meet.

    why: for the reader. cause: what the system said, where it did.
    """

    def __init__(self, why: str, cause: Optional[BaseException] = None) -> None:
        self._why = why
        self._cause = cause

    def post(self, name: str, body: bytes) -> None:  # noqa: ARG002 - a Board
        raise NowhereError(self._why) from self._cause

    def names(self) -> Tuple[str, ...]:
        raise NowhereError(self._why) from self._cause

    def read(self, name: str) -> bytes:  # noqa: ARG002 - a Board
        raise NowhereError(self._why) from self._cause

    def where(self, name: str) -> str:  # noqa: ARG002 - a Board
        return "nowhere"


class DirectoryBoard:
    """A directory that all members see: a shared file system, or one machine's own."""

    def __init__(self, folder: str, member_id: str) -> None:
        self._folder = os.path.abspath(folder)
        self._member_id = member_id

    def post(self, name: str, body: bytes) -> None:
        folder = os.path.join(self._folder, self._member_id)
        # Hidden until complete, then renamed in one step: a reader never sees half an object.
        unfinished = os.path.join(folder, f".{uuid.uuid4().hex}")
        try:
            os.makedirs(folder, exist_ok=True)
            with open(unfinished, "xb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, os.path.join(folder, name))
        except OSError as error:
            raise BoardError(f"cannot write {name} in {folder}: {error.strerror}") from error

    def names(self) -> Tuple[str, ...]:
        found = []
        try:
            for member in os.scandir(self._folder):
                if member.is_dir():
                    with os.scandir(member.path) as entries:
                        found += [f"{member.name}/{e.name}" for e in entries if not e.name.startswith(".")]
        except FileNotFoundError:  # nobody has posted yet
            return ()
        except OSError as error:
            raise BoardError(f"cannot list {self._folder}: {error.strerror}") from error
        return tuple(sorted(found))

    def read(self, name: str) -> bytes:
        try:
            with open(os.path.join(self._folder, name), "rb") as file:
                return file.read()
        except OSError as error:
            raise BoardError(f"cannot read {name} in {self._folder}: {error.strerror}") from error

    def where(self, name: str) -> str:
        return os.path.join(self._folder, name)
