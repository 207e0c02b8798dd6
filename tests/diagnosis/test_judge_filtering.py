"""Without the account's rules: what was dropped, named by the nodes' own evidence at its subject."""

from __future__ import annotations

import dataclasses
import errno
import random
from typing import Optional

import pytest

from diagnosis.report import Verdict
from tests.diagnosis.builders import (
    MASTER_PORT,
    Named,
    answer,
    change,
    diagnose,
    drops,
    healthy,
    into_2,
    isolated,
    named,
    on_host,
    suspected,
    unread_firewalls,
)
from tests.diagnosis.rulesets import (
    DROP_ALL,
    DROP_FROM_0,
    DROP_OUT,
)

SCATTERED = random.Random(1).sample([(s, d) for s in range(8) for d in range(8) if s != d], 24)  # noqa: S311 - a fixed pattern

UNKNOWN_RULES = {
    "only MASTER_PORT, all firewalls empty": (
        drops(healthy(), lambda s, d, p: p != MASTER_PORT),
        [("sg-only-master-port", "cluster")],
        [],
    ),
    "only MASTER_PORT, firewalls unread": (
        unread_firewalls(drops(healthy(), lambda s, d, p: p != MASTER_PORT)),
        [],
        [("sg-only-master-port", "cluster"), ("os-firewall-drop", "cluster")],
    ),
    "only MASTER_PORT, one firewall unread": (
        on_host(drops(healthy(), lambda s, d, p: p != MASTER_PORT), [1], firewall_rules=None),
        [],
        [("sg-only-master-port", "cluster"), ("os-firewall-drop", "cluster")],
    ),
    "only MASTER_PORT, one firewall read in part": (
        on_host(
            drops(healthy(), lambda s, d, p: p != MASTER_PORT),
            [1],
            firewall_rules=DROP_ALL.replace(" drop\n", " accept\n"),
            firewall_error="legacy tables filter exist, but iptables-save is not installed",
        ),
        [],
        [("sg-only-master-port", "cluster"), ("os-firewall-drop", "cluster")],
    ),
    "two nodes, only MASTER_PORT": (
        drops(healthy(2), lambda s, d, p: p != MASTER_PORT),
        [("sg-only-master-port", "cluster")],
        [],
    ),
    "nothing passes": (
        drops(healthy(), lambda s, d, p: True),
        [],
        [
            ("sg-no-self-ingress", "cluster"),
            ("sg-no-self-egress", "cluster"),
            ("nacl-deny", "cluster"),
            ("route-missing", "cluster"),
        ],
    ),
    "ports above 50000 die": (
        drops(healthy(), lambda s, d, p: p > 50000),
        [("sg-ports-too-narrow", "cluster")],
        [],
    ),
    "a node is cut off, its firewall empty": (
        drops(healthy(), isolated),
        [],
        [("sg-missing-on-node", "node:2"), ("nacl-deny", "node:2")],
    ),
    "a node is cut off, its firewall unread": (
        unread_firewalls(drops(healthy(), isolated)),
        [],
        [("sg-missing-on-node", "node:2"), ("os-firewall-drop", "node:2"), ("nacl-deny", "node:2")],
    ),
    "a node's own ruleset drops": (
        on_host(drops(healthy(), into_2), [2], firewall_rules=DROP_ALL),
        [("os-firewall-drop", "node:2")],
        [],
    ),
    "a node's ruleset drops what it sends": (
        on_host(drops(healthy(), lambda s, d, p: s == 2), [2], firewall_rules=DROP_OUT),
        [("os-firewall-drop", "node:2")],
        [],
    ),
    "a ruleset drops one peer": (
        on_host(drops(healthy(), lambda s, d, p: (s, d) == (0, 2)), [2], firewall_rules=DROP_FROM_0),
        [("os-firewall-drop", "node:2")],
        [],
    ),
    "into a node nothing comes, its firewall unread": (
        unread_firewalls(drops(healthy(), into_2)),
        [],
        [("os-firewall-drop", "node:2"), ("sg-no-self-ingress", "node:2")],
    ),
    "one direction": (
        drops(healthy(), lambda s, d, p: (s, d) == (1, 3)),
        [("one-way-block", "pair:1>3")],
        [],
    ),
    "one direction of two nodes": (
        drops(healthy(2), lambda s, d, p: (s, d) == (1, 0)),
        [("one-way-block", "pair:1>0")],
        [],
    ),
    "one direction, one port": (
        drops(healthy(), lambda s, d, p: (s, d, p) == (1, 3, 46884)),
        [("one-way-block", "pair:1>3")],
        [],
    ),
    "one pair": (
        drops(healthy(), lambda s, d, p: {s, d} == {1, 3}),
        [("pair-blocked", "pair:1>3")],
        [],
    ),
    "two pairs": (
        drops(healthy(6), lambda s, d, p: {s, d} in ({1, 3}, {0, 5})),
        [("pair-blocked", "pair:0>5"), ("pair-blocked", "pair:1>3")],
        [],
    ),
    "broken pairs all over the place": (
        drops(healthy(8), lambda s, d, p: (s, d) in SCATTERED),
        [],
        [("conntrack-exhausted", "cluster"), ("packet-loss", "cluster")],
    ),
}


@pytest.mark.parametrize("name", UNKNOWN_RULES)
def test_what_died_is_named_by_the_nodes_own_evidence(name: str) -> None:
    """Without the account's rules: a cause where the nodes decide it, else candidates and a command."""
    rows, causes, candidates = UNKNOWN_RULES[name]
    assert answer(rows) == (causes, candidates, 0, Verdict.FAIL, bool(candidates))


@pytest.mark.parametrize(
    ("number", "rules", "causes", "candidates"),
    [
        (errno.ETIMEDOUT, DROP_ALL.replace('iif "lo" accept', ""), [("os-firewall-drop", "node:2")], []),
        (errno.ETIMEDOUT, None, [("os-firewall-drop", "node:2")], []),
        (errno.EHOSTUNREACH, None, [("os-firewall-reject", "node:2")], []),
        (errno.ETIMEDOUT, "", [], [("os-firewall-drop", "node:2")]),
    ],
)
def test_a_host_that_does_not_reach_itself_is_its_own_firewall(
    number: int, rules: Optional[str], causes: Named, candidates: Named
) -> None:
    """The proof of a listener goes over loopback, where no security group is; peers cannot probe it."""
    rows = on_host(healthy(), [2], firewall_rules=rules)
    lost = tuple(dataclasses.replace(item, opened=False, errno=number) for item in rows[2].listeners or ())
    rows = change(rows, 2, listeners=lost)
    rows = tuple(
        dataclasses.replace(item, probes=tuple(one for one in item.probes or () if one.destination != "i-2"))
        for item in rows
    )
    diagnosis = diagnose(rows)
    assert named(diagnosis) == causes
    assert suspected(diagnosis) == candidates
    assert diagnosis.verdict is Verdict.FAIL
    untried = {(pair.source, pair.destination) for pair in diagnosis.pairs if None in pair.outcomes.values()}
    assert untried == {(0, 2), (1, 2), (3, 2)}


def test_away_from_ec2_no_instance_id_is_made_up() -> None:
    """Members of a launcher are no instances: commands say what is missing, words what filters."""
    rows = drops(healthy(), lambda s, d, p: p != MASTER_PORT)
    renamed = tuple(
        dataclasses.replace(
            item,
            member_id=f"h-{node}",
            members={key.replace("i-", "h-"): value for key, value in item.members.items()},
            probes=tuple(
                dataclasses.replace(one, destination=one.destination.replace("i-", "h-"))
                for one in item.probes or ()
            ),
        )
        for node, item in enumerate(rows)
    )
    (cause,) = diagnose(renamed).causes
    assert cause.id == "sg-only-master-port"
    assert "on EC2 the security group" in cause.summary
    assert cause.commands[0].startswith("aws ec2 describe-instances --instance-ids INSTANCE_ID ")
