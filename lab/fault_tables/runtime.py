"""Faults of a running job and of the node itself."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import Launch, OnNode, Together

_OTHER_TORCH = """
mkdir -p /run/other/torch; touch /run/other/torch/__init__.py; cat >/run/other/torch/version.py <<'EOF'
__version__ = '2.12.1+cpu'
git_version = '0123456789abcdef0123456789abcdef01234567'
EOF
"""

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="clock-skew",
        title="the clock of node 2 is half a minute ahead",
        expected=(("clock-skew", "node:2"),),
        injection=Launch(clocks={2: 30.0}),
    ),
    Fault(
        id="version-mismatch",
        title="PYTHONPATH of node 2 leads to another torch than that of the others",
        expected=(("version-mismatch", "node:2"),),
        injection=Together(
            parts=(
                OnNode(rank=2, script=_OTHER_TORCH, undo="rm -r /run/other"),
                Launch(changes={2: {"PYTHONPATH": "/run/other"}}),
            )
        ),
    ),
)
