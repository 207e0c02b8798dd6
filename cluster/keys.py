"""Names that nodes, functions and the template must agree on (docs/architecture.md, "Keys")."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

CLUSTER_TAG = "fullmesh:cluster"
"""The tag that says whose an instance, a fleet or a group is."""

UNSAFE_RULES_KEY = "fullmesh:unsafe-rules"
"""The context value that asks a synthesis for a deliberate fault of the group's rules."""

SIGNAL_UNIQUE_ID = "verdict"
"""Everybody's, so that CloudFormation takes the first signal and ignores repeats."""

STAGES = ("mesh", "collective")

MESH_ROW = "mesh.json"
COLLECTIVE_ROW = "collective.json"
COLLECTIVE_READY = "collective-ready"
FAILED_ROW = "failed.json"
JOINED = "joined~"
"""And the run whose verdict holds this member, which came after the deploy's own run."""

_REGISTRATION = "member"


def run_prefix(run: str) -> str:
    """The folder of a run in the evidence bucket."""
    return f"rows/{run}/"


def verdict_name(stage: str) -> str:
    return f"verdict-{stage}.json"


def registration(address: str, master_port: int, ports: Sequence[int]) -> str:
    """The name of the empty object by which a member registers: it tells every listener."""
    return "~".join((_REGISTRATION, address, str(master_port), ",".join(map(str, ports))))


def read_registration(name: str) -> Optional[Tuple[str, int, Tuple[int, ...]]]:
    """(address, master port, other ports) of a registration; None for any other object's name.

    Raises:
        ValueError: the name claims to be a registration but does not read as one.
    """
    if not name.startswith(_REGISTRATION + "~"):
        return None
    parts = name.split("~")
    if len(parts) != 4:
        raise ValueError(f"registration {name!r} has {len(parts)} fields, needs 4")
    _, address, master_port, ports = parts
    return address, int(master_port), tuple(int(port) for port in ports.split(",") if port)
