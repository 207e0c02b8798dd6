"""Progress of long steps on standard error: what runs, how long it should take, where its log is.

On a terminal the running step shows its elapsed time; elsewhere each step is one line at its
start and one at its end, so that a captured log reads the same way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from diagnosis.prose import beside


class Progress:
    """Announces steps and remembers how long each took (`timings_s`, by title)."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)
        self.timings_s: dict[str, float] = {}

    def say(self, text: str = "") -> None:
        self._console.print(text)

    @contextmanager
    def step(self, title: str, expected_s: int, log: Path | None = None) -> Iterator[None]:
        """Time one step; the line at its end says whether it completed, failed or was interrupted."""
        started = time.monotonic()
        announcement = f"{title} (about {expected_s} s" + (f"; log: {_short(log)})" if log else ")")
        outcome = "failed"
        try:
            if self._console.is_terminal:
                with self._console.status(announcement):
                    yield
            else:
                self._entry("...", announcement)
                yield
            outcome = "done"
        except KeyboardInterrupt:
            outcome = "interrupted"
            raise
        finally:
            elapsed_s = time.monotonic() - started
            self.timings_s[title] = round(elapsed_s, 2)
            self._entry(f"{outcome:<7}", f"{title}: {elapsed_s:.1f} s")

    def _entry(self, word: str, text: str) -> None:
        start = f"  {word} "
        self.say("\n".join(beside(start, text, len(start))))


def _short(path: Path) -> str:
    """As seen from here, where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)
