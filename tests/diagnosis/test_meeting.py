"""Where a job's variables say to meet: MASTER_ADDR, torchrun's rendezvous, a store of another run."""

from __future__ import annotations

import dataclasses
import errno
from typing import Any, Dict, Optional, Sequence, Tuple

import pytest

from diagnosis.report import ConnectOutcome, Contact, Listener, Meeting, PortKind, Verdict
from tests.diagnosis.builders import (
    MASTER_PORT,
    Named,
    Reports,
    address,
    change,
    diagnose,
    drops,
    env,
    healthy,
    launched,
    moved,
    named,
    on_host,
    suspected,
)

CONNECTED, REFUSED = ConnectOutcome.CONNECTED, ConnectOutcome.REFUSED
TIMED_OUT, UNREACHABLE = ConnectOutcome.TIMED_OUT, ConnectOutcome.UNREACHABLE


def contact(
    host: str,
    addresses: Optional[Tuple[str, ...]],
    outcome: Optional[ConnectOutcome] = None,
    meeting: Meeting = Meeting.STORE,
    **changes: Any,
) -> Contact:
    made = Contact(
        meeting=meeting,
        host=host,
        port=MASTER_PORT if meeting is Meeting.STORE else 29400,
        addresses=addresses,
        address=addresses[0] if addresses and outcome else None,
        outcome=outcome,
        errno=errno.ECONNREFUSED if outcome is REFUSED else None,
    )
    return dataclasses.replace(made, **changes)


def contacting(rows: Reports, nodes: Sequence[int], *contacts: Contact) -> Reports:
    for node in nodes:
        rows = change(rows, node, contacts=(*(rows[node].contacts or ()), *contacts))
    return rows


def master(value: str, *contacts: Contact, nodes: Sequence[int] = range(4)) -> Reports:
    """A job with this MASTER_ADDR on these nodes, and what they found there."""
    return contacting(env(launched(), nodes, MASTER_ADDR=value), nodes, *contacts)


def of(cause: str, *nodes: int) -> Named:
    return [(cause, f"node:{node}") for node in nodes] or [(cause, "cluster")]


OTHER = "10.20.77.7"
MASTERS: Dict[str, Tuple[Reports, Named]] = {
    "rank 0's address": (master(address(0), contact(address(0), (address(0),), CONNECTED)), []),
    "a name of rank 0": (master("head", contact("head", (address(0),), CONNECTED)), []),
    "a name that nobody looked up": (master("head"), []),
    "a resolver that did not answer": (master("head", contact("head", None)), []),
    "an unknown name": (
        master("head", contact("head", (), error="[Errno -2] Name or service not known")),
        of("master-addr-unresolvable"),
    ),
    "unknown on one node": (
        contacting(
            contacting(
                env(launched(), range(4), MASTER_ADDR="head"), [0, 1, 3], contact("head", (address(0),))
            ),
            [2],
            contact("head", ()),
        ),
        of("master-addr-unresolvable", 2),
    ),
    "another member": (
        master(address(2), contact(address(2), (address(2),), CONNECTED)),
        of("master-addr-not-a-member"),
    ),
    "a name of another member": (
        master("n2", contact("n2", (address(2),), CONNECTED)),
        of("master-addr-not-a-member"),
    ),
    "a host that refuses": (master(OTHER, contact(OTHER, (OTHER,), REFUSED)), of("master-addr-not-a-member")),
    "a host that answers": (
        master(OTHER, contact(OTHER, (OTHER,), CONNECTED)),
        of("master-addr-not-a-member"),
    ),
    "nobody's address": (master(OTHER, contact(OTHER, (OTHER,), UNREACHABLE)), of("master-unreachable")),
    "a black hole": (master(OTHER, contact(OTHER, (OTHER,), TIMED_OUT)), of("master-unreachable")),
    "a member whose port is filtered is no missing host": (
        master(address(2), contact(address(2), (address(2),), TIMED_OUT)),
        of("master-addr-not-a-member"),
    ),
    "a public address, dead or alive": (
        master("52.94.76.10", contact("52.94.76.10", ("52.94.76.10",), TIMED_OUT)),
        of("public-address"),
    ),
    "a name with a public address": (
        master("ec2-52-94-76-10", contact("ec2-52-94-76-10", ("52.94.76.10",), TIMED_OUT)),
        of("public-address"),
    ),
    "localhost everywhere": (
        master("localhost", contact("localhost", ("::1", "127.0.0.1"), CONNECTED)),
        of("master-addr-not-a-member", 1, 2, 3),
    ),
    "127.0.0.1, and nobody looked": (master("127.0.0.1"), of("master-addr-not-a-member", 1, 2, 3)),
    "a name that is loopback on every node": (
        master("head", contact("head", ("127.0.1.1",), REFUSED)),
        of("master-addr-not-a-member", 1, 2, 3),
    ),
    "localhost on rank 0's own host": (
        contacting(
            env(launched(), [0], MASTER_ADDR="localhost"),
            [0],
            contact("localhost", ("127.0.0.1",), CONNECTED),
        ),
        [],
    ),
    "a second address of rank 0's host": (
        on_host(
            master("10.99.0.1", contact("10.99.0.1", ("10.99.0.1",), REFUSED)),
            [0],
            interfaces={"ens5": (address(0),), "ens6": ("10.99.0.1",)},
        ),
        [],
    ),
    "a second address of rank 0's host that is dead": (
        on_host(
            master("10.99.0.1", contact("10.99.0.1", ("10.99.0.1",), TIMED_OUT)),
            [0],
            interfaces={"ens5": (address(0),), "ens6": ("10.99.0.1",)},
        ),
        of("master-unreachable"),
    ),
    "one node means another member by a name": (
        contacting(env(launched(), [3], MASTER_ADDR="n1"), [3], contact("n1", (address(1),), CONNECTED)),
        of("env-inconsistent", 3),
    ),
    "names and addresses mixed, all rank 0": (
        contacting(
            env(launched(), [1, 3], MASTER_ADDR="head"), [1, 3], contact("head", (address(0),), CONNECTED)
        ),
        [],
    ),
}


@pytest.mark.parametrize("name", MASTERS)
def test_master_addr(name: str) -> None:
    """Exactly these causes; the verdict is theirs."""
    rows, expected = MASTERS[name]
    diagnosis = diagnose(rows)
    assert sorted(named(diagnosis)) == expected
    assert diagnosis.candidates == ()
    assert diagnosis.verdict is (Verdict.FAIL if expected else Verdict.PASS)


def test_ranks_of_one_host_may_call_it_localhost() -> None:
    """Loopback is rank 0's address where every rank is there."""
    rows = moved(env(launched(), range(4), MASTER_ADDR="localhost"), ["127.0.0.1"] * 4)
    assert "master-addr-not-a-member" not in [cause for cause, _ in named(diagnose(rows))]


def test_a_master_that_cannot_be_reached_is_told_with_what_was_tried() -> None:
    """The outcome stands in the evidence, and the command tries the same place."""
    (found,) = diagnose(master(OTHER, contact(OTHER, (OTHER,), UNREACHABLE))).causes
    assert f"node:0 -> {OTHER}:29500: UNREACHABLE" in found.evidence
    assert found.commands == (f"nc -zv -w 3 {OTHER} 29500",)


# --- torchrun --------------------------------------------------------------------------------------

AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "j"}


def elastic(store: ConnectOutcome, rendezvous: ConnectOutcome, nodes: Sequence[int]) -> Reports:
    """torchrun's workers: on these nodes the two places answer so, on the others both connect."""
    rows = env(launched(), range(4), **AGENT)
    for node in range(4):
        outcomes = (store, rendezvous) if node in nodes else (CONNECTED, CONNECTED)
        rows = contacting(
            rows,
            [node],
            contact(address(0), (address(0),), outcomes[0]),
            contact(address(0), (address(0),), outcomes[1], Meeting.RENDEZVOUS),
        )
    return rows


def unrecognised(**changes: Any) -> Reports:
    """The endpoint is node 0's address, and node 0's own name is something else."""
    rows = env(on_host(launched(), [0], hostname_addresses=("127.0.1.1",)), [0], GLOO_SOCKET_IFNAME="ens5")
    told = contact(address(0), (address(0),), REFUSED, Meeting.RENDEZVOUS)
    return contacting(rows, range(4), dataclasses.replace(told, **changes))


TORCHRUN: Dict[str, Tuple[Reports, Named]] = {
    "all answer": (elastic(CONNECTED, CONNECTED, []), []),
    "the store's port is dropped for all others": (
        elastic(TIMED_OUT, CONNECTED, [1, 2, 3]),
        of("rdzv-port-blocked"),
    ),
    "for one": (elastic(TIMED_OUT, CONNECTED, [2]), of("rdzv-port-blocked", 2)),
    "both ports are dropped": (elastic(TIMED_OUT, TIMED_OUT, [1, 2, 3]), []),
    "the store refuses at home, too": (elastic(REFUSED, CONNECTED, range(4)), of("store-host-exited", 0)),
    "the store refuses others only": (elastic(REFUSED, CONNECTED, [1, 2, 3]), []),
    "a store that the job itself is to start": (
        contacting(launched(), range(4), contact(address(0), (address(0),), REFUSED)),
        [],
    ),
    "one other id": (
        env(env(launched(), range(4), TORCHELASTIC_RUN_ID="a"), [2], TORCHELASTIC_RUN_ID="b"),
        of("rdzv-id-mismatch", 2),
    ),
    "ids by option": (
        env(env(launched(), [0, 1], PET_RDZV_ID="a"), [2, 3], PET_RDZV_ID="b"),
        of("rdzv-id-mismatch"),
    ),
    "an id on some": (env(launched(), [0, 1], TORCHELASTIC_RUN_ID="a"), []),
    "a host that does not know itself": (unrecognised(), of("rdzv-host-unrecognised", 0)),
    "it is served all the same": (unrecognised(outcome=CONNECTED), []),
    "a name may be the canonical one": (unrecognised(host="head"), []),
    "told by is_host": (env(unrecognised(), [0], PET_RDZV_CONF="is_host=1"), []),
    "its name resolves to the endpoint": (on_host(unrecognised(), [0], hostname_addresses=(address(0),)), []),
}


@pytest.mark.parametrize("name", TORCHRUN)
def test_torchrun(name: str) -> None:
    """Exactly these causes; what does not decide is no finding."""
    rows, expected = TORCHRUN[name]
    diagnosis = diagnose(rows)
    assert named(diagnosis) == expected
    assert diagnosis.verdict is (Verdict.FAIL if expected else Verdict.PASS)


# --- a store of another run ------------------------------------------------------------------------


def held(store_keys: Optional[int]) -> Reports:
    rows = healthy()
    listeners = rows[0].listeners or ()
    taken = Listener(
        port=MASTER_PORT,
        kind=PortKind.MASTER,
        opened=False,
        errno=errno.EADDRINUSE,
        holder="pid 7 (python)",
        store_keys=store_keys,
    )
    rows = change(rows, 0, listeners=(taken, *listeners[1:]))
    return tuple(
        dataclasses.replace(
            row, probes=tuple(p for p in row.probes or () if (p.destination, p.port) != ("i-0", 29500))
        )
        for row in rows
    )


@pytest.mark.parametrize(("keys", "cause"), [(None, "port-in-use"), (0, "stale-store"), (7, "stale-store")])
def test_a_store_that_answers_is_more_than_a_port_in_use(keys: Optional[int], cause: str) -> None:
    """torch's own store would take the new ranks in; any other process only keeps them out."""
    diagnosis = diagnose(held(keys))
    assert named(diagnosis) == [(cause, "node:0")]
    assert "pid 7 (python)" in diagnosis.causes[0].summary


def agents(nodes: int, *reaching: int) -> Reports:
    """Workers of torchrun whose ephemeral ports are all dropped; these reach the agent's store of rank 0."""
    rows = env(launched(nodes), range(nodes), **AGENT)
    for node in range(nodes):
        probes = tuple(item for item in rows[node].probes or () if item.port != MASTER_PORT)
        listeners = tuple(item for item in rows[node].listeners or () if item.port != MASTER_PORT)
        rows = change(rows, node, probes=probes, listeners=listeners)
    rows = contacting(rows, [0, *reaching], contact(address(0), (address(0),), CONNECTED))
    return drops(rows, lambda s, d, p: True)


def test_torchruns_store_is_what_answers_on_master_port() -> None:
    """No member can listen there, so the store that all of them reach proves that port open."""
    (cause,) = diagnose(agents(4, 1, 2, 3)).causes
    assert (cause.id, cause.subject) == ("sg-only-master-port", "cluster")
    assert cause.evidence[0] == f"MASTER_PORT {MASTER_PORT}: torchrun's store answers 3 other members"
    assert cause.summary.startswith(f"members reach the store on {MASTER_PORT} but not on ports 32768-60999")


def test_a_store_that_one_member_does_not_reach_decides_nothing() -> None:
    """Then that port is not proven open to all."""
    assert named(diagnose(agents(4, 1, 2))) == []


def came(count: int) -> Reports:
    """Of four, the first ones."""
    return tuple(
        dataclasses.replace(
            item,
            members={key: value for key, value in item.members.items() if int(key[2:]) < count},
            probes=tuple(one for one in item.probes or () if int(one.destination[2:]) < count),
        )
        for item in launched()[:count]
    )


def test_who_may_have_been_kept_from_the_meeting_is_not_missing() -> None:
    """Rank 0 is alone at its own port: that the others were never started is only one of two reasons."""
    diagnosis = diagnose(came(1), 4, met_on_a_port=True)
    ids = ("peer-missing", "master-unreachable")
    expected = [(cause_id, f"node:{rank}") for rank in (1, 2, 3) for cause_id in ids]
    assert (named(diagnosis), suspected(diagnosis)) == ([], expected)
    assert diagnosis.verdict is Verdict.UNKNOWN
    command = f"nc -zv -w 3 {address(0)} {MASTER_PORT}  # on a node that did not come"
    assert diagnosis.next_command == command


@pytest.mark.parametrize(("count", "on_a_port"), [(1, False), (3, True), (3, False)])
def test_who_did_not_come_to_a_place_that_works_is_missing(count: int, on_a_port: bool) -> None:
    """A place outside of the members, or one to which another host came."""
    diagnosis = diagnose(came(count), 4, met_on_a_port=on_a_port)
    assert suspected(diagnosis) == []
    assert named(diagnosis) == [("peer-missing", f"node:{rank}") for rank in range(count, 4)]
