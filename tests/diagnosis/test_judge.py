"""The verdict: when it is PASS, and that nothing unlooked-at ever is."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.snapshot import ClusterSnapshot
from diagnosis.judge import judge
from diagnosis.membership import Expectation
from diagnosis.report import ConnectOutcome, Diagnosis, HostFacts, NodeReport, StepFailure, Verdict
from tests.cluster.world import cluster, from_cidr, from_group
from tests.diagnosis.builders import (
    MASTER_PORT,
    STARTED_AT,
    Reports,
    address,
    all_reduce,
    change,
    diagnose,
    dies,
    drops,
    expect,
    healthy,
    named,
    on_host,
    suspected,
)

BOTH = ("mesh", "collective")


@pytest.mark.parametrize("nodes", range(2, 17))
def test_a_healthy_cluster_passes(nodes: int) -> None:
    """Every pair proven and a right all_reduce: PASS, and nothing else is said."""
    diagnosis = diagnose(healthy(nodes, collective=True), stages=BOTH)
    assert diagnosis.verdict is Verdict.PASS
    assert diagnosis == dataclasses.replace(
        Diagnosis(verdict=Verdict.PASS),
        nodes=diagnosis.nodes,
        pairs=diagnosis.pairs,
        collective=all_reduce(nodes),
        timings_s={"mesh": 0.5},
    )
    assert {node.verdict for node in diagnosis.nodes} == {Verdict.PASS}
    assert len(diagnosis.pairs) == nodes * (nodes - 1)


def test_a_healthy_cluster_passes_beside_rules_that_allow_it() -> None:
    """The account's rules change nothing about a mesh that works."""
    world = cluster([from_group("sg-mesh")])
    assert judge(healthy(), expect(), world.snapshot()) == diagnose(healthy())


def test_no_report_is_unknown() -> None:
    """Nobody reported: UNKNOWN with what may have happened, never PASS and never a cause."""
    diagnosis = judge((), expect())
    assert diagnosis.verdict is Verdict.UNKNOWN
    assert diagnosis.causes == ()
    assert suspected(diagnosis) == [
        ("launch-failed", "cluster"),
        ("bootstrap-failed", "cluster"),
        ("storage-unreachable", "cluster"),
    ]
    assert diagnosis.unanswered == ("cluster: none of 4 nodes reported",)
    assert diagnosis.next_command is not None


def test_before_the_deadline_a_missing_member_is_unknown() -> None:
    """While others may still come nobody is accused."""
    diagnosis = diagnose(_without(healthy(), 3), 4, deadline_passed=False)
    assert (diagnosis.verdict, diagnosis.causes) == (Verdict.UNKNOWN, ())
    assert diagnosis.unanswered == ("cluster: 3 of 4 members came",)


def test_a_registered_member_without_a_row_is_unknown() -> None:
    """It came and was reached, but what it saw nobody knows."""
    registered = {f"i-{node}": address(node) for node in range(4)}
    diagnosis = diagnose(healthy()[:3], 4, registered=registered)
    assert (diagnosis.verdict, diagnosis.causes) == (Verdict.UNKNOWN, ())
    assert diagnosis.unanswered == (f"node:3: i-3 ({address(3)}) sent no row",)
    assert diagnosis.next_command == "aws ec2 get-console-output --instance-id i-3 --latest --output text"
    assert [node.verdict for node in diagnosis.nodes] == [Verdict.PASS] * 3 + [Verdict.UNKNOWN]


def test_a_registered_member_that_answers_nobody_has_candidates() -> None:
    """Without its row a dead process and a filter look alike."""
    rows = drops(healthy(), lambda s, d, p: d == 3)[:3]
    diagnosis = diagnose(rows, 4, registered={"i-3": address(3)})
    assert diagnosis.causes == ()
    assert suspected(diagnosis)[0] == ("peer-died", "node:3")


def test_several_rows_of_one_member_count_as_one() -> None:
    """The mesh's row and the collective's are one member's; the later one adds to the earlier."""
    rows = tuple(dataclasses.replace(item, finished_at=STARTED_AT + 20) for item in healthy(collective=True))
    diagnosis = diagnose((*healthy(), *rows), 4, stages=BOTH)
    assert diagnosis == diagnose(rows, 4, stages=BOTH)


def test_a_failure_after_the_mesh_keeps_what_the_mesh_row_said() -> None:
    """The failure's row holds no probes; those of the member's mesh row still count."""
    rows = healthy()
    failure = StepFailure(step="torch", exit_status=1, output="no space left on device")
    later = dataclasses.replace(
        rows[1],
        host=None,
        listeners=None,
        probes=None,
        members={},
        finished_at=STARTED_AT + 60,
        failures=(failure,),
    )
    diagnosis = diagnose((*rows, later), 4)
    assert named(diagnosis) == [("bootstrap-failed", "node:1")]
    assert diagnosis.unanswered == ()


def test_open_doors_fail_a_mesh_that_holds() -> None:
    """Others who can get in: FAIL with no cause and with who it is."""
    world = cluster([from_group("sg-mesh"), from_cidr("0.0.0.0/0")], count=0)
    world.table(
        "rtb-public", "vpc-1", [("10.20.0.0/16", "local"), ("0.0.0.0/0", "igw-1")], subnets=["subnet-1"]
    )
    for node in range(4):
        world.node(str(node), address(node), ["sg-mesh"], public=f"203.0.113.{node + 1}")
    world.acl(
        "acl-1",
        ["subnet-1"],
        [(100, "allow", "-1", "0.0.0.0/0", None)],
        [(100, "allow", "-1", "0.0.0.0/0", None)],
    )
    diagnosis = judge(healthy(), expect(), world.snapshot())
    assert (diagnosis.verdict, diagnosis.causes) == (Verdict.FAIL, ())
    assert len(diagnosis.exposed) == 1
    assert diagnosis.exposed[0].startswith("0.0.0.0/0 reaches tcp 0-65535 on 4 members")


def test_an_empty_snapshot_decides_nothing() -> None:
    """A snapshot in which nothing could be read neither blames nor clears, and leaves open who gets in."""
    rows = drops(healthy(), lambda s, d, p: p != MASTER_PORT)
    seen = judge(rows, expect(), ClusterSnapshot())
    assert seen.unanswered
    assert dataclasses.replace(seen, unanswered=()) == diagnose(rows)


# --- nothing may be left out --------------------------------------------------------------------------


def _without(rows: Reports, node: int) -> Reports:
    """Neither the row nor any trace of a member."""
    gone = f"i-{node}"
    return tuple(
        dataclasses.replace(
            item,
            members={key: value for key, value in item.members.items() if key != gone},
            probes=tuple(one for one in item.probes or () if one.destination != gone),
        )
        for place, item in enumerate(rows)
        if place != node
    )


Cut = Callable[[Reports, int, int], Reports]


def _host_field(name: str) -> Cut:
    return lambda rows, node, _: on_host(rows, [node], **{name: None})


def _drop_probe(rows: Reports, node: int, pick: int) -> Reports:
    probes = list(rows[node].probes or ())
    del probes[pick % len(probes)]
    return change(rows, node, probes=tuple(probes))


def _drop_listener(rows: Reports, node: int, pick: int) -> Reports:
    listeners = list(rows[node].listeners or ())
    del listeners[pick % len(listeners)]
    return change(rows, node, listeners=tuple(listeners))


def _close_listener(rows: Reports, node: int, pick: int) -> Reports:
    listeners = list(rows[node].listeners or ())
    place = pick % len(listeners)
    listeners[place] = dataclasses.replace(listeners[place], opened=False)
    return change(rows, node, listeners=tuple(listeners))


def _break_probe(rows: Reports, node: int, pick: int) -> Reports:
    outcomes = [outcome for outcome in ConnectOutcome if outcome is not ConnectOutcome.CONNECTED]
    probes = list(rows[node].probes or ())
    broken = probes[pick % len(probes)]
    hit = (broken.destination, broken.port)
    return dies(
        rows,
        lambda s, d, p: s == node and (f"i-{d}", p) == hit,
        outcomes[pick % len(outcomes)],
    )


def _field(name: str, value: Any) -> Cut:
    return lambda rows, node, _: change(rows, node, **{name: value})


CUTS: Tuple[Tuple[str, Cut], ...] = (
    ("its row", lambda rows, node, _: tuple(item for place, item in enumerate(rows) if place != node)),
    ("every trace of it", lambda rows, node, _: _without(rows, node)),
    ("all probes", _field("probes", None)),
    ("no probes", _field("probes", ())),
    ("one probe", _drop_probe),
    ("one probe's success", _break_probe),
    ("all listeners", _field("listeners", None)),
    ("no listeners", _field("listeners", ())),
    ("one listener", _drop_listener),
    ("one listener's proof", _close_listener),
    ("the host", _field("host", None)),
    ("the host name", _host_field("hostname")),
    ("the resolver's answer", _host_field("hostname_addresses")),
    ("the interfaces", _host_field("interfaces")),
    ("the port range", _host_field("local_port_range")),
    ("the collective", _field("collective", None)),
    ("the collective's outcome", _field("collective", all_reduce(4, outcome=Verdict.UNKNOWN))),
    ("the collective's run", _field("collective", all_reduce(4, outcome=Verdict.SKIPPED))),
)


@given(
    cuts=st.lists(
        st.tuples(st.sampled_from(range(len(CUTS))), st.integers(0, 3), st.integers(0, 200)),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_is_left_out_is_never_pass(cuts: List[Tuple[int, int, int]]) -> None:
    """Any report, probe, listener or answer less: never PASS, and some reason is given."""
    rows = healthy(4, collective=True)
    for which, node, pick in cuts:
        try:
            rows = CUTS[which][1](rows, node, pick)
        except (IndexError, ZeroDivisionError, AssertionError):
            continue  # an earlier cut took away what this one wants to cut
    diagnosis = diagnose(rows, 4, stages=BOTH)
    assert diagnosis.verdict is not Verdict.PASS
    assert diagnosis.causes or diagnosis.candidates or diagnosis.unanswered


@pytest.mark.parametrize("name", [name for name, _ in CUTS])
def test_each_cut_alone_is_never_pass(name: str) -> None:
    """Every way to leave something out, by itself, on every node."""
    for node in range(4):
        for pick in range(13):
            rows = dict(CUTS)[name](healthy(4, collective=True), node, pick)
            assert diagnose(rows, 4, stages=BOTH).verdict is not Verdict.PASS


@pytest.mark.parametrize("kind", [NodeReport, HostFacts])
def test_every_optional_field_is_known_to_this_test(kind: type) -> None:
    """A new field of a row must be added to the cuts, or to the fields that no verdict needs."""
    questions = {"listeners", "probes", "host", "collective", "hostname", "hostname_addresses", "interfaces"}
    questions |= {"local_port_range"}
    not_needed = {
        *("run", "member_id", "address", "name", "schema_version", "rank", "world_size", "master_address"),
        *("master_port", "booted_at", "started_at", "finished_at", "members", "failures", "publish_errors"),
        *(
            "listens_until",
            "timings_s",
            "peak_memory_bytes",
            "hostname_error",
            "interface",
            "mtu",
            "nofile_limit",
            "somaxconn",
        ),
        *("firewall_rules", "firewall_error", "environment", "versions", "clock_offset_s"),
        *("processes", "started_by", "nodes_expected", "contacts", "routes", "streams", "networks", "kinds"),
        "held_by_torch",
        *("counters", "local_ports_held", "idle", "job"),
    }
    assert {field.name for field in dataclasses.fields(kind)} <= questions | not_needed


def test_no_planned_stage_is_unknown() -> None:
    """A plan without a stage asks nothing, and nothing asked is not PASS."""
    plan = Expectation(nodes=4, master_port=MASTER_PORT, stages=())
    assert judge(healthy(), plan).verdict is Verdict.UNKNOWN


def test_one_node_is_no_mesh() -> None:
    """With one member no pair is proven."""
    assert diagnose(healthy(1), 1).verdict is Verdict.UNKNOWN


def test_large_clusters_need_one_ephemeral_port_a_pair() -> None:
    """Above 16 nodes each pair is tried on MASTER_PORT and on one of the ephemeral ports."""

    def thin(rows: Reports) -> Reports:
        keep = {MASTER_PORT, 46884}
        return tuple(
            dataclasses.replace(item, probes=tuple(one for one in item.probes or () if one.port in keep))
            for item in rows
        )

    assert diagnose(thin(healthy(17))).verdict is Verdict.PASS
    assert diagnose(thin(healthy(16))).verdict is Verdict.UNKNOWN
    assert diagnose(_drop_probe(thin(healthy(17)), 3, 0)).verdict is Verdict.UNKNOWN
    assert diagnose(_drop_probe(thin(healthy(17)), 3, 1)).verdict is Verdict.UNKNOWN
