"""Checks a snapshot's whole answer against one that was written by hand."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from cluster.ports import PortRange
from cluster.snapshot import ClusterSnapshot
from diagnosis.static import StaticFindings, judge_tagged
from tests.cluster.world import World

NEED = "29500,32768-60999"
EPHEMERAL_RANGE = "32768-60999"
Exposed = Tuple[str, str, str]


def every(names: str, ports: str = NEED) -> Dict[str, str]:
    """Each ordered pair of one-letter nodes with the ports blocked on it."""
    return {f"{a}>{b}": ports for a in names for b in names if a != b}


def across(left: str, right: str, ports: str = NEED) -> Dict[str, str]:
    """The same for the pairs from one set of nodes to another, in this direction only."""
    return {f"{a}>{b}": ports for a in left for b in right}


def both_ways(left: str, right: str, ports: str = NEED) -> Dict[str, str]:
    return {**across(left, right, ports), **across(right, left, ports)}


def look(documents: Mapping[str, Any]) -> StaticFindings:
    """The answer for the running instances that carry the tag."""
    snapshot = ClusterSnapshot.from_documents(documents)
    return judge_tagged(snapshot, "fullmesh:cluster", "demo", 29500, PortRange(32768, 60999))


def check(
    world: World,
    possible: Optional[bool],
    *causes: str,
    blocked: Optional[Mapping[str, str]] = None,
    exposed: Sequence[Exposed] = (),
    candidates: Sequence[str] = (),
    without: Sequence[str] = (),
) -> StaticFindings:
    """The whole answer: causes as "ID SUBJECT", blocked by pair, who gets in; untold means candidates."""
    documents = {key: value for key, value in world.documents().items() if key not in without}
    return check_documents(
        documents, possible, *causes, blocked=blocked, exposed=exposed, candidates=candidates
    )


def check_documents(
    documents: Mapping[str, Any],
    possible: Optional[bool],
    *causes: str,
    blocked: Optional[Mapping[str, str]] = None,
    exposed: Sequence[Exposed] = (),
    candidates: Sequence[str] = (),
) -> StaticFindings:
    found = look(documents)
    told: Dict[str, str] = {}
    for item in found.blocked():
        pair = f"{item['source'][2:]}>{item['destination'][2:]}"
        told[pair] = ",".join(filter(None, (told.get(pair), item["ports"])))
    assert told == dict(blocked or {})
    assert found.mesh_possible is possible
    told_causes = [f"{item.id} {item.subject}" for item in found.causes]
    assert told_causes == list(causes)
    told_candidates = [item.id for item in found.candidates]
    assert told_candidates == list(candidates)
    told_exposed = [(item.protocol, item.ports, item.source) for item in found.exposed]
    assert told_exposed == list(exposed)
    if possible is None:
        assert found.unanswered
        assert found.next_command
    return found
