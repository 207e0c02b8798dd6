"""Links, routes and neighbours as the kernel of a namespace of our own tells them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probe.netlink import next_hop, read_links

CHECKOUT = Path(__file__).resolve().parents[2]
WORLD = """
import dataclasses, json, socket, subprocess
for line in '''link set lo up
link add docker0 type bridge
addr add 10.20.0.1/24 dev docker0
link set docker0 up
link add ens5 type veth peer name p5
link add ens6 type veth peer name p6
link set p5 up
link set p6 up
addr add 10.20.64.4/18 dev ens5 noprefixroute
addr add 10.20.64.104/18 dev ens6 noprefixroute
link set ens5 up
link set ens6 up
neigh add 10.20.64.1 lladdr 0a:ff:ff:ff:ff:01 dev ens5 nud permanent
route add default via 10.20.64.1 dev ens5 onlink
route add 10.20.65.0/24 dev ens6
neigh add 10.20.64.1 lladdr 0a:ff:ff:ff:ff:01 dev ens6 nud permanent
route add 10.20.66.0/24 dev ens5
route add unreachable 10.99.0.0/16
route add blackhole 10.98.0.0/16
rule add from 10.20.64.104 lookup 7
route add default via 10.20.64.1 dev ens6 onlink table 7'''.splitlines():
    subprocess.run(["ip", *line.split()], check=True)
from probe.netlink import next_hop, read_links, unanswered
from probe.routes import link_silent, read_routes
with socket.socket() as sock:
    sock.settimeout(0.3)
    try: sock.connect(("10.20.66.9", 9))
    except OSError: pass
hop = lambda *a: [next_hop(*a).interface, next_hop(*a).address]
links = read_links()
print(json.dumps({
    "kinds": {name: links.kinds[name] for name in ("lo", "docker0", "ens5")},
    "networks": {name: links.networks[name][0] for name in ("lo", "docker0", "ens5", "ens6")},
    "hops": [hop("10.20.64.9"), hop("10.20.0.7"), hop("10.20.65.9"), hop("10.99.1.1"), hop("10.98.1.1"),
             hop("10.20.64.9", "10.20.64.104"), hop("10.20.64.9", "10.1.1.1")],
    "silent": [link_silent(a) for a in ("10.20.66.9", "10.20.65.9", "10.20.0.7", "10.99.1.1")],
    "routes": {peer: dataclasses.astuple(route) for peer, route in
               read_routes("10.20.64.104", ["10.20.64.104", "10.20.64.9", "10.99.1.1"]).items()},
}))
"""


@pytest.fixture(scope="module")
def told() -> Any:
    """What the probe reads in a namespace with a bridge, two interfaces and policy routing."""
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", WORLD],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@pytest.mark.lab
def test_links_with_their_kinds_and_networks(told: Any) -> None:
    """A bridge is told from a device; an address comes with its prefix."""
    assert told["kinds"] == {"lo": "", "docker0": "bridge", "ens5": "veth"}
    assert told["networks"] == {
        "lo": "127.0.0.1/8",
        "docker0": "10.20.0.1/24",
        "ens5": "10.20.64.4/18",
        "ens6": "10.20.64.104/18",
    }


@pytest.mark.lab
def test_next_hops(told: Any) -> None:
    """By the gateway, into a bridge, on a link, to nowhere, by the source's rule, from a foreign source."""
    assert told["hops"] == [
        ["ens5", "10.20.64.1"],
        ["docker0", "10.20.0.7"],
        ["ens6", "10.20.65.9"],
        ["", ""],
        ["", ""],
        ["ens6", "10.20.64.1"],
        ["", ""],
    ]


@pytest.mark.lab
def test_a_link_that_was_asked_in_vain(told: Any) -> None:
    """The neighbour that nobody is; one behind a known router; one never asked for; none at all."""
    assert told["silent"] == [True, False, None, None]


@pytest.mark.lab
def test_routes_of_openings_and_of_answers(told: Any) -> None:
    """New connections go by the main table, answers by that of the member address; this host is left out."""
    assert told["routes"] == {"10.20.64.9": ["ens5", "ens6"], "10.99.1.1": ["", "ens6"]}


def test_this_hosts_own_loopback() -> None:
    """Without a namespace of its own: lo has 127.0.0.1/8, and leads to itself."""
    assert "127.0.0.1/8" in read_links().networks["lo"]
    assert next_hop("127.0.0.1").interface == "lo"
