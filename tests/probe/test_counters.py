"""Counters of the kernel and of a network card, read where they are."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from diagnosis.counters import Counters
from probe import counters
from probe.counters import CounterWatch

CHECKOUT = Path(__file__).resolve().parents[2]


def test_connections_that_find_the_queue_full_are_counted() -> None:
    """A listener that accepts nobody, with room for one: the kernel's counter moves by what it refused."""
    watch = CounterWatch("127.0.0.1")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        waiting = [socket.socket() for _ in range(8)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        grown = watch.growth().listen_overflows
        for sock in waiting:
            sock.close()
    assert grown is not None
    assert grown > 0


def test_what_a_card_counts_is_asked_of_the_kernel() -> None:
    """A veth pair counts per queue; the loopback interface counts nothing; what is none has none."""
    script = (
        "import subprocess\n"
        "subprocess.run('ip link add v0 type veth peer name v1'.split(), check=True)\n"
        "from probe.ethtool import statistics\n"
        "found = statistics('v0') or {}\n"
        "print('rx_queue_0_drops' in found, statistics('lo'), statistics('nothing'))\n"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
    )
    assert done.stdout == "True None None\n"


def test_only_the_cards_allowances_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ENA's many counters those of exceeded allowances, by how much they grew."""
    values = {"conntrack_allowance_exceeded": 5, "bw_in_allowance_exceeded": 1, "total_resets": 0}
    monkeypatch.setattr(counters, "statistics", lambda _: dict(values))
    watch = CounterWatch("127.0.0.1")
    values["conntrack_allowance_exceeded"] = 9
    assert watch.growth().allowances == {"conntrack_allowance_exceeded": 4, "bw_in_allowance_exceeded": 0}


def test_two_stages_add_up_and_what_was_not_told_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth of both; a counter that one of them could not read is not known for both."""
    monkeypatch.setattr(counters, "read_counters", lambda _: Counters(listen_overflows=3, tracked=7))
    earlier = Counters(listen_overflows=2, tracking_drops=1, tracked=9, allowances={"a": 1})
    assert CounterWatch("127.0.0.1").growth(earlier) == Counters(
        listen_overflows=2, tracking_drops=None, tracked=9, allowances={"a": 1}
    )


def test_the_tracking_tables_drops_are_summed_over_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """/proc/net/stat/nf_conntrack has a line a processor, in hexadecimal; early_drop is no drop."""
    table = "entries  drop early_drop\n00000010  0000000a 00000001\n00000010  00000002 00000001\n"
    real = counters._text
    monkeypatch.setattr(
        counters, "_text", lambda path: table if path.endswith("stat/nf_conntrack") else real(path)
    )
    assert counters.read_counters(None).tracking_drops == 12
