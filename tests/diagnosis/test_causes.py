"""The catalogue: complete, sound, and the page that is made from it current."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from diagnosis import docs
from diagnosis.causes import CATALOGUE, CAUSES, Cause, cause, fields_of, fill, finding

ROOT = Path(__file__).parents[2]

# The public vocabulary. New ids may come, these stay.
IDS = [
    *("sg-only-master-port", "sg-no-self-ingress", "sg-no-self-egress"),
    *("sg-missing-on-node", "sg-ports-too-narrow", "nacl-deny"),
    *("route-missing", "os-firewall-drop", "os-firewall-reject"),
    *("one-way-block", "pair-blocked", "proxy-sidecar"),
    *("efa-self-egress", "hostname-loopback", "hostname-unresolvable"),
    *("hostname-numeric", "hostname-stale-ip", "hostname-empty"),
    *("ifname-missing", "ifname-syntax", "ifname-heterogeneous"),
    *("ifname-loopback", "wrong-interface", "duplicate-address"),
    *("ipv4-ipv6-mismatch", "public-address", "master-addr-unresolvable"),
    *("master-addr-malformed", "master-addr-empty", "master-addr-not-a-member"),
    *("master-unreachable", "port-in-use", "env-missing"),
    *("env-leftover", "env-inconsistent", "world-size-mismatch"),
    *("duplicate-rank", "peer-missing", "peer-late"),
    *("stale-store", "rdzv-id-mismatch", "rdzv-host-unrecognised"),
    *("rdzv-port-blocked", "store-host-exited", "peer-died"),
    *("peer-out-of-memory", "peer-frozen", "peer-not-in-collective"),
    *("collective-mismatch", "group-mismatch", "version-mismatch"),
    *("timeout-too-short", "fd-limit", "port-exhaustion"),
    *("listen-backlog", "conntrack-exhausted", "idle-connection-dropped"),
    *("libuv-missing", "clock-skew", "mtu-black-hole"),
    *("host-unreachable", "asymmetric-interfaces", "address-overlap"),
    *("packet-loss", "bandwidth-below-baseline", "launch-failed"),
    *("bootstrap-failed", "storage-unreachable", "publish-failed"),
    *("collective-wrong-result", "env-no-effect", "transport-unsupported"),
    *("benign-ipv6-warning", "benign-retry", "benign-shutdown", "benign-success", "undetermined"),
]


def test_every_id_of_the_vocabulary_is_declared_once() -> None:
    """Ids are public: none is lost, none stands twice."""
    assert sorted(item.id for item in CAUSES) == sorted(IDS)


@pytest.mark.parametrize("item", CAUSES, ids=lambda item: item.id)
def test_a_declaration_is_sound(item: Cause) -> None:
    """Kebab-case, one sentence of remedy, known echoes that do not point back, commands a shell takes."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", item.id)
    assert item.remediation.endswith(".")
    assert item.meaning.endswith(".")
    assert not item.decided_by.endswith(".")
    assert item.seen_in
    assert item.commands or item.id.startswith("benign")
    for other in item.explains:
        assert item.id not in cause(other).explains
        assert other != item.id
    for command in fill(item.commands, {}):
        assert shlex.split(command, comments=True)
        assert "{{" not in command


def test_the_reference_page_is_current() -> None:
    """docs/causes.md is what the catalogue says now."""
    assert (ROOT / "docs" / "causes.md").read_text(encoding="utf-8") == docs.page()


def test_known_fields_are_filled_and_unknown_ones_are_looked_up() -> None:
    """A command never holds a made-up value: what is missing stands in capitals, behind its look-up."""
    templates = cause("sg-no-self-egress").commands
    assert fill(templates, {"group_id": "sg-1"}) == (
        "aws ec2 authorize-security-group-egress --group-id sg-1 --ip-permissions "
        "'IpProtocol=tcp,FromPort=0,ToPort=65535,UserIdGroupPairs=[{GroupId=sg-1}]'",
    )
    look_up, command = fill(templates, {"instance_id": "i-1", "group_id": None})
    assert look_up.startswith("aws ec2 describe-instances --instance-ids i-1 ")
    assert "--group-id GROUP_ID " in command


def test_fields_of_a_template_are_listed_in_order() -> None:
    """Braces that are doubled are text."""
    assert fields_of("a {x} '{{b}}' {y}") == ("x", "y")


def test_a_finding_carries_the_catalogues_remedy() -> None:
    """Remedy and commands come from the declaration unless they are replaced."""
    made = finding("ifname-missing", "node:1", summary="s", evidence=["e"], fields={"interface": "ens5"})
    assert made.remediation == CATALOGUE["ifname-missing"].remediation
    assert made.commands == ("ip -br address", "export GLOO_SOCKET_IFNAME=ens5")
    assert finding("ifname-missing", "node:1", summary="s", evidence=[], commands=["x"]).commands == ("x",)


def test_an_unknown_cause_is_refused() -> None:
    """Findings name causes of the catalogue only."""
    with pytest.raises(KeyError, match="no cause of the catalogue"):
        finding("sg-typo", "cluster", summary="s", evidence=[])
