"""The lab's "VPC": one network namespace that routes between the nodes.

Every node has a point-to-point veth into it, named `ens5` on the node's side as on a Nitro
instance. There is no shared layer 2: the VPC namespace routes every packet, so its forward hook
sees all traffic between nodes, where nodes cannot see it, just as EC2 enforces security groups
outside the guest.

Neighbours are written, not learned: ARP's table has one limit for the whole machine (1,024
entries), which 64 nodes that talk to each other overflow.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, List, Sequence, Tuple

from lab import sandbox

NODE_INTERFACE = "ens5"
MTU_BYTES = 9001  # what EC2 gives inside a VPC
GATEWAY_MAC = "0a:ff:ff:ff:ff:01"  # the same on every link: each is a segment of its own
METADATA_ADDRESS = "169.254.169.254"
RESOLVER_ADDRESS = "169.254.169.253"
# Where the control plane appears to nodes: an address outside of every VPC, so that it counts as
# "the internet" for egress rules. TEST-NET-2 (RFC 5737) belongs to nobody.
RELAY_ADDRESS = "198.51.100.10"
RELAY_PORT = 443

_SIOCETHTOOL = 0x8946
_ETHTOOL_STSO = 0x1F
_ETHTOOL_SGSO = 0x24


@dataclass(frozen=True)
class Link:
    """One node's connection: where it hangs in the VPC and how the node sees itself.

    veth: name of the VPC's end; address: the node's private IPv4; network: its subnet.
    """

    veth: str
    address: str
    network: str
    mac: str

    @property
    def gateway(self) -> str:
        """The subnet's router, base + 1 as in EC2."""
        return str(ipaddress.IPv4Network(self.network)[1])


def veth_name(interface_id: str) -> str:
    """The VPC's end of an interface's veth: at most 15 characters, unique as the id is."""
    return "v" + interface_id.replace("eni-", "")[-14:]


def vpc_resolver_address(vpc_cidr: str) -> str:
    """The VPC's resolver, base + 2 as in EC2."""
    return str(ipaddress.IPv4Network(vpc_cidr)[2])


class Fabric:
    """The VPC namespace. Holds it by one file descriptor: closing that (or dying) removes it."""

    def __init__(self) -> None:
        self.namespace = sandbox.new_network_namespace()
        self._vpc_cidrs: Tuple[str, ...] = ()
        local = (METADATA_ADDRESS, RESOLVER_ADDRESS, RELAY_ADDRESS)
        self._ip(
            [
                "link set lo up",
                *(f"addr add {address}/32 dev lo" for address in local),
                # the internet beyond the relay does not exist, and swallows what is sent to it
                "route add blackhole default metric 4000",
            ]
        )
        # a ruleset with `ct` in it makes the kernel load what the sysctl below belongs to
        self.load_ruleset(
            "table ip boot {\nchain forward {\ntype filter hook forward priority 0; policy drop;\n"
            "ct state established accept\n}\n}\ndelete table ip boot\n"
        )
        sandbox.in_namespace(self.namespace, _set_up_router)

    def set_vpc(self, vpc_cidrs: Iterable[str]) -> None:
        """Give the VPC its ranges: an address in them that nobody holds is unreachable, as on EC2."""
        wanted = tuple(sorted(set(vpc_cidrs)))
        if wanted == self._vpc_cidrs:
            return
        commands = []
        for cidr in self._vpc_cidrs:
            commands += [f"route del unreachable {cidr}", f"addr del {vpc_resolver_address(cidr)}/32 dev lo"]
        for cidr in wanted:
            commands += [
                f"route add unreachable {cidr} metric 1000",
                f"addr add {vpc_resolver_address(cidr)}/32 dev lo",
            ]
        self._ip(commands)
        self._vpc_cidrs = wanted

    def plug(self, links: Sequence[Tuple[Link, int]]) -> None:
        """Create the veths of nodes, each with the pid (as seen here) of a process in its namespace."""
        commands: List[str] = []
        for link, pid in links:
            commands += [
                f"link add {link.veth} address {GATEWAY_MAC} mtu {MTU_BYTES} type veth "
                f"peer name {NODE_INTERFACE} address {link.mac} mtu {MTU_BYTES} netns {pid}",
                f"link set {link.veth} up",
                f"addr add {link.gateway}/32 dev {link.veth}",
                f"route add {link.address}/32 dev {link.veth}",
                f"neigh add {link.address} lladdr {link.mac} dev {link.veth} nud permanent",
            ]
        self._ip(commands)

    def unplug(self, veth: str) -> None:
        """Remove a node's link; a link that went with its node's namespace is fine."""
        try:
            self._ip([f"link del {veth}"])
        except RuntimeError as error:
            if "Cannot find device" not in str(error):
                raise

    def load_ruleset(self, script: str) -> None:
        """Swap the firewall in one transaction; connections that are tracked stay tracked."""
        sandbox.run_in(self.namespace, ["nft", "-f", "-"], script)

    def _ip(self, commands: Sequence[str]) -> None:
        if commands:
            sandbox.run_in(self.namespace, ["ip", "-batch", "-"], "\n".join(commands) + "\n")


def node_commands(link: Link) -> List[str]:
    """`ip` commands that set up a node's own end, to run inside its namespace."""
    prefix = ipaddress.IPv4Network(link.network).prefixlen
    return [
        "link set lo up",
        f"link set {NODE_INTERFACE} up",
        # noprefixroute: neighbours of the subnet are reached through the router too, see above
        f"addr add {link.address}/{prefix} broadcast + dev {NODE_INTERFACE} noprefixroute",
        f"neigh add {link.gateway} lladdr {GATEWAY_MAC} dev {NODE_INTERFACE} nud permanent",
        f"route add default via {link.gateway} dev {NODE_INTERFACE} src {link.address} onlink",
    ]


def turn_off_segmentation_offload(interface: str) -> None:
    """Make the kernel cut frames to the MTU before they leave.

    With TSO and GSO on, a veth passes frames of 64 KiB whatever its MTU, and an MTU black hole
    would not show.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for command in (_ETHTOOL_STSO, _ETHTOOL_SGSO):
            value = bytearray(struct.pack("=II", command, 0))
            address = _address_of(value)
            request = struct.pack("16sP", interface.encode(), address)
            fcntl.ioctl(handle, _SIOCETHTOOL, request)


def _address_of(buffer: bytearray) -> int:
    import ctypes  # noqa: PLC0415

    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def _set_up_router() -> None:
    """Runs inside the VPC namespace: /proc/sys/net shows the namespace of the thread that opens it."""
    for name, value in {
        "net/ipv4/ip_forward": "1",
        "net/ipv4/conf/all/send_redirects": "0",
        "net/ipv4/conf/default/send_redirects": "0",
        "net/ipv6/conf/default/disable_ipv6": "1",
        # a packet that belongs to no known connection must not start one half-way
        "net/netfilter/nf_conntrack_tcp_loose": "0",
        # "no such host" is told at once, to each of many who ask at the same time
        "net/ipv4/icmp_ratelimit": "0",
    }.items():
        path = Path("/proc/sys") / name
        if path.exists() or "ipv6" not in name:
            path.write_text(value)
