"""Faults of a running job and of the node itself."""

from __future__ import annotations

from lab.fault import Fault

FAULTS: tuple[Fault, ...] = ()
