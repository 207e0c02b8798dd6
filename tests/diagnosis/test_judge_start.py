"""Causes of names, variables, ranks and the nodes' own start-up, each at exactly its subject."""

from __future__ import annotations

import dataclasses
import errno
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from diagnosis.report import Listener, PortKind, StepFailure, Verdict
from tests.diagnosis.builders import (
    MASTER_PORT,
    Reports,
    address,
    all_reduce,
    change,
    diagnose,
    drops,
    healthy,
    moved,
    named,
    on_host,
    suspected,
)

Named = List[Tuple[str, str]]
BOTH = ("mesh", "collective")


def env(rows: Reports, nodes: Sequence[int], **values: str) -> Reports:
    """The distributed variables of some nodes."""
    for node in nodes:
        host = rows[node].host
        assert host is not None
        rows = on_host(rows, [node], environment={**host.environment, **values})
    return rows


def launched(nodes: int = 4) -> Reports:
    """A job whose environment is complete on every node."""
    rows = healthy(nodes)
    for node in range(nodes):
        rows = env(
            rows,
            [node],
            RANK=str(node),
            WORLD_SIZE=str(nodes),
            MASTER_ADDR=address(0),
            MASTER_PORT=str(MASTER_PORT),
        )
        rows = change(rows, node, rank=node, world_size=nodes)
    return rows


def without(rows: Reports, node: int, *names: str) -> Reports:
    host = rows[node].host
    assert host is not None
    kept = {key: value for key, value in host.environment.items() if key not in names}
    return on_host(rows, [node], environment=kept)


def test_a_complete_environment_is_no_finding() -> None:
    """torchrun's variables on every node, alike: nothing to say."""
    diagnosis = diagnose(launched())
    assert (diagnosis.verdict, diagnosis.causes) == (Verdict.PASS, ())


def two_nics(*addresses: str) -> Dict[str, Tuple[str, ...]]:
    return {"lo": ("127.0.0.1",), "ens5": (address(2),), "docker0": addresses or ("172.17.0.1",)}


CASES: Dict[str, Tuple[Reports, Named]] = {
    # names
    "Debian's 127.0.1.1": (
        on_host(healthy(), [2], hostname_addresses=("127.0.1.1",)),
        [("hostname-loopback", "node:2")],
    ),
    "loopback before the address": (
        on_host(healthy(), [2], hostname_addresses=("127.0.0.1", address(2))),
        [("hostname-loopback", "node:2")],
    ),
    "loopback behind the address": (
        on_host(healthy(), [2], hostname_addresses=(address(2), "127.0.1.1")),
        [],
    ),
    "loopback, but the interface is named": (
        env(on_host(healthy(), [2], hostname_addresses=("127.0.1.1",)), [2], GLOO_SOCKET_IFNAME="ens5"),
        [],
    ),
    "loopback, and the variable has one character": (
        env(on_host(healthy(), [2], hostname_addresses=("127.0.1.1",)), [2], GLOO_SOCKET_IFNAME="e"),
        [("hostname-loopback", "node:2")],
    ),
    "every name is loopback": (
        on_host(healthy(), range(4), hostname_addresses=("127.0.1.1",)),
        [("hostname-loopback", f"node:{node}") for node in range(4)],
    ),
    "no address": (
        on_host(healthy(), [1], hostname_addresses=(), hostname_error="[Errno -2] Name or service not known"),
        [("hostname-unresolvable", "node:1")],
    ),
    "a number": (
        on_host(healthy(), [1], hostname="7", hostname_addresses=("0.0.0.7",)),
        [("hostname-numeric", "node:1")],
    ),
    "a former address": (
        on_host(healthy(), [1], hostname_addresses=("10.20.9.9",)),
        [("hostname-stale-ip", "node:1")],
    ),
    "a blank name": (
        on_host(healthy(), [1], hostname=" ", hostname_addresses=()),
        [("hostname-empty", "node:1")],
    ),
    "a container's bridge": (
        on_host(healthy(), [2], hostname_addresses=("172.17.0.1",), interfaces=two_nics()),
        [("wrong-interface", "node:2")],
    ),
    "a second routable network": (
        on_host(
            healthy(),
            [2],
            hostname_addresses=("10.99.0.2",),
            interfaces={"ens5": (address(2),), "ens6": ("10.99.0.2",)},
        ),
        [],
    ),
    # GLOO_SOCKET_IFNAME
    "a wrong name on one node": (
        env(healthy(), [2], GLOO_SOCKET_IFNAME="eth0"),
        [("ifname-missing", "node:2")],
    ),
    "a wrong name on every node": (
        env(healthy(2), range(2), GLOO_SOCKET_IFNAME="eth0"),
        [("ifname-missing", "node:0"), ("ifname-missing", "node:1")],
    ),
    "an interface without an address": (
        env(
            on_host(healthy(), [2], interfaces={"ens5": (address(2),), "ens6": ()}),
            [2],
            GLOO_SOCKET_IFNAME="ens6",
        ),
        [("ifname-missing", "node:2")],
    ),
    "NCCL's syntax": (env(healthy(), [2], GLOO_SOCKET_IFNAME="^lo"), [("ifname-syntax", "node:2")]),
    "a prefix": (env(healthy(), [2], GLOO_SOCKET_IFNAME="ens"), [("ifname-syntax", "node:2")]),
    "an address": (env(healthy(), [2], GLOO_SOCKET_IFNAME=address(2)), [("ifname-syntax", "node:2")]),
    "a blank behind the comma": (
        env(healthy(), [2], GLOO_SOCKET_IFNAME="ens5, ens5"),
        [("ifname-syntax", "node:2")],
    ),
    "a list of good names": (env(healthy(), [2], GLOO_SOCKET_IFNAME="ens5,ens5"), []),
    "lo on every node": (
        env(healthy(2), range(2), GLOO_SOCKET_IFNAME="lo"),
        [("ifname-loopback", "node:0"), ("ifname-loopback", "node:1")],
    ),
    "one name for unlike nodes": (
        env(on_host(healthy(), [3], interfaces={"eth0": (address(3),)}), range(4), GLOO_SOCKET_IFNAME="ens5"),
        [("ifname-heterogeneous", "cluster")],
    ),
    # variables
    "RANK is absent on one node": (without(launched(), 2, "RANK"), [("env-missing", "node:2")]),
    "nothing is set on one node": (
        without(launched(), 2, "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        [("env-missing", "node:2")],
    ),
    "MASTER_PORT is absent everywhere": (
        without(without(launched(2), 0, "MASTER_PORT"), 1, "MASTER_PORT"),
        [("env-missing", "cluster")],
    ),
    "ready for torchrun": (
        env(healthy(), range(4), NODE_RANK="0", WORLD_SIZE="4", MASTER_ADDR=address(0), MASTER_PORT="29500"),
        [],
    ),
    "another MASTER_PORT on one node": (
        env(launched(), [1], MASTER_PORT="29501"),
        [("env-inconsistent", "node:1")],
    ),
    "two halves": (
        env(launched(), [1, 3], MASTER_PORT="29501"),
        [("env-inconsistent", "cluster")],
    ),
    "another MASTER_ADDR on one node": (
        env(launched(), [1], MASTER_ADDR=address(2)),
        [("env-inconsistent", "node:1")],
    ),
    "rank 0 by its name, and by localhost on itself": (
        env(env(launched(), [1], MASTER_ADDR="ip-10-20-1-10"), [0], MASTER_ADDR="localhost"),
        [],
    ),
    "MASTER_ADDR is another member": (
        env(launched(), range(4), MASTER_ADDR=address(2)),
        [("master-addr-not-a-member", "cluster")],
    ),
    "MASTER_ADDR is public": (
        env(launched(), range(4), MASTER_ADDR="52.1.2.3"),
        [("public-address", "cluster")],
    ),
    "MASTER_ADDR has a port": (
        env(launched(), [1], MASTER_ADDR="10.20.1.10:29500"),
        [("master-addr-malformed", "node:1")],
    ),
    "MASTER_ADDR is empty": (env(launched(), [1], MASTER_ADDR=""), [("master-addr-empty", "node:1")]),
    "a variable that nothing reads": (
        env(healthy(), [2], GLOO_TIMEOUT_SECONDS="60"),
        [("env-no-effect", "node:2")],
    ),
    "an unknown variable on every node": (
        env(healthy(), range(4), GLOO_TURBO="1"),
        [("env-no-effect", "cluster")],
    ),
    "a transport that does not exist": (
        env(healthy(), [1], GLOO_DEVICE_TRANSPORT="RDMA"),
        [("transport-unsupported", "node:1")],
    ),
    # numbers
    "WORLD_SIZE differs on one node": (
        change(launched(), 1, world_size=5),
        [("world-size-mismatch", "node:1")],
    ),
    "WORLD_SIZE differs from the plan": (
        tuple(dataclasses.replace(item, world_size=8) for item in healthy()),
        [("world-size-mismatch", "cluster")],
    ),
    "a rank beyond the size": (change(launched(), 3, rank=7), [("world-size-mismatch", "node:7")]),
    "one rank twice": (change(launched(), 3, rank=2), [("duplicate-rank", "node:2")]),
    # nodes
    "a failed step": (
        change(healthy(), 3, failures=(StepFailure(step="torch", exit_status=1, output="no\nspace left\n"),)),
        [("bootstrap-failed", "node:3")],
    ),
    "no way to the bucket": (
        change(
            healthy(),
            3,
            failures=(
                StepFailure(
                    step="asset",
                    exit_status=255,
                    output='Could not connect to the endpoint URL: "https://b.s3.eu-west-1.amazonaws.com/a"',
                ),
            ),
        ),
        [("storage-unreachable", "node:3")],
    ),
    "metrics refused on one node": (
        change(healthy(), 1, publish_errors=("PutMetricData: AccessDenied",)),
        [("publish-failed", "node:1")],
    ),
    "metrics refused everywhere": (
        tuple(dataclasses.replace(item, publish_errors=("AccessDenied",)) for item in healthy()),
        [("publish-failed", "cluster")],
    ),
}

# Worth saying, and never a reason for FAIL.
ADVICE = ("env-no-effect", "publish-failed")


@pytest.mark.parametrize("name", CASES)
def test_each_start_is_named_at_its_subject(name: str) -> None:
    """Exactly these causes, no candidates, and FAIL only where a cause breaks the mesh."""
    rows, expected = CASES[name]
    diagnosis = diagnose(rows)
    assert named(diagnosis) == expected
    assert suspected(diagnosis) == []
    breaks = any(cause_id not in ADVICE for cause_id, _ in expected)
    assert diagnosis.verdict is (Verdict.FAIL if breaks else Verdict.PASS)


@pytest.mark.parametrize(
    "addresses", [["10.20.1.10"] * 4, ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]]
)
def test_on_one_host_loopback_is_fair(addresses: List[str]) -> None:
    """All ranks on one machine may use its loopback address and name."""
    rows = on_host(moved(healthy(), addresses), range(4), hostname_addresses=("127.0.1.1",))
    assert diagnose(rows).causes == ()


def test_an_unanswered_resolver_is_not_an_unresolvable_name() -> None:
    """No answer in time is a question without an answer."""
    rows = on_host(healthy(), [1], hostname_addresses=None, hostname_error="no answer within 6 s")
    diagnosis = diagnose(rows)
    assert (diagnosis.verdict, diagnosis.causes) == (Verdict.UNKNOWN, ())
    assert diagnosis.unanswered == (
        "node:1: what its own name resolves to was not read (no answer within 6 s)",
    )


def test_a_held_master_port_is_named_with_its_holder() -> None:
    """EADDRINUSE at MASTER_PORT: the port, the node and the process."""
    listeners = list(healthy()[0].listeners or ())
    listeners[0] = Listener(
        port=MASTER_PORT, kind=PortKind.MASTER, opened=False, errno=errno.EADDRINUSE, holder="pid 7 (python3)"
    )
    rows = change(healthy(), 0, listeners=tuple(listeners))
    rows = tuple(
        dataclasses.replace(
            item,
            probes=tuple(
                one for one in item.probes or () if (one.destination, one.port) != ("i-0", MASTER_PORT)
            ),
        )
        for item in rows
    )
    diagnosis = diagnose(rows)
    assert named(diagnosis) == [("port-in-use", "node:0")]
    assert (
        diagnosis.causes[0].summary == f"port 29500 on node 0 (n0, {address(0)}) is held by pid 7 (python3)"
    )
    assert diagnosis.causes[0].commands[0] == "sudo ss -ltnp 'sport = :29500'"


def test_missing_ranks_are_named_where_ranks_were_claimed() -> None:
    """With claimed ranks the missing one is known; without, only how many came."""
    claimed = tuple(
        dataclasses.replace(
            item,
            members={key: value for key, value in item.members.items() if key != "i-1"},
            probes=tuple(one for one in item.probes or () if one.destination != "i-1"),
        )
        for place, item in enumerate(launched())
        if place != 1
    )
    assert named(diagnose(claimed, 4)) == [("peer-missing", "node:1")]
    unclaimed = tuple(dataclasses.replace(item, rank=None, world_size=None) for item in claimed)
    assert ("peer-missing", "cluster") in named(diagnose(unclaimed, 4))


def test_too_many_members_are_a_mismatch() -> None:
    """Five members in a cluster of four."""
    assert named(diagnose(healthy(5), 4)) == [("world-size-mismatch", "cluster")]


# --- the collective --------------------------------------------------------------------------------------


def collective(rows: Reports, node: int, **changes: Any) -> Reports:
    return change(rows, node, collective=all_reduce(4, **changes))


def test_wrong_numbers_are_named_at_their_rank() -> None:
    """The known answer did not come on one rank."""
    rows = collective(healthy(4, True), 2, outcome=Verdict.FAIL, wrong_values="element 7 is 9.0, not 10.0")
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == [("collective-wrong-result", "node:2")]
    assert suspected(diagnosis) == []


def test_a_collective_of_another_size_is_a_mismatch() -> None:
    """An all_reduce over three ranks says nothing about four."""
    rows = change(healthy(4, True), 2, collective=all_reduce(3))
    assert named(diagnose(rows, stages=BOTH)) == [("world-size-mismatch", "node:2")]


def test_a_failed_collective_over_a_good_mesh_is_undetermined() -> None:
    """The text alone does not decide who failed first."""
    rows = healthy(4, True)
    for node in range(4):
        rows = collective(rows, node, outcome=Verdict.FAIL, error="Timed out waiting 15000ms for recv")
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == []
    assert suspected(diagnosis)[0] == ("peer-not-in-collective", "cluster")
    assert diagnosis.verdict is Verdict.FAIL


def test_a_failed_collective_over_a_broken_mesh_is_its_consequence() -> None:
    """The named cause stands alone; the collective follows from it."""
    rows = drops(healthy(4, True), lambda s, d, p: p != MASTER_PORT)
    for node in range(4):
        rows = collective(rows, node, outcome=Verdict.FAIL, error="Connect timeout [none]")
    diagnosis = diagnose(rows, stages=BOTH)
    assert named(diagnosis) == [("sg-only-master-port", "cluster")]
    assert [(item.id, item.subject) for item in diagnosis.consequences] == [
        ("peer-not-in-collective", "cluster")
    ]
    assert suspected(diagnosis) == []


def test_advice_stands_behind_causes_and_never_in_their_place() -> None:
    """A useless variable beside a real fault: after a cause, and no cause where none is certain."""
    certain = env(drops(healthy(), lambda s, d, p: (s, d) == (0, 1)), [0], GLOO_DEBUG="1")
    assert named(diagnose(certain)) == [("one-way-block", "pair:0>1"), ("env-no-effect", "node:0")]
    unsure = env(drops(healthy(), lambda s, d, p: True), [0], GLOO_DEBUG="1")
    diagnosis = diagnose(unsure)
    assert named(diagnosis) == []
    assert [item.id for item in diagnosis.consequences] == ["env-no-effect"]


def test_a_failed_step_explains_the_silence_of_its_node() -> None:
    """A node whose start-up failed before the mesh is not also missing."""
    failed = dataclasses.replace(
        healthy()[3],
        host=None,
        listeners=None,
        probes=None,
        members={},
        failures=(StepFailure(step="mesh", exit_status=2, output="Traceback\nboom"),),
    )
    diagnosis = diagnose((*healthy()[:3], failed), 4)
    assert named(diagnosis) == [("bootstrap-failed", "node:3")]
    assert diagnosis.causes[0].summary.endswith("ended with status 2: boom")
