"""Faults of the way between two members that is open and does not carry what it should."""

from __future__ import annotations

from lab.fault import Fault

FAULTS: tuple[Fault, ...] = ()
