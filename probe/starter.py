"""Which launcher started this process, as the processes above it tell."""

from __future__ import annotations

import os
from typing import Optional

from diagnosis.launchers import STARTERS

_MOST_ANCESTORS = 64  # a chain that is longer has been changed while it was read


def started_by() -> Optional[str]:
    """The name of the nearest process above this one that is a launcher's.

    None: none is seen. In a container the processes above are not, so None is not "nobody".
    """
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            return None
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:  # hidden by hidepid, or ended meanwhile
            return None
        name = text[text.index("(") + 1 : text.rindex(")")]
        if name in STARTERS:
            return name
        pid = int(text[text.rindex(")") + 1 :].split()[1])
    return None
