"""Packets that come back, listeners that outlast a row, and instances that never registered."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from diagnosis.judge import judge
from diagnosis.report import ConnectOutcome, Verdict
from tests.cluster.world import World, from_group
from tests.diagnosis.builders import (
    MASTER_PORT,
    STARTED_AT,
    Reports,
    change,
    dies,
    drops,
    expect,
    healthy,
    named,
    on_host,
)

STATELESS = """\
table inet filter {
	chain input {
		type filter hook input priority filter; policy accept;
		ip saddr 10.0.0.0/8 tcp dport 32768-60999 drop
	}
}
"""


def open_world(nodes: int = 4) -> World:
    """Rules on which the mesh forms."""
    world = World()
    world.subnet("subnet-1", "10.20.1.0/24")
    world.group("sg-mesh", [from_group("sg-mesh")])
    for node in range(nodes):
        world.node(str(node), f"10.20.1.{10 + node}", ["sg-mesh"])
    return world


def test_a_rule_without_a_state_also_drops_what_comes_back() -> None:
    """Node 2 drops packets to high ports: connections into it, and the replies to its own, die there."""
    into = drops(healthy(), lambda s, d, p: d == 2 and p != MASTER_PORT)
    rows = on_host(drops(into, lambda s, d, p: s == 2), [2], firewall_rules=STATELESS)
    diagnosis = judge(rows, expect(), open_world().snapshot())
    assert (named(diagnosis), diagnosis.candidates) == ([("os-firewall-drop", "node:2")], ())


def test_established_replies_pass_a_stateful_firewall() -> None:
    """The same rule behind `ct state established accept` explains what comes in, and not what goes out."""
    stateful = STATELESS.replace("ip saddr", "ct state established,related accept\n\t\tip saddr")
    rows = on_host(drops(healthy(), lambda s, d, p: s == 2), [2], firewall_rules=stateful)
    assert ("os-firewall-drop", "node:2") not in named(judge(rows, expect(), open_world().snapshot()))


def test_who_has_no_route_there_does_not_answer_from_there_either() -> None:
    """Node 2 has no route to the others: what they open to it has no reply, and needs no other cause."""
    rows = drops(healthy(), lambda s, d, p: d == 2)
    rows = dies(rows, lambda s, d, p: s == 2, ConnectOutcome.UNREACHABLE, errno=errno.ENETUNREACH)
    diagnosis = judge(rows, expect(), open_world().snapshot())
    assert (named(diagnosis), diagnosis.candidates) == ([("route-missing", "node:2")], ())


def reset_late(listens_until: float | None) -> Reports:
    """Node 2 is ready with its own probes before the others begin, and they find a proxy."""
    rows = dies(healthy(), lambda s, d, p: d == 2 and p != MASTER_PORT, ConnectOutcome.RESET)
    return change(rows, 2, finished_at=STARTED_AT + 0.5, listens_until=listens_until)


@pytest.mark.parametrize(("until", "over"), [(STARTED_AT + 30, False), (STARTED_AT + 0.9, True)])
def test_listeners_outlast_the_row_as_long_as_it_says(until: float, over: bool) -> None:
    """A peer that probes after the row was written still meets the listener, unless its time was over."""
    diagnosis = judge(reset_late(until), expect())
    late = "node:2: node 2 (n2, 10.20.1.12) was probed after its end"
    assert (late in diagnosis.unanswered) is over
    assert diagnosis.verdict is (Verdict.UNKNOWN if over else Verdict.FAIL)


def test_an_instance_that_never_registered_is_no_stranger() -> None:
    """It carries the group as a member does; it is named where it is missed, with its own command."""
    rows = tuple(
        dataclasses.replace(
            row,
            members={key: value for key, value in row.members.items() if key != "i-3"},
            probes=tuple(item for item in row.probes or () if item.destination != "i-3"),
        )
        for row in healthy()[:3]
    )
    diagnosis = judge(rows, expect(cluster="demo"), open_world().snapshot())
    (cause,) = diagnosis.causes
    assert (cause.id, cause.subject) == ("peer-missing", "cluster")
    assert diagnosis.exposed == ()
    assert cause.evidence[-1] == "i-3 runs and has not registered"
    assert cause.commands[-1] == "aws ec2 get-console-output --instance-id i-3 --latest --output text"
