"""Faults of names and interfaces: what a node publishes as its address."""

from __future__ import annotations

from collections.abc import Sequence

from lab.fault import Fault
from lab.fault_host import HostName, Launch, OnNode, Together

NODE_RANKS = range(4)  # of the cluster that these faults are declared for


def own_name(rank: int, address: str, interface: str = "") -> OnNode:
    """A node's own name is this address in its /etc/hosts. interface: shell that provides it first."""
    return OnNode(
        rank=rank,
        script=f'{interface}\necho "{address} $(hostname)" >>/etc/hosts',
        undo=f"sed -i '/^{address} /d' /etc/hosts\n{_GONE}",
    )


def interface_name(value: str, ranks: Sequence[int] = (2,)) -> Launch:
    """A job whose launcher gives these nodes this GLOO_SOCKET_IFNAME."""
    return Launch(changes={rank: {"GLOO_SOCKET_IFNAME": value} for rank in ranks})


def _with_address(address: str, name: str, kind: str = "bridge") -> str:
    """Shell that makes an interface; a VPN's is a veth under its name, for a node has no /dev/net/tun."""
    peer = " peer name fault-peer" if kind == "veth" else ""
    return f"ip link add {name} type {kind}{peer}; ip addr add {address} dev {name}; ip link set {name} up"


_GONE = "ip link del docker0 2>/dev/null || true; ip link del tun0 2>/dev/null || true"
_DOCKER = _with_address("172.17.0.1/16", "docker0")
_VPN = _with_address("10.8.0.2/24", "tun0", "veth")
_SHARED = "10.20.250.250"  # of no node, and routable by its looks

# The link goes down for its new name, and routes and neighbours with it.
_RENAME = """
routes=$(ip route show default); neighbours=$(ip neigh show dev {old} nud permanent)
ip link set {old} down; ip link set {old} name {new}; ip link set {new} up
echo "$neighbours" | while read -r a _ mac _; do ip neigh replace $a lladdr $mac dev {new} nud permanent; done
ip route add ${routes//{old}/{new}}
"""


def _renamed(old: str, new: str) -> str:
    return _RENAME.replace("{old}", old).replace("{new}", new)


FAULTS: tuple[Fault, ...] = (
    Fault(
        id="hostname-loopback",
        title="node 2's own name is 127.0.1.1 in its /etc/hosts",
        expected=(("hostname-loopback", "node:2"),),
        injection=own_name(2, "127.0.1.1"),
        at_boot=True,
        collective=True,
    ),
    Fault(
        id="hostname-unresolvable",
        title="node 2 has a host name that no resolver knows",
        expected=(("hostname-unresolvable", "node:2"),),
        injection=HostName(rank=2, name="renamed-by-hand"),
    ),
    Fault(
        id="hostname-numeric",
        title="node 2's host name is 7, which reads as the address 0.0.0.7",
        expected=(("hostname-numeric", "node:2"),),
        injection=HostName(rank=2, name="7"),
    ),
    Fault(
        id="hostname-stale-ip",
        title="node 2's own name is a former address in its /etc/hosts",
        expected=(("hostname-stale-ip", "node:2"),),
        injection=own_name(2, "10.20.9.9"),
        at_boot=True,
    ),
    Fault(
        id="hostname-empty",
        title="node 2's host name is blank",
        expected=(("hostname-empty", "node:2"),),
        injection=HostName(rank=2, name=""),
    ),
    Fault(
        id="ifname-missing",
        title="the launcher gives node 2 GLOO_SOCKET_IFNAME=eth0, and there is none",
        expected=(("ifname-missing", "node:2"),),
        injection=interface_name("eth0"),
    ),
    Fault(
        id="ifname-missing-no-address",
        title="the launcher gives node 1 an interface that has no address",
        expected=(("ifname-missing", "node:1"),),
        injection=Together(
            parts=(
                OnNode(rank=1, script="ip link add docker0 type bridge", undo=_GONE),
                interface_name("docker0", [1]),
            )
        ),
    ),
    Fault(
        id="ifname-syntax",
        title="the launcher gives node 2 GLOO_SOCKET_IFNAME=^lo,docker0, as NCCL would take it",
        expected=(("ifname-syntax", "node:2"),),
        injection=interface_name("^lo,docker0"),
    ),
    Fault(
        id="ifname-syntax-prefix",
        title="the launcher gives every node GLOO_SOCKET_IFNAME=ens, as NCCL would take it",
        expected=tuple(("ifname-syntax", f"node:{rank}") for rank in NODE_RANKS),
        injection=interface_name("ens", NODE_RANKS),
    ),
    Fault(
        id="ifname-syntax-address",
        title="the launcher gives node 1 its address as GLOO_SOCKET_IFNAME",
        expected=(("ifname-syntax", "node:1"),),
        injection=interface_name("{address1}", [1]),
    ),
    Fault(
        id="ifname-heterogeneous",
        title="the launcher gives every node GLOO_SOCKET_IFNAME=ens5, and node 2's is called enX0",
        expected=(("ifname-heterogeneous", "cluster"),),
        injection=Together(
            parts=(
                OnNode(rank=2, script=_renamed("ens5", "enX0"), undo=_renamed("enX0", "ens5")),
                interface_name("ens5", NODE_RANKS),
            )
        ),
    ),
    Fault(
        id="ifname-loopback",
        title="the launcher gives every node GLOO_SOCKET_IFNAME=lo",
        expected=tuple(("ifname-loopback", f"node:{rank}") for rank in NODE_RANKS),
        injection=interface_name("lo", NODE_RANKS),
    ),
    Fault(
        id="wrong-interface",
        title="node 2's own name is the address of its Docker bridge",
        expected=(("wrong-interface", "node:2"),),
        injection=own_name(2, "172.17.0.1", _DOCKER),
        at_boot=True,
    ),
    Fault(
        id="wrong-interface-docker-everywhere",
        title="the launcher gives every node GLOO_SOCKET_IFNAME=docker0, and all bridges have one address",
        expected=tuple(("wrong-interface", f"node:{rank}") for rank in NODE_RANKS),
        injection=Together(
            parts=(
                *(OnNode(rank=rank, script=_DOCKER, undo=_GONE) for rank in NODE_RANKS),
                interface_name("docker0", NODE_RANKS),
            )
        ),
    ),
    Fault(
        id="wrong-interface-vpn",
        title="node 1's own name is the address of its VPN tunnel",
        expected=(("wrong-interface", "node:1"),),
        injection=own_name(1, "10.8.0.2", _VPN),
    ),
    Fault(
        id="wrong-interface-link-local",
        title="node 3's own name is a link-local address that its interface has, too",
        expected=(("wrong-interface", "node:3"),),
        injection=OnNode(
            rank=3,
            script='ip addr add 169.254.77.7/32 dev ens5; echo "169.254.77.7 $(hostname)" >>/etc/hosts',
            undo="ip addr del 169.254.77.7/32 dev ens5; sed -i '/^169.254.77.7 /d' /etc/hosts",
        ),
    ),
    Fault(
        id="duplicate-address",
        title="nodes 1 and 2, cloned from one image, both call one address their own",
        expected=(("duplicate-address", "node:1"), ("duplicate-address", "node:2")),
        injection=Together(
            parts=tuple(
                OnNode(
                    rank=rank,
                    script=f'ip addr add {_SHARED}/32 dev lo; echo "{_SHARED} $(hostname)" >>/etc/hosts',
                    undo=f"ip addr del {_SHARED}/32 dev lo; sed -i '/^{_SHARED} /d' /etc/hosts",
                )
                for rank in (1, 2)
            )
        ),
    ),
    Fault(
        id="ipv4-ipv6-mismatch",
        title="node 2's own name is an IPv6 address, the others' are IPv4",
        expected=(("ipv4-ipv6-mismatch", "node:2"),),
        injection=OnNode(
            rank=2,
            script='ip addr add fd00:20::2/64 dev ens5 nodad; echo "fd00:20::2 $(hostname)" >>/etc/hosts',
            undo="ip addr del fd00:20::2/64 dev ens5; sed -i '/^fd00:20::2 /d' /etc/hosts",
        ),
    ),
    Fault(
        id="public-address",
        title="the launcher gives every node a public address of node 0 as MASTER_ADDR",
        expected=(("public-address", "cluster"),),
        injection=Launch(changes={rank: {"MASTER_ADDR": "52.94.76.10"} for rank in NODE_RANKS}),
    ),
)
