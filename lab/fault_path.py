"""Faults of the way between nodes: narrow paths, lost packets, second interfaces, hosts that vanish."""

from __future__ import annotations

import ipaddress
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab import fabric
from lab.fault_scene import FaultError, Scene

_TABLE = "fault_path"
_NO_TABLE = f"table ip {_TABLE}\ndelete table ip {_TABLE}\n"
_VETH, _INTERFACE = "vfault0", "ens6"  # of a second interface: in the VPC, and on the node
VANISH_TIMEOUT_S = 30.0


@contextmanager
def _filtered(scene: Scene, hook: str, rules: str) -> Iterator[None]:
    """nft rules in the VPC's namespace, before the lab's own."""
    chain = f"chain path {{\ntype filter hook {hook} priority -10;\n{rules}\n}}"
    try:
        scene.on_network(["nft", "-f", "-"], f"table ip {_TABLE} {{\n{chain}\n}}\n")
        yield
    finally:
        scene.on_network(["nft", "-f", "-"], _NO_TABLE)


@dataclass(frozen=True)
class NarrowPath:
    """The last hop to one node takes packets of so many bytes, and nobody hears of it: a black hole.

    The VPC's router has the smaller MTU on its route; the ICMP message that it owes is dropped.
    """

    rank: int
    mtu_bytes: int

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        address = scene.lab.node(self.rank).address
        device = f"$(ip -o route get {address} | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p')"
        of = f"ip route change {address}/32 dev {device}"
        owed = "icmp type destination-unreachable icmp code frag-needed drop"
        try:
            scene.on_network(["bash", "-ec", f"{of} mtu lock {self.mtu_bytes}"])
            with _filtered(scene, "output", owed):
                yield
        finally:
            scene.on_network(["bash", "-ec", of])


@dataclass(frozen=True)
class DropBetween:
    """Packets of these ordered pairs that a match of nft meets are dropped between the nodes."""

    pairs: tuple[tuple[int, int], ...]
    match: str

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        rules = "\n".join(
            f"ip saddr {scene.lab.node(source).address} ip daddr {scene.lab.node(target).address} "
            f"{self.match} drop"
            for source, target in self.pairs
        )
        with _filtered(scene, "forward", rules):
            yield


@dataclass(frozen=True)
class SecondInterface:
    """A second interface in the subnet of one node, whose route to the subnet comes first.

    It carries the member groups and may send from its own address only, as any interface of EC2:
    what the node answers by it from the first one's address is dropped.
    """

    rank: int
    offset: int = 200  # of its address to the node's own

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        node = scene.lab.node(self.rank)
        own = ipaddress.ip_interface(scene.on_node(self.rank, _OWN_NETWORK).strip())
        address, gateway = own.ip + self.offset, own.network[1]
        mac = "0a:ff:ff:00:00:02"
        try:
            scene.on_network(
                ["ip", "-batch", "-"],
                f"link add {_VETH} address {fabric.GATEWAY_MAC} mtu {fabric.MTU_BYTES} type veth "
                f"peer name {_INTERFACE} address {mac} mtu {fabric.MTU_BYTES} netns {node.pid}\n"
                f"link set {_VETH} up\naddr add {gateway}/32 dev {_VETH}\n"
                f"route add {address}/32 dev {_VETH}\n"
                f"neigh add {address} lladdr {mac} dev {_VETH} nud permanent\n",
            )
            scene.on_network(["nft", "-f", "-"], _admitted(scene, str(own.ip), str(address)))
            scene.on_node(
                self.rank,
                f"ip addr add {address}/{own.network.prefixlen} dev {_INTERFACE} noprefixroute\n"
                f"ip link set {_INTERFACE} up\n"
                f"ip neigh add {gateway} lladdr {fabric.GATEWAY_MAC} dev {_INTERFACE} nud permanent\n"
                f"ip route add {own.network} via {gateway} dev {_INTERFACE} src {address} onlink\n",
            )
            yield
        finally:
            scene.on_network(["ip", "link", "del", _VETH])
            scene.on_network(["nft", "-f", "-"], _admitted(scene, str(own.ip), str(address), verb="delete"))


_OWN_NETWORK = f"ip -4 -o addr show dev {fabric.NODE_INTERFACE} | awk '{{print $4; exit}}'"


def _admitted(scene: Scene, beside: str, address: str, verb: str = "add") -> str:
    """nft commands that treat the second interface as a port of the VPC with the first one's groups."""
    found = json.loads(scene.on_network(["nft", "-j", "list", "table", "ip", "fullmesh"]))["nftables"]
    sets = [item["set"] for item in found if "set" in item]
    members = {item["name"]: item.get("elem", ()) for item in sets if item["name"].startswith("group_")}
    groups = [name for name, addresses in members.items() if beside in addresses]
    lines = [f'ports {{ "{_VETH}" }}', f'sources {{ "{_VETH}" . {address} }}']
    lines += [f"{name} {{ {address} }}" for name in groups]
    return "".join(f"{verb} element ip fullmesh {line}\n" for line in lines)


@dataclass(frozen=True)
class Vanished:
    """One node registers and is gone: nobody answers for its address, and its probe has ended.

    Members hear of it as of any address of the VPC that nobody holds, from the router.
    """

    rank: int

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        gone = scene.lab.node(self.rank).address
        others = ", ".join(node.address for node in scene.lab.nodes if node.rank != self.rank)
        stop = threading.Event()
        killed: list[bool] = []
        watcher = threading.Thread(target=self._end_probe, args=(scene, stop, killed), daemon=True)
        reject = f"ip saddr {{ {others} }} ip daddr {gone} reject with icmp type host-unreachable"
        with _filtered(scene, "forward", reject):
            watcher.start()
            try:
                yield
            finally:
                stop.set()
                watcher.join()
        if not killed:
            raise FaultError(f"node {self.rank} did not register, or its probe could not be ended")

    def _end_probe(self, scene: Scene, stop: threading.Event, killed: list[bool]) -> None:
        """Once its registration stands in the bucket, the node's probe is killed, and `killed` is told."""
        storage = scene.client("s3")
        bucket = scene.evidence("EvidenceBucket")
        mark, before = f"member~{scene.lab.node(self.rank).address}~", time.time()
        give_up_at = time.monotonic() + VANISH_TIMEOUT_S
        while not stop.is_set() and time.monotonic() < give_up_at:
            pages = storage.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="rows/")
            keys = [item for page in pages for item in page.get("Contents", ())]
            if any(mark in item["Key"] and item["LastModified"].timestamp() >= before - 1 for item in keys):
                scene.on_node(self.rank, _KILL_PROBE)
                killed.append(True)
                return
            stop.wait(0.2)


# The bracket keeps the script from finding itself.
_KILL_PROBE = """
for process in /proc/[0-9]*; do
  if tr '\\0' ' ' <$process/cmdline 2>/dev/null | grep -q 'fullmesh[.]pyz check'; then
    kill -9 ${process#/proc/} && found=yes
  fi
done
[ -n "${found-}" ]
"""
