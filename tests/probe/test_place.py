"""The address that a member tells the others."""

from __future__ import annotations

import pytest

from probe import place
from probe.place import own_address

INTERFACES = {
    "lo": ("127.0.0.1",),
    "ens6": ("10.99.0.7",),
    "docker0": ("172.17.0.1",),
    "tun0": ("10.8.0.2",),
    "ens7": ("169.254.3.4",),
    "down": (),
}


@pytest.mark.parametrize(
    ("interface", "expected"),
    [
        pytest.param("ens6", "10.99.0.7", id="a second network may be meant"),
        pytest.param("ens6,docker0", "10.99.0.7", id="the first one counts"),
        pytest.param("lo", None, id="loopback"),
        pytest.param("docker0", None, id="a bridge"),
        pytest.param("tun0", None, id="a tunnel"),
        pytest.param("ens7", None, id="link-local"),
        pytest.param("down", None, id="no address"),
        pytest.param("eth9", None, id="not there"),
        pytest.param("", None, id="not set"),
    ],
)
def test_the_interface_counts_where_members_can_reach_it(
    monkeypatch: pytest.MonkeyPatch, interface: str, expected: str | None
) -> None:
    """An address that only this host can use would prove a mesh of loopback; the route's is taken then."""
    monkeypatch.setattr(place, "read_interfaces", lambda: INTERFACES)
    assert own_address("127.0.0.9", interface) == (expected or "127.0.0.1")
