"""One message of torch, Gloo or a launcher, and what it means: a row of the modules `signatures_*`.

A row has a kind (the meaning), a trigger (a literal that the message always holds) and a pattern
that takes the values out. What a kind decides, or hints at, stands in `meanings`.
"""

from __future__ import annotations

from typing import Dict, NamedTuple

from diagnosis.logs.kinds import Kind


class Signature(NamedTuple):
    """One message. Patterns must be linear: whoever wrote the log chose the text.

    every: all matches of a line count, not the first alone.
    unless: a pattern that makes it another message where it is found shortly before, or within.
    fixed: values that the wording implies (never changed, as rows share it).
    says: of a NOTE what the message means.
    """

    kind: Kind
    trigger: str
    pattern: str
    every: bool = False
    unless: str = ""
    fixed: Dict[str, str] = {}  # noqa: RUF012 - a named tuple's default, never changed
    says: str = ""
