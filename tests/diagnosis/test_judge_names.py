"""Causes of host names and of GLOO_SOCKET_IFNAME, each at exactly its subject."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest

from diagnosis.report import Verdict
from tests.diagnosis.builders import (
    Named,
    Reports,
    address,
    diagnose,
    env,
    healthy,
    moved,
    named,
    on_host,
    suspected,
)


def two_nics(*addresses: str) -> Dict[str, Tuple[str, ...]]:
    return {"lo": ("127.0.0.1",), "ens5": (address(2),), "docker0": addresses or ("172.17.0.1",)}


NAMES: Dict[str, Tuple[Reports, Named]] = {
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
    "a list of good names": (env(healthy(), range(4), GLOO_SOCKET_IFNAME="ens5,ens5"), []),
    "lo on every node": (
        env(healthy(2), range(2), GLOO_SOCKET_IFNAME="lo"),
        [("ifname-loopback", "node:0"), ("ifname-loopback", "node:1")],
    ),
    "one name for unlike nodes": (
        env(on_host(healthy(), [3], interfaces={"eth0": (address(3),)}), range(4), GLOO_SOCKET_IFNAME="ens5"),
        [("ifname-heterogeneous", "cluster")],
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_judged_at_its_subject(name: str) -> None:
    """Exactly these causes and no candidates; what breaks nothing is no finding."""
    rows, expected = NAMES[name]
    diagnosis = diagnose(rows)
    assert named(diagnosis) == expected
    assert suspected(diagnosis) == []
    assert diagnosis.verdict is (Verdict.FAIL if expected else Verdict.PASS)


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
