"""Published addresses side by side: duplicates and families, and what one host's own fault explains."""

from __future__ import annotations

from typing import Dict, Tuple

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
)

SHARED = "10.20.9.200"


def publishes(rows: Reports, node: int, published: str, holder: str = "ens6") -> Reports:
    """A node whose own name is an address of another interface of its own."""
    interfaces = {"lo": ("127.0.0.1",), "ens5": (address(node),), holder: (published,)}
    return on_host(rows, [node], hostname_addresses=(published,), interfaces=interfaces)


def everywhere(holder: str, published: str) -> Reports:
    rows = healthy()
    for node in range(4):
        rows = publishes(rows, node, published, holder)
    return rows


CASES: Dict[str, Tuple[Reports, Named]] = {
    "two clones": (
        publishes(publishes(healthy(), 1, SHARED), 3, SHARED),
        [("duplicate-address", "node:1"), ("duplicate-address", "node:3")],
    ),
    "another one's own address": (
        publishes(healthy(), 1, address(2)),
        [("duplicate-address", "node:1")],
    ),
    "by the interface": (
        env(publishes(publishes(healthy(), 1, SHARED), 3, SHARED), [1, 3], GLOO_SOCKET_IFNAME="ens5"),
        [],
    ),
    "an address of one's own on another network": (publishes(healthy(), 1, SHARED), []),
    "every node's Docker bridge": (
        everywhere("docker0", "172.18.0.1"),
        [("wrong-interface", f"node:{node}") for node in range(4)],
    ),
    "one IPv6": (publishes(healthy(), 2, "fd00::2"), [("ipv4-ipv6-mismatch", "node:2")]),
    "one IPv4 among IPv6": (
        publishes(publishes(publishes(healthy(), 0, "fd00::1"), 2, "fd00::2"), 3, "fd00::3"),
        [("ipv4-ipv6-mismatch", "node:1")],
    ),
    "half and half": (
        publishes(publishes(healthy(), 2, "fd00::2"), 3, "fd00::3"),
        [("ipv4-ipv6-mismatch", "cluster")],
    ),
    "a link-local IPv6 address": (publishes(healthy(), 2, "fe80::2"), [("wrong-interface", "node:2")]),
    "all IPv6": (
        publishes(
            publishes(publishes(publishes(healthy(), 0, "fd00::1"), 1, "fd00::2"), 2, "fd00::3"), 3, "fd00::4"
        ),
        [],
    ),
    "loopback beside IPv4": (
        on_host(healthy(), [2], hostname_addresses=("::1",)),
        [("hostname-loopback", "node:2")],
    ),
    "ranks of one host": (moved(healthy(), ["10.20.1.10"] * 4), []),
}


@pytest.mark.parametrize("name", CASES)
def test_published_addresses(name: str) -> None:
    """Exactly these causes; what breaks nothing is no finding."""
    rows, expected = CASES[name]
    diagnosis = diagnose(rows)
    assert named(diagnosis) == expected
    assert diagnosis.verdict is (Verdict.FAIL if expected else Verdict.PASS)


def test_what_a_wrong_interface_explains_is_its_consequence() -> None:
    """Bridges that all have Docker's address: the duplicate is shown, and is not another cause."""
    diagnosis = diagnose(everywhere("docker0", "172.18.0.1"))
    assert [(echo.id, echo.subject) for echo in diagnosis.consequences] == [
        ("duplicate-address", f"node:{node}") for node in range(4)
    ]


def test_the_finding_says_who_publishes_it_too() -> None:
    """Both nodes with name and address, and the command with the interface that has the node's own."""
    first, _ = diagnose(publishes(publishes(healthy(), 1, SHARED), 3, SHARED)).causes
    assert first.summary == (
        "node 1 (n1, 10.20.1.11) publishes 10.20.9.200, and so does node 3 (n3, 10.20.1.13)"
    )
    assert first.commands[-1] == "export GLOO_SOCKET_IFNAME=ens5"
