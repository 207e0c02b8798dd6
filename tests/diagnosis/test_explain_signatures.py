"""Messages and what they mean, one line each; the words that let a line be looked at."""

from __future__ import annotations

import io
import itertools
from typing import Dict

import pytest

from diagnosis.logs.address import wrong_syntax
from diagnosis.logs.facts import Book
from diagnosis.logs.files import read_streams
from diagnosis.logs.kinds import Kind
from diagnosis.logs.needles import Needles
from diagnosis.logs.rendezvous import malformed
from diagnosis.logs.signatures import all_signatures, all_triggers, read_text, shows_progress


def test_every_trigger_is_found_in_a_long_text() -> None:
    """The expression that looks for all literals at once misses none, wherever it stands."""
    needles = Needles(trigger.needle for trigger in all_triggers())
    filler = b"the quick brown fox jumps over the lazy dog \n" * 1000
    for trigger in all_triggers():
        assert trigger.needle in needles.present(filler + trigger.needle + filler), trigger.literal


def test_a_literal_does_not_hide_the_one_it_overlaps() -> None:
    """Literals that share characters are both found."""
    literals = [trigger.needle for trigger in all_triggers()]
    needles = Needles(literals)
    filler = b"the quick brown fox " * 900
    for one, other in itertools.permutations(literals, 2):
        shared = next((size for size in range(len(one), 1, -1) if other.startswith(one[-size:])), 0)
        if shared:
            assert {one, other} <= needles.present(filler + one + other[shared:]), (one, other)


MESSAGES = [
    (
        "timed out connecting: SO_ERROR: Connection refused, remote=[10.0.0.1]:1$0",
        Kind.PAIR_ERROR,
        {"error": "Connection refused", "ip": "10.0.0.1", "port": "1"},
    ),
    (
        "[pair.cc:724] connect [fe80::1]:3210: No route to host",
        Kind.PAIR_ERROR,
        {"error": "No route to host", "ip": "fe80::1", "port": "3210"},
    ),
    ("[pair.h:311] Connect timeout [none]", Kind.PAIR_TIMEOUT, {"ip": "none"}),
    ("write: Transport endpoint is not connected, remote=[none]", Kind.PAIR_HIDDEN, {}),
    (
        "Timed out waiting 15000ms for send operation to complete",
        Kind.OPERATION_TIMEOUT,
        {"ms": "15000", "side": "send"},
    ),
    (
        "The client socket has failed to connect to [::ffff:10.0.0.1]:1234 (errno: 113 - No route to host).",
        Kind.STORE_ERRNO,
        {"host": "::ffff:10.0.0.1", "port": "1234", "errno": "113", "error": "No route to host"},
    ),
    (
        "No socket on (node-a, 29500) is listening yet, will retry.",
        Kind.STORE_ERRNO,
        {"host": "node-a", "port": "29500", "errno": "111"},
    ),
    (
        "The IPv4 network addresses of ( a , 1) cannot be retrieved (gai error: -3 - Temporary failure).",
        Kind.STORE_GAI,
        {"host": " a ", "port": "1", "code": "-3"},
    ),
    (
        "Timed out after 6 seconds waiting for workers. 1/2 workers joined.",
        Kind.STORE_JOINED,
        {"after": "6", "joined": "1", "size": "2"},
    ),
    (
        "port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
        Kind.PORT_TAKEN,
        {"port": "29500"},
    ),
    ("RuntimeError: use_libuv was requested but PyTorch was built without libuv support", Kind.LIBUV, {}),
    ("[enforce fail at device.cc:9] rv == 0. -2 vs 0. ", Kind.NAME_FAILED, {"code": "-2"}),
    (
        "recvValue failed on SocketImpl(fd=3, addr=[a]:1, remote=[b]:2): Connection reset by peer",
        Kind.STORE_RESET,
        {},
    ),
    (
        "Read error [10.0.0.1]:1462: Connection reset by peer.",
        Kind.PEER_RESET,
        {"ip": "10.0.0.1", "port": "1462"},
    ),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", Kind.MEMORY, {}),
    (
        "WARNING config has no run_id, generated a random run_id: 17458",
        Kind.RUN_ID,
        {"random": "yes", "value": "17458"},
    ),
    (
        "The server socket cannot be initialized on [::]:1 (errno: 97 - Address family not supported).",
        Kind.NOISE,
        {"about": "ipv6"},
    ),
    ("ValueError: bad batch", Kind.OTHER_ERROR, {"name": "ValueError", "text": "bad batch"}),
]


@pytest.mark.parametrize(
    ("text", "kind", "values"), MESSAGES, ids=lambda item: item if isinstance(item, str) else ""
)
def test_a_message_means_this(text: str, kind: Kind, values: Dict[str, str]) -> None:
    """Exactly this fact, with exactly these values, whatever prefix stands before it."""
    alone = Book()
    read_streams(alone, [("log", io.BytesIO(text.encode()))])
    assert [(fact.kind, fact.values) for fact in alone.all(*Kind)] == [(kind, values)]
    for prefix in ("[rank0]:[E1130 22:31:44.8 a.cpp:67] [c10d] ", "(Worker pid=1, ip=10.0.0.4) "):
        signatures = [item for item in all_signatures() if item.trigger in text]
        found = [match for match in read_text(prefix + text, signatures) if match[0] is not Kind.MESH_FAILED]
        assert [(match[0], match[1]) for match in found] == [(kind, values)]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("ens5", False),
        ("eth0", False),
        ("ib0", False),
        ("bond0.100", False),
        ("docker0", False),
        ("^lo", True),
        ("=eth0", True),
        ("eth", True),
        ("10.0.0.4", True),
        ("10.0.0.0/24", True),
        (" eth1", True),
        ("", True),
        ("a-name-of-sixteen", True),
        ("'eth0'", True),
    ],
)
def test_names_of_interfaces(name: str, wrong: bool) -> None:
    """An exact name may be missing; anything else is wrong by itself."""
    assert bool(wrong_syntax(name)) is wrong


@pytest.mark.parametrize(
    ("host", "wrong"),
    [
        ("10.0.0.14", False),
        ("node_a", False),
        ("ip-10-0-0-4.ec2.internal", False),
        ("fe80::1", False),
        (" 10.0.0.14", True),
        ("10.0.0.256", True),
        ("10.0.0.4:29500", True),
        ("tcp://10.0.0.4", True),
        ("[10.0.0.4]", True),
        ("__internal_head__", True),
        ("${MASTER_ADDR}", True),
        ("None", True),
    ],
)
def test_hosts_of_the_store(host: str, wrong: bool) -> None:
    """What can be no host is told from what merely does not resolve."""
    assert bool(malformed(host)) is wrong


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ("Epoch 3 | step 120 | loss 2.31", True),
        ("Training completed", True),
        ("Rank 0 is connected to 3 peer ranks.", True),
        ("process group initialized", True),
        ("failed to start training", False),
        ("process group not initialized", False),
        ("loading checkpoint shards", False),
        ("Rank 0 is connected to 0 peer ranks.", False),
    ],
)
def test_progress_is_work_after_the_ranks_met(line: str, shows: bool) -> None:
    """Loading is no progress, and a denial is none."""
    assert shows_progress(line) is shows
