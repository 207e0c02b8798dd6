"""What one node finds different from its machine image when it boots: how faults of a host begin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict


@dataclass(frozen=True)
class BootChange:
    """A change to the node of one rank, made before its user data runs.

    rank: the place of the node's private address among those of its VPC.
    cluster: value of the instance's tag fullmesh:cluster; "" = in whatever cluster.
    script: run by bash as the node's root, its output in the log of first boot; user data waits for
        its end. environment: added to /etc/environment. host_name: in place of EC2's; "" = EC2's.
    """

    rank: int
    cluster: str = ""
    script: str = ""
    environment: Dict[str, str] = field(default_factory=dict)
    host_name: str = ""
