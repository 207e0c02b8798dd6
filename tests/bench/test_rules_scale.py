"""The scenarios of the scale benchmark judge what they say they judge."""

from __future__ import annotations

import random

import pytest

from bench import rules_scale
from cluster.ports import DEFAULT_EPHEMERAL_PORTS
from cluster.snapshot import ClusterSnapshot
from diagnosis.static import judge_tagged


@pytest.mark.parametrize(
    ("name", "classes", "possible", "causes"),
    [
        ("alike", 1, True, set()),
        ("cidr", 40, True, set()),
        ("own", 40, False, {"sg-no-self-ingress"}),
    ],
)
def test_a_scenario_is_what_its_name_says(
    name: str, classes: int, possible: bool, causes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many kinds of nodes, and the answer and causes that its rules were made for."""
    monkeypatch.setattr(rules_scale, "NODES", 40)
    documents = rules_scale.SCENARIOS[name][1](random.Random(1))  # noqa: S311 - the same rules each time
    snapshot = ClusterSnapshot.from_documents(documents)
    found = judge_tagged(snapshot, "fullmesh:cluster", "demo", 29500, DEFAULT_EPHEMERAL_PORTS)
    assert len(found.reachability.classes) == classes
    assert found.mesh_possible is possible
    assert {item.id for item in found.causes} == causes
