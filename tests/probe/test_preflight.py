"""What this host tells about itself, against what the system's own tools say."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from cluster.ports import PortRange
from probe import preflight
from probe.interfaces import interface_of, read_interfaces, read_mtu
from probe.netfilter import Firewall, read_firewall

CHECKOUT = Path(__file__).resolve().parents[2]


def test_interfaces_are_those_that_ip_lists() -> None:
    """Names, addresses and MTU are exactly those of `ip -json address`."""
    listed = json.loads(subprocess.run(["ip", "-json", "address"], capture_output=True, check=True).stdout)
    found = read_interfaces()
    assert {name: set(addresses) for name, addresses in found.items()} == {
        item["ifname"]: {info["local"] for info in item["addr_info"]} for item in listed
    }
    assert {name: read_mtu(name) for name in found} == {item["ifname"]: item["mtu"] for item in listed}


def test_the_interface_of_an_address() -> None:
    """An address belongs to the interface that holds it, 127.0.0.0/8 to lo, a foreign one to none."""
    interfaces = {"lo": ("127.0.0.1", "::1"), "ens5": ("10.0.0.4", "fe80::1")}
    assert [interface_of(a, interfaces) for a in ("10.0.0.4", "127.0.0.9", "fe80::1", "10.0.0.5")] == [
        "ens5",
        "lo",
        "ens5",
        None,
    ]


def test_host_facts_of_this_machine() -> None:
    """Every fact that this machine can tell is told."""
    facts = preflight.read_host_facts("127.0.0.1", {"RANK": "3", "HOME": "/root"})
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert facts.hostname == socket.gethostname()
    assert (facts.interface, facts.mtu) == ("lo", read_mtu("lo"))
    assert facts.local_port_range == PortRange(int(low), int(high))
    assert facts.somaxconn == int(Path("/proc/sys/net/core/somaxconn").read_text())
    assert facts.environment == {"RANK": "3"}
    assert facts.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts.versions["torch"] == version("torch")
    assert (facts.firewall_rules is None) == (facts.firewall_error is not None)


def test_ports_that_could_not_be_counted_are_not_none_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener's port counts; without the kernel's table of sockets, or a range, the number is unknown."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(preflight, "read_local_port_range", lambda: PortRange(port, port))
        assert preflight._local_ports_held() == 1
        monkeypatch.setattr(preflight, "_SOCKETS", "/nonexistent")
        assert preflight._local_ports_held() is None
        monkeypatch.undo()
        monkeypatch.setattr(preflight, "read_local_port_range", lambda: None)
        assert preflight._local_ports_held() is None


def test_secrets_are_never_told() -> None:
    """Of a variable that looks secret only the name is kept, and passwords in URLs are cut out."""
    environ = {
        "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY": "/etc/key.pem",
        "TORCH_API_TOKEN": "t0k3n",
        "TORCH_TLS_PASSPHRASE": "open sesame",
        "HOROVOD_DSN": "db://secret",
        "PET_RDZV_ENDPOINT": "etcd://user:pw@10.0.0.9:2379",
        "AWS_SECRET_ACCESS_KEY": "never",
        "GLOO_SOCKET_IFNAME": "ens5",
    }
    assert preflight.distributed_environment(environ) == {
        "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY": preflight.HIDDEN,
        "TORCH_API_TOKEN": preflight.HIDDEN,
        "TORCH_TLS_PASSPHRASE": preflight.HIDDEN,
        "HOROVOD_DSN": preflight.HIDDEN,
        "PET_RDZV_ENDPOINT": "etcd://***@10.0.0.9:2379",
        "GLOO_SOCKET_IFNAME": "ens5",
    }


def test_resolving() -> None:
    """A name resolves to its addresses in order; one that does not gives () and the resolver's words."""
    assert preflight.resolve("127.0.1.1") == (("127.0.1.1",), None)
    addresses, error = preflight.resolve("no-such-host.invalid")
    assert addresses == ()
    assert error is not None


def test_a_resolver_that_hangs_is_not_an_empty_answer() -> None:
    """Without an answer in time the addresses are unknown, not none."""
    assert preflight.resolve("127.0.0.1", timeout_s=0) in (
        (None, "no answer for '127.0.0.1' within 0 s"),
        (("127.0.0.1",), None),  # the thread was faster
    )


FIREWALLS = """
import json, subprocess
from probe import netfilter
def seen():
    firewall = netfilter.read_firewall()
    return [list(netfilter.nf_tables()), firewall.rules, firewall.error]
answers = [seen()]
rules = "table inet filter { chain input { type filter hook input priority 0; policy drop; }; }"
subprocess.run(["nft", rules], check=True)
answers.append(seen())
netfilter._search_path = lambda: "/nonexistent"
answers.append(seen())
print(json.dumps(answers))
"""


@pytest.mark.lab
def test_no_rules_is_proven_and_unreadable_rules_are_unknown() -> None:
    """An empty namespace is proven empty; rules are shown; rules without a tool to print them are unknown."""
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", FIREWALLS],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    empty, ruled, blind = json.loads(done.stdout)
    assert empty == [[], "", None]
    assert " # handle " in ruled[1]  # which a remedy names
    assert [ruled[0], re.sub(r" # handle \d+", "", ruled[1]), ruled[2]] == [
        ["inet filter"],
        "table inet filter {\n\tchain input {\n"
        "\t\ttype filter hook input priority filter; policy drop;\n\t}\n}",
        None,
    ]
    assert blind == [
        ["inet filter"],
        None,
        "nf_tables holds inet filter, but nft is not installed, so its rules are unknown",
    ]


IPTABLES_ONLY = """
import json, subprocess, sys
from probe import netfilter
subprocess.run(["nft", "table ip filter { chain INPUT { type filter hook input priority 0; }; }"], check=True)
answers = []
for folder in sys.argv[1:]:
    netfilter._search_path = lambda: folder
    firewall = netfilter.read_firewall()
    answers.append([firewall.rules, firewall.error])
print(json.dumps(answers))
"""
# As iptables-save 1.8.9 answers -V, and what it prints of a table with one rule.
IPTABLES_SAVE = """\
#!/bin/sh
if [ "$1" = -V ]; then echo 'iptables-save v1.8.9 (KIND)'; exit; fi
printf '*filter\\n:INPUT ACCEPT [0:0]\\n-A INPUT -p tcp -j DROP\\nCOMMIT\\n'
"""


@pytest.mark.lab
def test_what_iptables_made_is_read_without_nft_and_is_a_part(tmp_path: Path) -> None:
    """Docker's tables are shown by iptables' own tool, with the error that makes them partial."""
    folders = []
    for kind in ("nf_tables", "legacy"):
        tool = tmp_path / kind / "iptables-save"
        tool.parent.mkdir()
        tool.write_text(IPTABLES_SAVE.replace("KIND", kind))
        tool.chmod(0o755)
        folders.append(str(tool.parent))
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", IPTABLES_ONLY, *folders],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    through_nft, legacy = json.loads(done.stdout)
    assert through_nft == [
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -j DROP\nCOMMIT",
        "nf_tables holds ip filter, but nft is not installed: only what iptables made was read",
    ]
    assert legacy == [
        None,
        "nf_tables holds ip filter, but nft is not installed, so its rules are unknown",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to lose its rights")
def test_without_rights_the_firewall_is_unknown() -> None:
    """An ordinary user may not list rules: unknown with the reason, never empty."""
    script = "from probe.netfilter import read_firewall as r; f = r(); print(f.rules, '|', f.error)"
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    done = subprocess.run(
        [*command, "/usr/bin/python3", "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("None | nf_tables: Operation not permitted (needs root)")


def test_this_process_reads_a_firewall_or_says_why_not() -> None:
    """Rules and error are never both None."""
    assert read_firewall() != Firewall(rules=None, error=None)
