"""Faults of the way between two members that is open and does not carry what it should."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import OnNode
from lab.fault_path import DropBetween, NarrowPath, SecondInterface, Vanished

# The VPC's resolver has an address of the first subnet; EC2 offers the other one for such cases.
_OTHER_RESOLVER = (
    "cp /etc/resolv.conf /run/resolv.kept\n"
    "sed -i 's/^nameserver .*/nameserver 169.254.169.253/' /etc/resolv.conf\n",
    "cat /run/resolv.kept >/etc/resolv.conf\n",
)

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="mtu-black-hole",
        title="the way to node 2 takes 1,500 bytes, its packets have 9,001, and ICMP is dropped",
        expected=(("mtu-black-hole", "node:2"),),
        injection=NarrowPath(rank=2, mtu_bytes=1500),
    ),
    Fault(
        id="mtu-black-hole-pair",
        title="between nodes 1 and 3 packets of more than 1,500 bytes vanish",
        expected=(("mtu-black-hole", "pair:1>3"),),
        injection=DropBetween(pairs=((1, 3), (3, 1)), match="ip length > 1500"),
    ),
    Fault(
        id="packet-loss",
        title="every twentieth packet to and from node 2 is lost",
        expected=(("packet-loss", "node:2"),),
        injection=DropBetween(
            pairs=tuple((a, b) for a in range(4) for b in range(4) if a != b and 2 in (a, b)),
            match="numgen random mod 100 < 5",
        ),
    ),
    Fault(
        id="packet-loss-pair",
        title="every twentieth packet between nodes 0 and 3 is lost",
        expected=(("packet-loss", "pair:0>3"),),
        injection=DropBetween(pairs=((0, 3), (3, 0)), match="numgen random mod 100 < 5"),
    ),
    Fault(
        id="host-unreachable",
        title="node 3 registers and is gone from the network",
        expected=(("host-unreachable", "node:3"),),
        injection=Vanished(rank=3),
        deadline_s=24.0,
        start_after_s={0: 4.0, 1: 4.0, 2: 4.0},
    ),
    Fault(
        id="asymmetric-interfaces",
        title="node 2 has a second interface in its subnet, and answers leave by it",
        expected=(("asymmetric-interfaces", "node:2"),),
        injection=SecondInterface(rank=2),
    ),
    Fault(
        id="address-overlap",
        title="the Docker bridge of node 2 covers the addresses of nodes 0 and 1",
        expected=(("address-overlap", "node:2"),),
        injection=OnNode(
            rank=2,
            script=f"{_OTHER_RESOLVER[0]}ip link add docker0 type bridge; ip link set docker0 up\n"
            "ip addr add {network0}.1/24 dev docker0",
            undo=f"ip link del docker0\n{_OTHER_RESOLVER[1]}",
        ),
    ),
    Fault(
        id="route-missing-elsewhere",
        title="a VPN on node 2 takes the packets to nodes 0 and 1",
        expected=(("route-missing", "node:2"),),
        injection=OnNode(
            rank=2,
            script=f"{_OTHER_RESOLVER[0]}ip link add tun0 type veth peer name fault-peer\n"
            "ip link set fault-peer up; ip addr add 10.8.0.2/24 dev tun0; ip link set tun0 up\n"
            "ip route add {network0}.0/24 dev tun0",
            undo=f"ip link del tun0\n{_OTHER_RESOLVER[1]}",
        ),
    ),
)
