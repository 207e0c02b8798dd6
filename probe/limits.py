"""The limit of open files that this process was started with: what a job started like it would have.

The probe raises its own for the mesh; torch's process gets the first one back.
"""

from __future__ import annotations

import resource
from typing import Optional, Tuple

# Read when the module is loaded, before anything here raises it.
_STARTED_WITH: Tuple[int, int] = resource.getrlimit(resource.RLIMIT_NOFILE)


def started_with() -> Tuple[Optional[int], Optional[int]]:
    """(soft, hard) limit of open files at the start; None = unlimited."""
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in _STARTED_WITH)
    return soft, hard


def raise_descriptor_limit(wanted: int) -> None:
    """Raise this process's soft limit of open files towards `wanted`, as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reachable = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < reachable:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))


def lower_descriptor_limit(soft: Optional[int]) -> None:
    """Set the soft limit of open files (None: leave it); the hard one stays."""
    if soft is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
