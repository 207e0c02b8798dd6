"""Where members meet, from `--meet`: a port of rank 0, or a place that all of them see."""

from __future__ import annotations

import contextlib
import os
from typing import Optional, Tuple

from probe.board import Board, BoardError, DirectoryBoard
from probe.place import DiscoverError
from probe.relay import Relay
from probe.tcp_board import BoardServer, TcpBoard

_TCP = "tcp://"


def on_a_port(meet: Optional[str]) -> bool:
    """Whether members meet on a port of one of them (also where nothing was said)."""
    return meet is None or meet.startswith(_TCP)


def shared_board(meet: str, run: str, member_id: str) -> Board:
    """The board of a run in a place that all members see: a directory, or a prefix of a bucket.

    Raises:
        DiscoverError: `meet` cannot be such a place, or a check of this name was judged there before.
    """
    board: Board
    if meet.startswith("s3://"):
        from probe.s3_place import s3_board  # noqa: PLC0415 - http and ssl, only where they are needed

        board = s3_board(meet, run, member_id)
    elif "://" in meet:
        raise DiscoverError(f"--meet {meet} is not a DIRECTORY, s3://BUCKET/PREFIX or tcp://HOST:PORT")
    else:
        board = DirectoryBoard(os.path.join(meet, run), member_id)
    try:
        names = board.names()
    except BoardError:  # told when the member tries to register, with what it alone can say
        return board
    if any(name.rpartition("/")[2].startswith("verdict-") for name in names):
        raise DiscoverError(
            f"{meet} holds the verdict of an earlier check of the name {run}; give an empty place or another "
            "--run NAME on every member"
        )
    return board


def meeting_point(meet: Optional[str], host: str, port: int) -> Tuple[str, int]:
    """Host and port of the service that rank 0 runs.

    Raises:
        DiscoverError: `meet` is no tcp://HOST:PORT.
    """
    if meet is None:
        return host, port
    named, _, text = meet[len(_TCP) :].rpartition(":")
    if not named or not text.isdigit():
        raise DiscoverError(f"--meet {meet} is not tcp://HOST:PORT")
    return named.strip("[]"), int(text)


def serve(stack: contextlib.ExitStack, host: str, port: int, relay: Optional[Relay] = None) -> bool:
    """Serve the meeting place; False where another process of this host serves it already.

    One that claims the same rank is a fault to be judged (duplicate-rank) from both rows, so this
    one joins it.
    """
    try:
        stack.enter_context(BoardServer(host, port, relay))
        return True
    except BoardError as refused:
        try:
            TcpBoard(host, port, "").names()
            return False
        except BoardError:
            raise refused from refused.__cause__
