"""Probes that were answered, but not as a listener of ours answers: refused, reset, silent, cut."""

from __future__ import annotations

import errno

import pytest

from diagnosis.report import ConnectOutcome, Verdict
from tests.cluster.world import cluster
from tests.diagnosis.builders import (
    MASTER_ONLY,
    MASTER_PORT,
    STARTED_AT,
    answer,
    change,
    diagnose,
    dies,
    drops,
    healthy,
    into_2,
    isolated,
    on_host,
    unread_firewalls,
    with_rules,
)
from tests.diagnosis.rulesets import (
    ISTIO_OUT,
    REDIRECTS,
    REJECT_ALL,
)


def into_2_on_gloos_ports(s: int, d: int, p: int) -> bool:
    """Node 2 serves everybody on MASTER_PORT only."""
    return d == 2 and p != MASTER_PORT


ANSWERS = {
    "one direction dies silently, the other is refused": (
        unread_firewalls(
            dies(
                drops(healthy(), lambda s, d, p: (s, d) == (0, 1)),
                lambda s, d, p: (s, d) == (1, 0),
                ConnectOutcome.REFUSED,
            )
        ),
        [],
        [
            ("pair-blocked", "pair:0>1"),
            ("one-way-block", "pair:0>1"),
            ("os-firewall-drop", "node:1"),
            ("os-firewall-reject", "pair:1>0"),
            ("peer-died", "node:0"),
            ("proxy-sidecar", "pair:1>0"),
        ],
    ),
    "a rejecting ruleset": (
        on_host(dies(healthy(), into_2, ConnectOutcome.UNREACHABLE), [2], firewall_rules=REJECT_ALL),
        [("os-firewall-reject", "node:2")],
        [],
    ),
    "refused on every port, firewalls unread": (
        unread_firewalls(dies(healthy(), into_2, ConnectOutcome.REFUSED)),
        [],
        [("os-firewall-reject", "node:2"), ("peer-died", "node:2"), ("proxy-sidecar", "node:2")],
    ),
    "unreachable on every port, firewalls unread": (
        unread_firewalls(dies(healthy(), into_2, ConnectOutcome.UNREACHABLE)),
        [],
        [("os-firewall-reject", "node:2"), ("host-unreachable", "node:2")],
    ),
    "refused on Gloo's ports while MASTER_PORT serves everybody, firewalls unread": (
        unread_firewalls(dies(healthy(), into_2_on_gloos_ports, ConnectOutcome.REFUSED)),
        [("os-firewall-reject", "node:2")],
        [],
    ),
    "unreachable on Gloo's ports while MASTER_PORT serves everybody, firewalls unread": (
        unread_firewalls(dies(healthy(), into_2_on_gloos_ports, ConnectOutcome.UNREACHABLE)),
        [("os-firewall-reject", "node:2")],
        [],
    ),
    "what one node opens is refused on Gloo's ports by everybody, firewalls unread": (
        unread_firewalls(
            dies(healthy(), lambda s, d, p: s == 1 and p != MASTER_PORT, ConnectOutcome.REFUSED)
        ),
        [("os-firewall-reject", "node:1")],
        [],
    ),
    "one pair is refused on Gloo's ports, firewalls unread": (
        unread_firewalls(
            dies(healthy(), lambda s, d, p: (s, d) == (0, 2) and p != MASTER_PORT, ConnectOutcome.REFUSED)
        ),
        [],
        [("os-firewall-reject", "node:2"), ("os-firewall-reject", "node:0")],
    ),
    "one pair is refused on Gloo's ports, only the source's firewall unread": (
        on_host(
            dies(healthy(), lambda s, d, p: (s, d) == (0, 2) and p != MASTER_PORT, ConnectOutcome.REFUSED),
            [0],
            firewall_rules=None,
        ),
        [("os-firewall-reject", "node:0")],
        [],
    ),
    "refused on Gloo's ports by a process that ended meanwhile, firewalls unread": (
        change(
            unread_firewalls(dies(healthy(), into_2_on_gloos_ports, ConnectOutcome.REFUSED)),
            2,
            finished_at=STARTED_AT + 0.5,
            listens_until=STARTED_AT + 60,
        ),
        [],
        [("os-firewall-reject", "node:2"), ("peer-died", "node:2"), ("proxy-sidecar", "node:2")],
    ),
    "refused by nobody's ruleset": (
        dies(healthy(), into_2, ConnectOutcome.REFUSED),
        [],
        [("peer-died", "node:2"), ("proxy-sidecar", "node:2"), ("os-firewall-reject", "node:2")],
    ),
    "unreachable by nobody's ruleset": (
        dies(healthy(), into_2, ConnectOutcome.UNREACHABLE),
        [],
        [("host-unreachable", "node:2"), ("os-firewall-reject", "node:2")],
    ),
    "no route": (
        dies(healthy(), lambda s, d, p: s == 1, ConnectOutcome.UNREACHABLE, errno=errno.ENETUNREACH),
        [("route-missing", "node:1")],
        [],
    ),
    "accepted, and the answer is not the echo": (
        dies(healthy(), into_2, ConnectOutcome.SILENT, garbled=True),
        [("proxy-sidecar", "node:2")],
        [],
    ),
    "accepted in silence, as a starved process does": (
        dies(healthy(), into_2, ConnectOutcome.SILENT, unacknowledged=False),
        [],
        [("peer-frozen", "node:2"), ("proxy-sidecar", "node:2")],
    ),
    "accepted in silence on Gloo's ports, while MASTER_PORT echoes": (
        dies(healthy(), lambda s, d, p: d == 2 and p != MASTER_PORT, ConnectOutcome.SILENT),
        [],
        [("proxy-sidecar", "node:2"), ("peer-frozen", "node:2")],
    ),
    "accepted in silence where a ruleset redirects": (
        on_host(
            dies(healthy(), lambda s, d, p: d == 2 and p != MASTER_PORT, ConnectOutcome.SILENT),
            [2],
            firewall_rules=REDIRECTS,
        ),
        [("proxy-sidecar", "node:2")],
        [],
    ),
    "accepted in silence where a ruleset redirects other ports": (
        on_host(
            dies(healthy(), lambda s, d, p: d == 2 and p == MASTER_PORT, ConnectOutcome.SILENT),
            [2],
            firewall_rules=REDIRECTS,
        ),
        [],
        [("proxy-sidecar", "node:2"), ("peer-frozen", "node:2")],
    ),
    "accepted in silence where the source's own ruleset redirects": (
        on_host(
            dies(healthy(), lambda s, d, p: s == 1, ConnectOutcome.SILENT), [1], firewall_rules=ISTIO_OUT
        ),
        [("proxy-sidecar", "node:1")],
        [],
    ),
    "accepted, and the first data is eaten": (
        dies(healthy(), into_2, ConnectOutcome.SILENT, unacknowledged=True),
        [],
        [("proxy-sidecar", "node:2"), ("os-firewall-drop", "node:2"), ("packet-loss", "node:2")],
    ),
    "accepted and closed, on every port": (
        dies(healthy(), into_2, ConnectOutcome.RESET),
        [("proxy-sidecar", "node:2")],
        [],
    ),
    "accepted and closed, on MASTER_PORT": (
        dies(healthy(), lambda s, d, p: d == 2 and p == MASTER_PORT, ConnectOutcome.RESET),
        [],
        [("proxy-sidecar", "node:2"), ("peer-died", "node:2")],
    ),
    "one connection closed": (
        dies(healthy(), lambda s, d, p: (s, d, p) == (0, 2, 46884), ConnectOutcome.RESET),
        [],
        [("proxy-sidecar", "pair:0>2"), ("peer-died", "pair:0>2")],
    ),
    "large messages vanish": (
        dies(healthy(), isolated, ConnectOutcome.SILENT, round_trip_s=0.0001, unacknowledged=True),
        [("mtu-black-hole", "node:2")],
        [],
    ),
    "large messages vanish one way, so that the other way's echo is lost": (
        dies(
            dies(
                healthy(),
                lambda s, d, p: s == 2,
                ConnectOutcome.SILENT,
                round_trip_s=0.0001,
                unacknowledged=True,
            ),
            into_2,
            ConnectOutcome.SILENT,
            round_trip_s=0.0001,
            unacknowledged=False,
        ),
        [("mtu-black-hole", "node:2")],
        [],
    ),
    "small messages pass, the large one is taken, and nothing comes back": (
        dies(healthy(), into_2, ConnectOutcome.SILENT, round_trip_s=0.0001, unacknowledged=False),
        [],
        [("peer-frozen", "node:2"), ("proxy-sidecar", "node:2"), ("mtu-black-hole", "node:2")],
    ),
    "no descriptors": (
        dies(healthy(), lambda s, d, p: s == 3, ConnectOutcome.LOCAL_ERROR, errno=errno.EMFILE),
        [("fd-limit", "node:3")],
        [],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_wrong_answer_is_named_where_it_decides(name: str) -> None:
    """A cause where the answer decides it, else candidates in order and a command."""
    rows, causes, candidates = ANSWERS[name]
    assert answer(rows) == (causes, candidates, 0, Verdict.FAIL, bool(candidates))


def test_the_command_shows_listener_and_ruleset_where_both_are_open() -> None:
    """One command tells a firewall from a process that is gone, on the node that was not read."""
    diagnosis = diagnose(unread_firewalls(dies(healthy(), into_2, ConnectOutcome.REFUSED)))
    assert diagnosis.next_command == ("sudo sh -c 'ss -ltn; nft list ruleset'  # on node 2 (n2, 10.20.1.12)")
    assert "node:2 ruleset: could not be read" in diagnosis.candidates[0].evidence


def test_refused_is_never_a_security_group() -> None:
    """A security group drops; whatever refuses is a host, even where the rules also forbid."""
    rows = unread_firewalls(dies(healthy(), lambda s, d, p: p != MASTER_PORT, ConnectOutcome.REFUSED))
    diagnosis = with_rules(rows, cluster([MASTER_ONLY]))
    assert {item.id for item in (*diagnosis.causes, *diagnosis.candidates)} == {"os-firewall-reject"}
