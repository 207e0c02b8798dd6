"""Ctrl-C for a child, also where the whole test run was started in the background."""

from __future__ import annotations

import signal


def hear_ctrl_c() -> None:
    """A `preexec_fn`: shells start background jobs with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
