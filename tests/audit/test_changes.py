"""Every change of the table on a deployed stack without nodes: exactly its differences, and none after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from audit.answer import Audit, audit_stack
from audit.difference import Difference
from audit.drift import our_stack
from audit.live import read_stack
from bench.changes.change import Change
from bench.changes.hands import Hands
from bench.changes.table import CHANGES
from tests.audit.deployed import Account, running_account
from tests.stacks.conftest import SHAPES

TWO_SUBNETS, RESERVED = "spread", "reserved"
PINNED = {**SHAPES["private-pinned-reservation"], "cluster__vpc_cidr": "10.30.0.0/16"}


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Two clusters: one in two subnets, one with a capacity reservation."""
    with running_account(tmp_path_factory.mktemp("changes")) as running:
        running.deploy(TWO_SUBNETS, **SHAPES["spread-two-subnets"])
        running.deploy(RESERVED, **PINNED)
        yield running


def audited(account: Account, name: str) -> Audit:
    documents = read_stack(account.session, name)
    return audit_stack(documents, our_stack(documents, name))


def said(found: Sequence[Difference], hands: Hands) -> list[tuple[str, str, frozenset[tuple[int, int]]]]:
    """(resource, meaning, pairs of ranks) of every difference."""
    ranks = {item["InstanceId"]: rank for rank, item in enumerate(hands.members)}
    return sorted(
        (
            item.deviation.resource,
            item.meaning.value,
            frozenset((ranks[source], ranks[destination]) for source, destination, _ in item.pairs),
        )
        for item in found
    )


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.id)
def test_a_change_is_found_with_its_meaning(stacks: Account, change: Change) -> None:
    """These resources, meanings and pairs, nothing else; what it exposes is named; afterwards all is well."""
    name = RESERVED if change.needs == "reservation" else TWO_SUBNETS
    hands = Hands(stacks.client, name)
    assert hands.members
    before = {item.deviation.key for item in audited(stacks, name).differences}
    with change.make(hands):
        expected = [
            (hands.resource(item.resource), item.meaning.value, item.pairs) for item in change.expected
        ]
        found = audited(stacks, name)
        fresh = [item for item in found.differences if item.deviation.key not in before]
        assert said(fresh, hands) == sorted(expected)
        for item in change.expected:
            assert any(one.deviation.attribute.startswith(item.attribute) for one in fresh)
        assert found.unanswered == ()
        assert bool(found.findings.exposed) is change.exposes
        assert found.findings.mesh_possible is not any(item.pairs for item in change.expected)
        assert (found.exit_status, found.verdict.value) == (1, "FAIL")
    if not change.lasts:
        after = audited(stacks, name)
        assert ({item.deviation.key for item in after.differences}, after.findings.exposed) == (before, ())


def test_the_table_has_every_kind_of_change() -> None:
    """At least 25, each once, and every meaning that a difference can have for sure."""
    assert len({change.id for change in CHANGES}) == len(CHANGES) >= 25
    assert {item.meaning.value for change in CHANGES for item in change.expected} == {
        "breaks-mesh",
        "breaks-new-connections-only",
        "opens-cluster",
        "weakens",
        "cosmetic",
    }
