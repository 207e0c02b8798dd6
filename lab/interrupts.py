"""Ctrl-C and signals while things are being ended: they must not leave them half-ended."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def put_off(say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Let an interruption wait until the block has ended; KeyboardInterrupt is raised then.

    say: told at once that it was heard. Outside the main thread, which alone hears Ctrl-C, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal heard
        heard = True
        if say is not None:
            say("interrupted; ending what runs takes a moment")

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


def end_once(*numbers: signal.Signals) -> Callable[[], None]:
    """Raise SystemExit, as a shell reports it, at the first of these signals and at no later one.

    Returns what makes this process deaf to all of them. (To ignore a signal that has arrived
    meanwhile is an error in Python.)
    """
    deaf = False

    def end(number: int, _frame: FrameType | None) -> None:
        if not deaf:
            become_deaf()
            raise SystemExit(128 + number)

    def become_deaf() -> None:
        nonlocal deaf
        deaf = True

    for number in numbers:
        signal.signal(number, end)
    return become_deaf
