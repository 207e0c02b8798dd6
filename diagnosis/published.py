"""The address that a process of a host publishes to its peers, chosen as torch and Gloo choose it.

With GLOO_SOCKET_IFNAME it is the interface's first address; without, the first address of the
host's own name that can be bound, and loopback where none can (torch's ProcessGroupGloo.cpp,
Gloo's transport/tcp/device.cc).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Optional, Union

from diagnosis.membership import is_loopback
from diagnosis.report import HostFacts

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

# Addresses and interfaces that only their own host can use: link-local, Docker's default bridge,
# bridges and tunnels of containers and VPNs.
_UNROUTABLE_NETWORKS = tuple(map(ipaddress.ip_network, ("169.254.0.0/16", "172.17.0.0/16", "fe80::/10")))
_UNROUTABLE_NAMES = re.compile(r"(docker|br-|veth|virbr|cni|flannel|cali|tun|tap|wg|tailscale|zt)")


@dataclass(frozen=True)
class Published:
    """One address. holder: the interface that has it, "" where none does; how: words on how it was chosen."""

    address: str
    holder: str
    how: str

    @property
    def version(self) -> Optional[int]:
        """4 or 6."""
        parsed = parse_address(self.address)
        return parsed.version if parsed else None


def published(host: HostFacts) -> Optional[Published]:
    """What this host publishes; None where it was not looked at, or where it cannot publish any."""
    value = interface_value(host)
    if value is not None:
        return _by_interface(host, value)
    return _by_name(host)


def interface_value(host: HostFacts) -> Optional[str]:
    """GLOO_SOCKET_IFNAME as torch takes it: a value of one character is ignored."""
    value = host.environment.get("GLOO_SOCKET_IFNAME")
    return value if value is not None and len(value) > 1 else None


def _by_interface(host: HostFacts, value: str) -> Optional[Published]:
    """Of several interfaces the first is that of the first context."""
    name = value.split(",", maxsplit=1)[0]
    addresses = (host.interfaces or {}).get(name)
    if not addresses:
        return None
    return Published(address=addresses[0], holder=name, how=f"GLOO_SOCKET_IFNAME={value}")


def _by_name(host: HostFacts) -> Optional[Published]:
    if not host.hostname or not host.hostname_addresses:
        return None
    how = f"{host.hostname} resolves to {', '.join(host.hostname_addresses)}"
    for address in host.hostname_addresses:
        holder = "lo" if is_loopback(address) else holder_of(host, address)
        if holder or host.interfaces is None:
            return Published(address=address, holder=holder, how=how)
    return None


def holder_of(host: HostFacts, address: str) -> str:
    """The interface that holds the address; "" = none does."""
    return next((name for name, found in (host.interfaces or {}).items() if address in found), "")


def only_here(address: str, interface: str) -> bool:
    """Whether the address, or its interface, is of a kind that only this host can use."""
    parsed = parse_address(address)
    return bool(_UNROUTABLE_NAMES.match(interface)) or (
        parsed is not None
        and any(parsed.version == network.version and parsed in network for network in _UNROUTABLE_NETWORKS)
    )


def parse_address(text: str) -> Optional[Address]:
    """The address without a zone; None for what is none."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
