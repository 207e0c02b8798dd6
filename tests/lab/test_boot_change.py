"""What one node finds different at its boot, and what happens between nodes: how faults get in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import enter
from tests.lab.identities import IDENTITIES, Identity
from tests.lab.test_supervisor import Lab, wait_until

pytestmark = pytest.mark.lab


@pytest.fixture(params=IDENTITIES, ids=str)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab that runs, ended by the death of its caller."""
    made = Lab(request.param)
    yield made
    made.end()


def test_a_node_can_boot_different() -> None:
    """A change for one rank: its name, its environment and a script, before its user data; of no other."""
    change = {
        "rank": 1,
        "host_name": "odd",
        "environment": {"GLOO_SOCKET_IFNAME": "lo"},
        "script": "echo changed >/etc/motd",
    }
    user_data = '#!/bin/bash\necho "$(hostname) ${GLOO_SOCKET_IFNAME-unset} $(cat /etc/motd)"\n'
    lab = Lab(Identity(), boot_changes=[change])
    try:
        nodes = lab.launch(2, user_data)
        wait_until(lambda: all(Path(node.log).read_text() for node in nodes), lab.logs)
        first, second = (Path(node.log).read_text().strip() for node in nodes)
        assert first.startswith("ip-10-42-0-4 unset ip-10-42-0-4.ec2.internal is a node of")
        assert second == "odd lo changed"
        shown = lab.run(nodes[1], "bash", "-c", "hostname; cat /etc/environment").stdout
        assert shown.startswith("odd\n")
        assert 'GLOO_SOCKET_IFNAME="lo"' in shown
    finally:
        lab.end()


def test_what_happens_between_nodes_is_seen_by_none_of_them(lab: Lab) -> None:
    """A rule in the VPC's namespace stops packets between nodes, as root and as an ordinary user."""
    first, second = lab.launch(2)
    assert lab.connects(first, second, 29500) == "refused"
    inside = enter.network_command(lab.state(), ["nft", "-f", "-"])
    if lab.who.uid is not None:
        inside = ["setpriv", f"--reuid={lab.who.uid}", f"--regid={lab.who.uid}", "--clear-groups", *inside]
    rules = (
        "table ip fault { chain c { type filter hook forward priority -10; tcp flags & syn == syn drop; }; }"
    )
    subprocess.run(inside, input=rules, text=True, check=True, timeout=20)
    assert lab.connects(first, second, 29500) == "dropped"
    assert lab.run(second, "nft", "list", "ruleset").stdout == ""
