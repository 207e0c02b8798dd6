"""The server's event loop, and how work from another thread gets onto it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_loop: asyncio.AbstractEventLoop | None = None
_loop_thread: int | None = None


def adopt(loop: asyncio.AbstractEventLoop) -> None:
    """Remember the server's event loop; called once, on it, before the first request."""
    global _loop, _loop_thread
    _loop, _loop_thread = loop, threading.get_ident()


def on_loop(work: Callable[[], T]) -> T:
    """Run `work` on the event loop, in the caller's account and region, and wait for it.

    The stores are read by requests on the loop; changing them there too means that no
    request ever sees half a change.
    """
    if _loop is None or threading.get_ident() == _loop_thread:
        return work()
    done = threading.Event()
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((True, work()))
        except Exception as error:  # noqa: BLE001  (handed to the caller's thread below)
            outcome.append((False, error))
        finally:
            done.set()

    _loop.call_soon_threadsafe(run, context=contextvars.copy_context())
    done.wait()
    succeeded, value = outcome[0]
    if not succeeded:
        raise value
    result: T = value
    return result
