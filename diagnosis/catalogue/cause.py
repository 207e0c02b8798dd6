"""What a cause is. The catalogue's modules hold one declaration of it for each cause."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Tuple


class Group(str, Enum):
    """The chapters of the catalogue, in the order of the reference page."""

    FILTERING = "filtering"
    ADDRESSING = "addressing"
    RENDEZVOUS = "rendezvous"
    RUNTIME = "runtime"
    PATH = "path"
    NODE = "the node itself"
    CONFIGURATION = "configuration that does nothing"
    NO_FAULT = "no fault"


class SeenIn(str, Enum):
    """LIVE: evidence from the nodes. LOG: a pasted log alone. STATIC: rules or configuration."""

    LIVE = "live"
    LOG = "log"
    STATIC = "static"


LIVE, LOG, STATIC = SeenIn.LIVE, SeenIn.LOG, SeenIn.STATIC

# What a mesh that cannot form looks like from further up. Causes that break new connections
# explain these at the same subject.
MESH_ECHOES = (
    "one-way-block",
    "pair-blocked",
    "master-unreachable",
    "rdzv-port-blocked",
    "peer-not-in-collective",
    "peer-late",
    "timeout-too-short",
)

# What follows when a process or a node is not there.
ABSENCE_ECHOES = (
    "peer-missing",
    "peer-not-in-collective",
    "peer-died",
    "master-unreachable",
    "store-host-exited",
)

# What a wrong published address looks like: Gloo dials it and nothing answers there.
ADDRESS_ECHOES = ("peer-not-in-collective", "peer-died", "timeout-too-short")


class Cause(NamedTuple):
    """One cause, declared once. A named tuple, so that `fullmesh explain` starts without dataclasses.

    id: public, stable, kebab-case, without a severity.
    decided_by: the evidence without which the cause is not named.
    remediation: one sentence.
    commands: runnable templates; `{field}` is filled from the evidence (see `causes.FIELDS`).
    explains: ids that are shown as consequences where this cause stands at the same subject.
    decides_verdict: False = worth saying, but the mesh's verdict does not change by it.
    """

    id: str
    group: Group
    title: str
    meaning: str
    decided_by: str
    seen_in: Tuple[SeenIn, ...]
    remediation: str
    commands: Tuple[str, ...] = ()
    explains: Tuple[str, ...] = ()
    decides_verdict: bool = True
