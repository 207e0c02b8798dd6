"""How long the parts of a proof may take, in one place: the checks of a specification, the
referee and bootstrap.sh must agree, or the stack gives up before anybody could judge.
"""

from __future__ import annotations

from cluster.settings import TorchSource

LAUNCH_S = 300
"""From the wait's beginning until all members run: the fleet that is replaced ends first."""

BOOT_S = 180
"""From launch to the first row of a healthy node: boot, user data, one download. It is added
to the probe's own deadline before silence means anything."""

INSTALL_LIMIT_S = 900
"""What bringing torch may take in all before a node reports a mirror that hangs: nodes are told it."""

LAST_CALL_S = 150
"""Before the wait's time-out the referee judges what stands: two calls a minute apart, and room
for a slow one."""


def install_limit_s(torch_source: TorchSource) -> int:
    """The longest that a node may be busy with bringing torch."""
    return 0 if torch_source is TorchSource.IMAGE else INSTALL_LIMIT_S


def least_proof_timeout_s(deadline_s: int, torch_source: TorchSource) -> int:
    """The shortest wait in which every verdict can still be reached.

    Launch and boot, the mesh until its deadline, torch, the collective until the same
    deadline, and the time that the referee needs at the end.
    """
    return LAUNCH_S + BOOT_S + 2 * deadline_s + install_limit_s(torch_source) + LAST_CALL_S
