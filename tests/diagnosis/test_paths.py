"""Detours, hosts that no longer answer on the link, and paths that eat large packets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Dict, Optional, Tuple

import pytest

from diagnosis.report import ConnectOutcome, Route, Verdict
from tests.diagnosis.builders import (
    Named,
    Reports,
    address,
    change,
    diagnose,
    dies,
    drops,
    healthy,
    named,
    on_host,
    suspected,
)
from tests.diagnosis.rulesets import DROP_ALL

DIRECT = Route(opening="ens5", answering="ens5")
NETWORKS = {"lo": ("127.0.0.1/8",), "ens5": ("10.20.1.12/20",)}
SECOND = {**NETWORKS, "ens6": ("10.20.1.212/20",)}
OTHER_SUBNET = {**NETWORKS, "ens6": ("10.20.16.9/20",)}
TUNNEL = {**NETWORKS, "tun0": ("10.8.0.2/24",)}
BRIDGE = {**NETWORKS, "br-1f": ("10.20.1.1/24",)}


def routed(
    rows: Reports,
    node: int,
    networks: Mapping[str, Tuple[str, ...]],
    taken: Mapping[int, Route],
    kinds: Optional[Mapping[str, str]] = None,
) -> Reports:
    """A node with these networks, whose packets to these peers take these routes."""
    routes = {address(peer): taken.get(peer, DIRECT) for peer in range(len(rows)) if peer != node}
    rows = change(rows, node, routes=routes)
    return on_host(rows, [node], networks=dict(networks), kinds=dict(kinds or {}))


def around(node: int, *peers: int) -> Reports:
    """Everything between the node and these peers times out, or all that touches it."""
    return drops(healthy(), lambda s, d, p: node in (s, d) and (not peers or bool({s, d} & set(peers))))


def into(node: int, *peers: int) -> Reports:
    return drops(healthy(), lambda s, d, p: d == node and (not peers or s in peers))


BY_ENS6 = Route(opening="ens6", answering="ens6")
BY_BRIDGE = Route(opening="br-1f", answering="br-1f")
VPN = Route(opening="tun0", answering="tun0")
ALL = (0, 1, 3)
CASES: Dict[str, Tuple[Reports, Named]] = {
    "answers leave by a second interface": (
        routed(into(2), 2, SECOND, dict.fromkeys(ALL, BY_ENS6)),
        [("asymmetric-interfaces", "node:2")],
    ),
    "to one peer only": (
        routed(into(2, 3), 2, SECOND, {3: BY_ENS6}),
        [("asymmetric-interfaces", "node:2")],
    ),
    "a second interface that nothing leaves by": (
        routed(drops(healthy(), lambda s, d, p: (s, d) == (3, 2)), 2, SECOND, {}),
        [("one-way-block", "pair:3>2")],
    ),
    "a second interface, and all works": (routed(healthy(), 2, SECOND, dict.fromkeys(ALL, BY_ENS6)), []),
    "a bridge covers the peers": (
        routed(around(2), 2, BRIDGE, dict.fromkeys(ALL, BY_BRIDGE), {"br-1f": "bridge"}),
        [("address-overlap", "node:2")],
    ),
    "a bridge covers one peer, and another pair is blocked": (
        drops(
            routed(around(2, 3), 2, BRIDGE, {3: BY_BRIDGE}, {"br-1f": "bridge"}),
            lambda s, d, p: {s, d} == {0, 1},
        ),
        [("pair-blocked", "pair:0>1"), ("address-overlap", "node:2")],
    ),
    "a container refuses in the peer's place": (
        dies(
            routed(healthy(), 2, BRIDGE, {3: BY_BRIDGE}, {"br-1f": "bridge"}),
            lambda s, d, p: (s, d) == (2, 3),
            ConnectOutcome.REFUSED,
        ),
        [("address-overlap", "node:2")],
    ),
    "a VPN takes all packets": (
        routed(
            around(2), 2, {**NETWORKS, "tun0": ("10.8.0.2/24",)}, dict.fromkeys(ALL, VPN), {"tun0": "tun"}
        ),
        [("route-missing", "node:2")],
    ),
    "a route to another subnet's interface": (
        routed(around(2), 2, OTHER_SUBNET, dict.fromkeys(ALL, BY_ENS6)),
        [("route-missing", "node:2")],
    ),
    "what the firewall drops is the firewall's": (
        on_host(routed(into(2), 2, SECOND, dict.fromkeys(ALL, BY_ENS6)), [2], firewall_rules=DROP_ALL),
        [("os-firewall-drop", "node:2")],
    ),
    "but a bridge swallows them all the same": (
        on_host(
            routed(around(2), 2, BRIDGE, dict.fromkeys(ALL, BY_BRIDGE), {"br-1f": "bridge"}),
            [2],
            firewall_rules=DROP_ALL,
        ),
        [("address-overlap", "node:2"), ("os-firewall-drop", "node:2")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_detours(name: str) -> None:
    """Exactly these causes, and nothing is left to ask."""
    rows, expected = CASES[name]
    diagnosis = diagnose(rows)
    assert sorted(named(diagnosis)) == sorted(expected)
    assert suspected(diagnosis) == []
    assert diagnosis.verdict is (Verdict.FAIL if expected else Verdict.PASS)


def test_routes_that_were_not_read_explain_nothing() -> None:
    """Without them the same time-outs stay a question, with these causes among its candidates."""
    diagnosis = diagnose(on_host(into(2), [2], networks=SECOND))
    assert named(diagnosis) == []
    assert diagnosis.candidates


def test_the_networks_and_the_route_stand_in_the_evidence() -> None:
    """What decides is shown: both interfaces with their networks, and the route of a peer."""
    (found,) = diagnose(CASES["a bridge covers the peers"][0]).causes
    assert found.summary == (
        "node 2 (n2, 10.20.1.12): a local network of br-1f covers members' addresses, "
        "and their packets go into it (6 of 12 pairs)"
    )
    assert found.evidence[:3] == (
        "node:2 ens5: 10.20.1.12/20",
        "node:2 br-1f: 10.20.1.1/24",
        "node:2 route to 10.20.1.10: by br-1f",
    )


# --- nobody on the link --------------------------------------------------------------------------


def without_row(rows: Reports, node: int) -> Reports:
    return tuple(row for place, row in enumerate(rows) if place != node)


def gone(outcome: ConnectOutcome, node: int = 3, **changes: object) -> Reports:
    return dies(healthy(), lambda s, d, p: d == node, outcome, **changes)


UNREACHABLE, TIMED_OUT = ConnectOutcome.UNREACHABLE, ConnectOutcome.TIMED_OUT


def test_a_member_that_nobody_answers_for() -> None:
    """No row, and errno 113 from everybody: the host is not on the link."""
    diagnosis = diagnose(without_row(gone(UNREACHABLE), 3), 4)
    assert named(diagnosis) == [("host-unreachable", "node:3")]
    assert suspected(diagnosis) == []


def test_the_neighbour_table_tells_of_a_time_out() -> None:
    """EC2's link is silent for 3 s, longer than a probe waits; the kernel knows by then."""
    diagnosis = diagnose(without_row(gone(TIMED_OUT, link_silent=True), 3), 4)
    assert named(diagnosis) == [("host-unreachable", "node:3")]
    assert "node:0 asked the link for it, and nobody answered" in diagnosis.causes[0].evidence


def test_a_time_out_behind_a_router_is_not_the_links() -> None:
    """The next hop answered, so the time-outs stay a question."""
    diagnosis = diagnose(without_row(gone(TIMED_OUT, link_silent=False), 3), 4)
    assert named(diagnosis) == []
    assert diagnosis.candidates


def test_a_member_with_a_row_may_have_a_firewall_that_says_so() -> None:
    """errno 113 from a host that was alive decides nothing here."""
    assert ("host-unreachable", "node:3") not in named(diagnose(gone(UNREACHABLE)))


def test_one_peer_that_reached_it_clears_the_host() -> None:
    """The host is on the link: what others hear is somebody else's word."""
    rows = dies(healthy(), lambda s, d, p: d == 3 and s != 0, UNREACHABLE)
    assert named(diagnose(without_row(rows, 3), 4)) == []


# --- large packets -------------------------------------------------------------------------------


def eaten(small: Optional[ConnectOutcome], unacknowledged: bool = True) -> Reports:
    """Large messages of 1 > 3 vanish; small ones came back."""
    return dies(
        healthy(),
        lambda s, d, p: (s, d) == (1, 3),
        ConnectOutcome.SILENT,
        round_trip_s=0.0001,
        unacknowledged=unacknowledged,
        garbled=False,
        small_segments=small,
        path_mtu_bytes=9001,
    )


def test_the_same_message_in_small_segments_proves_the_black_hole() -> None:
    """It passed: the evidence says so, with the MTU that the kernel believes in."""
    (found,) = diagnose(eaten(ConnectOutcome.CONNECTED)).causes
    assert (found.id, found.subject) == ("mtu-black-hole", "pair:1>3")
    assert "in small segments the same message passed (1 of 12 pairs)" in found.evidence
    assert "path MTU that the kernels believe: 9001 bytes" in found.evidence


def test_lost_in_small_segments_too_is_no_black_hole() -> None:
    """Size is not what the path minds."""
    diagnosis = diagnose(eaten(ConnectOutcome.SILENT))
    assert named(diagnosis) == []
    assert diagnosis.candidates


def test_a_peer_that_took_the_data_and_slept_is_no_black_hole() -> None:
    """Its kernel acknowledged: that it answered a second time only shows that it woke up."""
    diagnosis = diagnose(eaten(ConnectOutcome.CONNECTED, unacknowledged=False))
    assert named(diagnosis) == []
    assert diagnosis.candidates


def test_both_directions_of_a_pair_are_one_finding() -> None:
    """The lower rank first."""
    rows = eaten(ConnectOutcome.CONNECTED)
    rows = dies(
        rows,
        lambda s, d, p: (s, d) == (3, 1),
        ConnectOutcome.SILENT,
        round_trip_s=0.0001,
        unacknowledged=False,
        garbled=False,
        small_segments=ConnectOutcome.CONNECTED,
    )
    assert named(diagnose(rows)) == [("mtu-black-hole", "pair:1>3")]
