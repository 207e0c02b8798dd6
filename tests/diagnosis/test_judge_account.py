"""With the account's rules in hand: what they forbid has their cause, what they allow never has."""

from __future__ import annotations

import dataclasses
import errno
from typing import Tuple

import pytest

from diagnosis.judge import judge
from diagnosis.report import Verdict
from tests.cluster.world import ALLOW_ALL, World, cluster, from_cidr, from_group, two_subnets
from tests.diagnosis.builders import (
    EVERYTHING,
    MASTER_ONLY,
    MASTER_PORT,
    Named,
    Reports,
    change,
    drops,
    expect,
    healthy,
    into_2,
    isolated,
    moved,
    named,
    on_host,
    suspected,
    unread_firewalls,
    with_rules,
)
from tests.diagnosis.rulesets import (
    PERHAPS,
)


def test_the_famous_failure_reads_as_promised() -> None:
    """MASTER_PORT works, Gloo's ports do not, and the rules of the account say why."""
    rows = drops(healthy(), lambda source, to, port: port != MASTER_PORT)
    diagnosis = with_rules(rows, cluster([MASTER_ONLY]))
    (cause,) = diagnosis.causes
    assert (cause.id, cause.subject) == ("sg-only-master-port", "cluster")
    assert cause.summary == (
        "members reach each other on 29500 but not on ports 32768-60999 (12 of 12 pairs, silent drop); "
        'security group sg-mesh lacks "all TCP from itself"'
    )
    assert cause.commands == (
        "aws ec2 authorize-security-group-ingress --group-id sg-mesh --protocol tcp --port 0-65535 "
        "--source-group sg-mesh",
    )
    assert diagnosis.verdict is Verdict.FAIL
    assert (diagnosis.candidates, diagnosis.consequences, diagnosis.unanswered) == ((), (), ())


CASES_WITH_RULES = {
    "no rule lets members in": (
        drops(healthy(), lambda s, d, p: True),
        cluster([]),
        [("sg-no-self-ingress", "cluster")],
    ),
    "egress to 443 only": (
        drops(healthy(), lambda s, d, p: True),
        cluster([EVERYTHING], egress=[from_cidr("0.0.0.0/0", 443, 443)]),
        [("sg-no-self-egress", "cluster")],
    ),
    "the range ends too early": (
        drops(healthy(), lambda s, d, p: p > 50000),
        cluster([MASTER_ONLY, from_group("sg-mesh", 32768, 50000)]),
        [("sg-ports-too-narrow", "cluster")],
    ),
}


@pytest.mark.parametrize("name", CASES_WITH_RULES)
def test_what_the_rules_forbid_has_the_rules_cause(name: str) -> None:
    """Where the account's rules forbid what died, their cause is named, also with unread firewalls."""
    rows, world, expected = CASES_WITH_RULES[name]
    for seen in (rows, unread_firewalls(rows)):
        diagnosis = with_rules(seen, world)
        assert named(diagnosis) == expected
        assert diagnosis.candidates == ()
        assert diagnosis.verdict is Verdict.FAIL


def lacking_group() -> World:
    world = cluster([EVERYTHING], count=3)
    world.group("sg-default", [from_group("sg-default")], name="default")
    world.node("3", "10.20.1.13", ["sg-default"])
    return world


def test_a_node_without_the_group_is_named() -> None:
    """All pairs with that node die, and its interface carries another group."""
    rows = drops(healthy(), lambda s, d, p: 3 in (s, d))
    diagnosis = with_rules(rows, lacking_group())
    assert named(diagnosis) == [("sg-missing-on-node", "node:3")]
    assert diagnosis.candidates == ()


def denied_across() -> World:
    world = two_subnets([EVERYTHING])
    denied = (90, "deny", "6", "10.20.2.0/24", (1024, 65535))
    world.acl("acl-1", ["subnet-1"], [denied, ALLOW_ALL], [denied, ALLOW_ALL])
    world.acl("acl-2", ["subnet-2"], [ALLOW_ALL], [ALLOW_ALL])
    return world


def test_a_network_acl_is_named_where_only_pairs_across_subnets_die() -> None:
    """The ACL's own entries decide it; without them it is the first candidate."""
    world = denied_across()
    rows = moved(healthy(), [item["PrivateIpAddress"] for item in world.interfaces])
    rows = drops(rows, lambda s, d, p: s // 2 != d // 2)
    assert named(with_rules(rows, world)) == [("nacl-deny", "cluster")]
    unsure = judge(rows, expect())
    assert named(unsure) == []
    assert suspected(unsure) == [("nacl-deny", "cluster"), ("route-missing", "cluster")]


def test_rules_that_forbid_what_really_passes_are_not_a_cause() -> None:
    """A snapshot is older than a probe: only flows that died have a cause."""
    diagnosis = with_rules(healthy(), cluster([MASTER_ONLY]))
    assert (diagnosis.verdict, diagnosis.causes, diagnosis.candidates) == (Verdict.PASS, (), ())


def test_a_rules_cause_without_a_dead_flow_is_left_out() -> None:
    """Two things are wrong in the snapshot, and only what died is named."""
    world = cluster([MASTER_ONLY], count=3)
    world.group("sg-default", [from_group("sg-default")], name="default")
    world.node("3", "10.20.1.13", ["sg-default"])
    rows = drops(healthy(), lambda s, d, p: 3 not in (s, d) and p != MASTER_PORT)
    assert named(with_rules(rows, world)) == [("sg-only-master-port", "cluster")]


def left(subject: str, *firewalls: str) -> Named:
    """What is left where the rules allow it; firewalls: subjects whose rulesets may be it."""
    others = ("route-missing", "asymmetric-interfaces", "address-overlap", "conntrack-exhausted")
    return [*(("os-firewall-drop", item) for item in firewalls), *((item, subject) for item in others)]


ALLOWED: dict[str, Tuple[Reports, Named, Named]] = {
    "a node's ingress dies, firewalls unread": (
        unread_firewalls(drops(healthy(), into_2)),
        [],
        left("node:2", "node:2"),
    ),
    "a node is cut off, firewalls unread": (
        unread_firewalls(drops(healthy(), isolated)),
        [],
        left("node:2", "node:2"),
    ),
    "a node is cut off, only its firewall unread": (
        on_host(drops(healthy(), isolated), [2], firewall_rules=None),
        [],
        left("node:2", "node:2"),
    ),
    "into a node nothing comes, and its ruleset has a rule that may fit": (
        on_host(drops(healthy(), into_2), [2], firewall_rules=PERHAPS),
        [("os-firewall-drop", "node:2")],
        [],
    ),
    "one direction, only one of its firewalls unread": (
        on_host(drops(healthy(), lambda s, d, p: (s, d) == (0, 2)), [2], firewall_rules=None),
        [],
        [("os-firewall-drop", "node:2"), ("one-way-block", "pair:0>2")],
    ),
    "one direction, both firewalls unread": (
        unread_firewalls(drops(healthy(), lambda s, d, p: (s, d) == (0, 2))),
        [],
        [("os-firewall-drop", "node:2"), ("os-firewall-drop", "node:0"), ("one-way-block", "pair:0>2")],
    ),
    "one direction, and a ruleset has a rule that may fit": (
        on_host(drops(healthy(), lambda s, d, p: (s, d) == (0, 2)), [2], firewall_rules=PERHAPS),
        [("os-firewall-drop", "node:2")],
        [],
    ),
    "one pair, one of its firewalls unread": (
        on_host(drops(healthy(), lambda s, d, p: {s, d} == {0, 2}), [0], firewall_rules=None),
        [],
        [("os-firewall-drop", "node:0"), ("pair-blocked", "pair:0>2")],
    ),
    "one pair, both firewalls empty": (
        drops(healthy(), lambda s, d, p: {s, d} == {0, 2}),
        [("pair-blocked", "pair:0>2")],
        [],
    ),
    "nothing passes, firewalls unread": (
        unread_firewalls(drops(healthy(), lambda s, d, p: True)),
        [],
        left("cluster", "cluster"),
    ),
    "only MASTER_PORT passes, firewalls unread": (
        unread_firewalls(drops(healthy(), lambda s, d, p: p != MASTER_PORT)),
        [],
        left("cluster", "cluster"),
    ),
    "nothing passes, every firewall empty": (
        drops(healthy(), lambda s, d, p: True),
        [],
        left("cluster"),
    ),
    "a node is cut off, every firewall empty": (
        drops(healthy(), isolated),
        [],
        left("node:2"),
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_where_the_rules_allow_it_only_the_hosts_are_left(name: str) -> None:
    """The account's rules allow all that died, so no security group is ever named."""
    rows, causes, candidates = ALLOWED[name]
    diagnosis = with_rules(rows, cluster([EVERYTHING]))
    assert named(diagnosis) == causes
    assert suspected(diagnosis) == candidates


def test_the_deciding_command_runs_on_the_node_that_was_not_read() -> None:
    """Where one host's ruleset is the only open question, its own text decides."""
    rows = on_host(drops(healthy(), lambda s, d, p: (s, d) == (0, 2)), [2], firewall_rules=None)
    diagnosis = with_rules(rows, cluster([EVERYTHING]))
    assert diagnosis.next_command == "sudo nft list ruleset  # on n2 (10.20.1.12)"


def test_an_unread_host_that_does_not_reach_itself_is_named() -> None:
    """Over its own loopback only its own firewall can stop a connection: that decides, unread or not."""
    rows = on_host(drops(healthy(), into_2), [2], firewall_rules=None)
    lost = tuple(
        dataclasses.replace(item, opened=False, bound=True, errno=errno.ETIMEDOUT)
        for item in rows[2].listeners or ()
    )
    diagnosis = with_rules(change(rows, 2, listeners=lost), cluster([EVERYTHING]))
    assert (named(diagnosis), suspected(diagnosis)) == ([("os-firewall-drop", "node:2")], [])
