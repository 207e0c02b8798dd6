"""Faults of a running job and of the node itself."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import Launch

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="clock-skew",
        title="the clock of node 2 is half a minute ahead",
        expected=(("clock-skew", "node:2"),),
        injection=Launch(clocks={2: 30.0}),
    ),
)
