"""What the command line asks of every benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.record import MEASUREMENTS


@dataclass(frozen=True)
class Options:
    """output: where records are kept; default_timeout: raw_torch with torch's own time-out."""

    output: Path = MEASUREMENTS
    default_timeout: bool = False
