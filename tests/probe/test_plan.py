"""Which probes are made, tested without a socket."""

from __future__ import annotations

from collections import Counter

import pytest

from cluster.ports import PortRange
from diagnosis.report import PortKind
from probe.members import Member, in_rank_order, parse_registration
from probe.plan import candidates, plan_probes, spread_ports


def members(count: int) -> list[Member]:
    return [
        Member(member_id=f"i-{i}", address=f"10.0.0.{i + 4}", master_port=29500, ports=(32768, 46884, 60999))
        for i in range(count)
    ]


def test_ports_are_spread_over_the_whole_range() -> None:
    """Listeners stand at the low end, the middle and the high end."""
    assert spread_ports(PortRange(32768, 60999)) == (32768, 46884, 60999)


@pytest.mark.parametrize(
    ("ports", "expected"),
    [(PortRange(5, 5), (5,)), (PortRange(5, 6), (5, 6)), (PortRange(50000, 50999), (50000, 50500, 50999))],
)
def test_a_small_range_gives_fewer_ports(ports: PortRange, expected: tuple[int, ...]) -> None:
    """No port is listed twice and none lies outside the range."""
    assert spread_ports(ports) == expected


def test_candidates_stay_in_the_range_and_begin_with_the_wanted_port() -> None:
    """A taken port is replaced by its nearest neighbours."""
    assert list(candidates(PortRange(10, 14), 10)) == [10, 11, 12, 13, 14]
    assert list(candidates(PortRange(10, 14), 12)) == [12, 13, 11, 14, 10]


def test_small_clusters_try_every_listener_of_every_peer() -> None:
    """Four nodes make 12 pairs of four listeners."""
    everyone = members(4)
    plan = [(m.member_id, t) for m in everyone for t in plan_probes(m.member_id, everyone)]
    assert Counter((source, t.destination, t.port) for source, t in plan) == Counter(
        (f"i-{a}", f"i-{b}", port)
        for a in range(4)
        for b in range(4)
        if a != b
        for port in (29500, 32768, 46884, 60999)
    )


def test_64_nodes_make_8064_probes_that_cover_every_listener() -> None:
    """Each pair tries MASTER_PORT and one ephemeral port; over all sources every port is tried."""
    everyone = members(64)
    plan = [t for m in everyone for t in plan_probes(m.member_id, everyone)]
    assert len(plan) == 8064
    assert Counter(t.kind for t in plan) == {PortKind.MASTER: 4032, PortKind.EPHEMERAL: 4032}
    assert {(t.destination, t.port) for t in plan} == {
        (f"i-{i}", port) for i in range(64) for port in (29500, 32768, 46884, 60999)
    }


def test_sources_begin_with_different_peers() -> None:
    """Nobody is everyone's first destination."""
    everyone = members(8)
    assert {plan_probes(m.member_id, everyone)[0].destination for m in everyone} == {
        m.member_id for m in everyone
    }


def test_a_port_that_is_not_listened_on_is_not_probed() -> None:
    """A member without a listener on MASTER_PORT is probed on its others only."""
    one, other = members(2)
    other = Member(member_id=other.member_id, address=other.address, master_port=0, ports=(40000,))
    assert [t.port for t in plan_probes(one.member_id, [one, other])] == [40000]


def test_a_stranger_has_no_plan() -> None:
    """A source that is not a member is an error, not an empty plan."""
    with pytest.raises(ValueError, match="'i-9' is not among the 2 members"):
        plan_probes("i-9", members(2))


def test_a_registration_is_read_as_it_was_written() -> None:
    """The object's name carries address and listeners there and back."""
    member = members(1)[0]
    assert member.registration() == "member~10.0.0.4~29500~32768,46884,60999"
    assert parse_registration("i-0", member.registration()) == member
    assert parse_registration("i-0", "mesh.json") is None
    with pytest.raises(ValueError, match="has 2 fields, needs 4"):
        parse_registration("i-0", "member~10.0.0.4")


def test_ranks_follow_addresses_by_number() -> None:
    """10.0.0.9 comes before 10.0.0.10."""
    found = in_rank_order(
        Member(member_id=a, address=a, master_port=1, ports=()) for a in ("10.0.0.10", "10.0.0.9", "9.1.1.1")
    )
    assert [m.address for m in found] == ["9.1.1.1", "10.0.0.9", "10.0.0.10"]
