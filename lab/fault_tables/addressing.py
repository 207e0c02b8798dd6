"""Faults of names and interfaces: what a node publishes as its address."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import OnNode

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="hostname-loopback",
        title="node 2's own name is 127.0.1.1 in its /etc/hosts",
        expected=(("hostname-loopback", "node:2"),),
        injection=OnNode(
            rank=2,
            script='echo "127.0.1.1 $(hostname)" >>/etc/hosts',
            undo="sed -i '/^127.0.1.1 /d' /etc/hosts",
        ),
        at_boot=True,
    ),
)
