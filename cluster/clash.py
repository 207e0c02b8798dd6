"""Settings that cannot go together, as they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class Clash:
    """Settings that do not go together.

    settings: all that take part, the one to blame first. way: what to set instead.
    """

    settings: Tuple[str, ...]
    value: object
    why: str
    way: str

    def __str__(self) -> str:
        return f"cluster.{self.settings[0]}: {self.value} {self.why}; {self.way}"
