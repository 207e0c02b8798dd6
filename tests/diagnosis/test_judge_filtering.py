"""Every cause of the group "filtering": exactly it, at exactly its subject, and nothing else."""

from __future__ import annotations

import dataclasses
import errno
import random
from typing import List, Optional, Tuple

import pytest

from diagnosis.judge import judge
from diagnosis.report import ConnectOutcome, Diagnosis, Verdict
from tests.cluster.world import ALLOW_ALL, World, cluster, from_cidr, from_group, two_subnets
from tests.diagnosis.builders import (
    MASTER_PORT,
    Reports,
    change,
    diagnose,
    dies,
    drops,
    expect,
    healthy,
    moved,
    named,
    on_host,
    suspected,
    unread_firewalls,
)

Named = List[Tuple[str, str]]

EVERYTHING = from_group("sg-mesh")
MASTER_ONLY = from_group("sg-mesh", MASTER_PORT, MASTER_PORT)

DROP_ALL = """\
table inet filter {
	chain input {
		type filter hook input priority filter; policy accept;
		iif "lo" accept
		ct state established,related accept
		ip saddr 10.20.0.0/16 tcp dport { 29500, 32768-60999 } drop
	}
}"""
REJECT_ALL = DROP_ALL.replace(" drop\n", " reject with icmp admin-prohibited\n")
DROP_FROM_0 = DROP_ALL.replace("10.20.0.0/16", "10.20.1.10")
DROP_OUT = DROP_ALL.replace("hook input", "hook output").replace("ip saddr", "ip daddr")


def with_rules(rows: Reports, world: World) -> Diagnosis:
    return judge(rows, expect(len(rows)), world.snapshot())


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


# --- without the account's rules -------------------------------------------------------------------


def isolated(s: int, d: int, p: int) -> bool:
    return 2 in (s, d)


def into_2(s: int, d: int, p: int) -> bool:
    return d == 2


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
    "one direction dies silently, the other is refused": (
        unread_firewalls(
            dies(
                drops(healthy(), lambda s, d, p: (s, d) == (0, 1)),
                lambda s, d, p: (s, d) == (1, 0),
                ConnectOutcome.REFUSED,
            )
        ),
        [("os-firewall-reject", "node:0")],
        [("pair-blocked", "pair:0>1"), ("one-way-block", "pair:0>1"), ("os-firewall-drop", "node:1")],
    ),
    "a rejecting ruleset": (
        on_host(dies(healthy(), into_2, ConnectOutcome.UNREACHABLE), [2], firewall_rules=REJECT_ALL),
        [("os-firewall-reject", "node:2")],
        [],
    ),
    "refused, firewalls unread": (
        unread_firewalls(dies(healthy(), into_2, ConnectOutcome.REFUSED)),
        [("os-firewall-reject", "node:2")],
        [],
    ),
    "refused by nobody's ruleset": (
        dies(healthy(), into_2, ConnectOutcome.REFUSED),
        [],
        [("os-firewall-reject", "pair:0>2"), ("peer-died", "node:2")],
    ),
    "no route": (
        dies(healthy(), lambda s, d, p: s == 1, ConnectOutcome.UNREACHABLE, errno=errno.ENETUNREACH),
        [("route-missing", "node:1")],
        [],
    ),
    "accepted in silence": (
        dies(healthy(), into_2, ConnectOutcome.SILENT),
        [("proxy-sidecar", "node:2")],
        [],
    ),
    "accepted and closed, on MASTER_PORT": (
        dies(healthy(), lambda s, d, p: d == 2 and p == MASTER_PORT, ConnectOutcome.RESET),
        [("proxy-sidecar", "node:2")],
        [],
    ),
    "large messages vanish": (
        dies(healthy(), isolated, ConnectOutcome.SILENT, round_trip_s=0.0001),
        [("mtu-black-hole", "node:2")],
        [],
    ),
    "no descriptors": (
        dies(healthy(), lambda s, d, p: s == 3, ConnectOutcome.LOCAL_ERROR, errno=errno.EMFILE),
        [("fd-limit", "node:3")],
        [],
    ),
}


@pytest.mark.parametrize("name", UNKNOWN_RULES)
def test_what_died_is_named_by_the_nodes_own_evidence(name: str) -> None:
    """Without the account's rules: a cause where the nodes decide it, else candidates and a command."""
    rows, causes, candidates = UNKNOWN_RULES[name]
    diagnosis = diagnose(rows)
    assert named(diagnosis) == causes
    assert suspected(diagnosis) == candidates
    assert diagnosis.consequences == ()
    assert diagnosis.verdict is Verdict.FAIL
    assert (diagnosis.next_command is None) == (not candidates)


# --- rules that allow ---------------------------------------------------------------------------------


def left(subject: str, *firewalls: str) -> Named:
    """What is left where the rules allow it; firewalls: subjects whose rulesets may be it."""
    others = ("route-missing", "asymmetric-interfaces", "address-overlap", "conntrack-exhausted")
    return [*(("os-firewall-drop", item) for item in firewalls), *((item, subject) for item in others)]


PERHAPS = DROP_ALL.replace("ip saddr 10.20.0.0/16", "limit rate over 5/second ip saddr 10.20.0.0/16")

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


# --- two at once ------------------------------------------------------------------------------------------


TWO: dict[str, Tuple[Reports, Optional[World], Named]] = {
    "master only and a dropping host": (
        on_host(drops(healthy(), lambda s, d, p: p != MASTER_PORT or d == 2), [2], firewall_rules=DROP_ALL),
        None,
        [("os-firewall-drop", "node:2"), ("sg-only-master-port", "cluster")],
    ),
    "master only by the rules and a dropping host": (
        on_host(drops(healthy(), lambda s, d, p: p != MASTER_PORT or d == 2), [2], firewall_rules=DROP_ALL),
        cluster([MASTER_ONLY]),
        [("sg-only-master-port", "cluster"), ("os-firewall-drop", "node:2")],
    ),
    "a dropping host and a blocked pair": (
        on_host(drops(healthy(), lambda s, d, p: d == 2 or {s, d} == {0, 1}), [2], firewall_rules=DROP_ALL),
        None,
        [("os-firewall-drop", "node:2"), ("pair-blocked", "pair:0>1")],
    ),
    "a sidecar and a one-way block": (
        drops(
            dies(healthy(), lambda s, d, p: d == 3, ConnectOutcome.SILENT), lambda s, d, p: (s, d) == (0, 1)
        ),
        None,
        [("one-way-block", "pair:0>1"), ("proxy-sidecar", "node:3")],
    ),
    "a host that drops one port and a one-way block on another": (
        on_host(
            drops(healthy(), lambda s, d, p: (d == 2 and p == MASTER_PORT) or (s, d, p) == (0, 2, 46884)),
            [2],
            firewall_rules=DROP_ALL.replace("{ 29500, 32768-60999 }", "29500"),
        ),
        None,
        [("os-firewall-drop", "node:2"), ("one-way-block", "pair:0>2")],
    ),
    "two dropping hosts": (
        on_host(drops(healthy(), lambda s, d, p: d in (1, 2)), [1, 2], firewall_rules=DROP_ALL),
        None,
        [("os-firewall-drop", "node:1"), ("os-firewall-drop", "node:2")],
    ),
}


@pytest.mark.parametrize("name", TWO)
def test_two_independent_causes_are_both_named(name: str) -> None:
    """One cause does not hide another that it does not explain."""
    rows, world, expected = TWO[name]
    diagnosis = judge(rows, expect(len(rows)), world.snapshot() if world else None)
    assert sorted(named(diagnosis)) == sorted(expected)
    assert diagnosis.candidates == ()


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


def test_refused_is_never_a_security_group() -> None:
    """A security group drops; whatever refuses is a host, even where the rules also forbid."""
    rows = unread_firewalls(dies(healthy(), lambda s, d, p: p != MASTER_PORT, ConnectOutcome.REFUSED))
    diagnosis = with_rules(rows, cluster([MASTER_ONLY]))
    assert {item.id for item in (*diagnosis.causes, *diagnosis.candidates)} == {"os-firewall-reject"}


def test_the_first_cause_in_time_comes_first() -> None:
    """Causes are ordered by their earliest evidence across the cluster."""
    rows = drops(healthy(), lambda s, d, p: (s, d) == (2, 3))
    rows = dies(rows, lambda s, d, p: d == 1, ConnectOutcome.SILENT)
    early = tuple(
        dataclasses.replace(
            item,
            probes=tuple(
                dataclasses.replace(
                    one, started_at=(one.started_at or 0.0) - (0.5 if one.destination == "i-1" else 0)
                )
                for one in item.probes or ()
            ),
        )
        for item in rows
    )
    assert named(diagnose(rows)) == [("one-way-block", "pair:2>3"), ("proxy-sidecar", "node:1")]
    assert named(diagnose(early)) == [("proxy-sidecar", "node:1"), ("one-way-block", "pair:2>3")]
