"""The lab's own nodes behind the lab's own wall, with nothing else: no control plane, no user data.

For measurements that need the wall, names and addresses only. Lives inside `bench.contained`:
everything it makes ends with that process.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from cluster.ports import PortRange
from cluster.rules import SecurityGroupRule, SourceKind
from cluster.snapshot import ClusterSnapshot, Interface, SecurityGroup, Subnet, Table, Vpc
from lab import fabric, firewall, image, node
from tools import build_pyz

SCRIPTS = "/opt/bench"  # this folder, inside a node
PYZ = "/opt/fullmesh/fullmesh.pyz"  # the probe as nodes fetch it
MASTER_PORT = 29500
VPC_CIDR = "10.42.0.0/16"
SUBNET_CIDR = "10.42.0.0/20"
FIRST_HOST = 4  # EC2 keeps the first four addresses of a subnet
VPC_ID, SUBNET_ID, GROUP_ID = "vpc-0", "subnet-0", "sg-0"
DOMAIN = "ec2.internal"


class Arena:
    """`nodes` instances in one subnet and one security group, which opens nothing to begin with.

    Nodes know each other's names from /etc/hosts, so that neither a resolver nor a loopback
    name is part of what is measured.
    """

    def __init__(self, nodes: int) -> None:
        self.addresses = tuple(
            str(ipaddress.IPv4Network(SUBNET_CIDR)[FIRST_HOST + rank]) for rank in range(nodes)
        )
        self.names = tuple("ip-" + address.replace(".", "-") for address in self.addresses)
        self._started: list[node.StartedNode] = []
        self._stack = ExitStack()

    def __enter__(self) -> Arena:
        with ExitStack() as stack:
            self._fabric = fabric.Fabric()
            stack.callback(os.close, self._fabric.namespace)
            self._fabric.set_vpc([VPC_CIDR])
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            self._image = _image(folder / "tools")
            plans = [self._plan(rank, folder) for rank in range(len(self.addresses))]
            for plan in plans:
                started = node.start(plan, self._image)
                stack.callback(_end, started.pid)
                self._started.append(started)
            pids = [started.pid for started in self._started]
            self._fabric.plug(list(zip([plan.link for plan in plans], pids, strict=True)))
            for started in self._started:
                started.boot()
            for started in self._started:
                started.wait_ready()
                self._write_hosts(started)
            self._load(())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def torch_python(self) -> str:
        """The Python with torch, as a path inside a node."""
        return self._image.torch_python

    def ephemeral_ports(self) -> PortRange:
        """A node's range, where Gloo's listeners come from."""
        with open(f"/proc/{self._started[0].host_pid}/root/proc/sys/net/ipv4/ip_local_port_range") as file:
            first, last = file.read().split()
        return PortRange(int(first), int(last))

    def open_all_tcp(self) -> None:
        """Let members reach each other on every TCP port, as the stack does by default."""
        self._load(_rules((0, 65535)))

    def open_only_master_port(self, *also: int) -> None:
        """The famous failure: members reach each other on MASTER_PORT, the rest is dropped in silence.

        also: ports of a meeting place, where a benchmark needs one that works (on AWS it is a bucket).
        """
        self._load(_rules(*((port, port) for port in (MASTER_PORT, *also))))

    def _load(self, rules: tuple[SecurityGroupRule, ...]) -> None:
        interfaces = {
            f"eni-{rank:017x}": Interface(
                id=f"eni-{rank:017x}",
                subnet_id=SUBNET_ID,
                vpc_id=VPC_ID,
                group_ids=(GROUP_ID,),
                addresses=(address,),
                instance_id=f"i-{rank:017x}",
            )
            for rank, address in enumerate(self.addresses)
        }
        snapshot = ClusterSnapshot(
            vpcs=Table({VPC_ID: Vpc(id=VPC_ID, cidrs=(VPC_CIDR,))}),
            subnets=Table({SUBNET_ID: Subnet(id=SUBNET_ID, vpc_id=VPC_ID, cidrs=(SUBNET_CIDR,))}),
            security_groups=Table({GROUP_ID: SecurityGroup(id=GROUP_ID, vpc_id=VPC_ID, rules=rules)}),
            interfaces=Table(interfaces),
        )
        self._fabric.load_ruleset(
            firewall.compile_ruleset(snapshot, {key: fabric.veth_name(key) for key in interfaces})
        )

    def command(self, rank: int, argv: Sequence[str]) -> list[str]:
        """`argv` as it runs inside a node, with a node's rights; and dies with its stand-in here."""
        return [
            "nsenter", "--target", str(self._started[rank].host_pid),
            "--mount", "--net", "--uts", "--ipc", "--pid", "--preserve-credentials", "--",
            "setpriv", "--pdeathsig", "KILL", "--bounding-set", image.bounding_set_argument(),
            *argv,
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Of a process on a node: the lab image's, and the probe's packages; nothing of the caller's."""
        return {"PATH": self._image.search_path, "LANG": "C.UTF-8", "PYTHONPATH": PYZ}

    def _plan(self, rank: int, folder: Path) -> node.NodePlan:
        workspace = folder / f"node-{rank}"
        workspace.mkdir()
        return node.NodePlan(
            instance_id=f"i-{rank:017x}",
            link=fabric.Link(
                veth=fabric.veth_name(f"eni-{rank:017x}"),
                address=self.addresses[rank],
                network=SUBNET_CIDR,
                mac=f"0a:00:00:00:{rank >> 8:02x}:{rank & 255:02x}",
            ),
            identity=image.Identity(
                host_name=self.names[rank],
                domain=DOMAIN,
                resolver=fabric.vpc_resolver_address(VPC_CIDR),
                environment={},
            ),
            user_data=b"",
            log=folder / f"node-{rank}.log",
            workspace=workspace,
        )

    def _write_hosts(self, started: node.StartedNode) -> None:
        lines = [
            f"{address} {name}.{DOMAIN} {name}\n"
            for address, name in zip(self.addresses, self.names, strict=True)
        ]
        with open(f"/proc/{started.host_pid}/root/etc/hosts", "a", encoding="ascii") as file:
            file.writelines(lines)


def _rules(*port_ranges: tuple[int, int]) -> tuple[SecurityGroupRule, ...]:
    """TCP ports in from members; everything out, as a new security group has it."""
    members = [
        SecurityGroupRule(
            group_id=GROUP_ID,
            egress=False,
            protocol="tcp",
            first=first,
            last=last,
            source=GROUP_ID,
            kind=SourceKind.GROUP,
        )
        for first, last in port_ranges
    ]
    anywhere = SecurityGroupRule(
        group_id=GROUP_ID,
        egress=True,
        protocol="-1",
        first=None,
        last=None,
        source="0.0.0.0/0",
        kind=SourceKind.CIDR,
        network=ipaddress.IPv4Network("0.0.0.0/0"),
    )
    return (*members, anywhere)


def _image(tools: Path) -> image.Image:
    """The lab's machine image with the one-file build and these scripts in it, read-only."""
    build_pyz.build(tools / Path(PYZ).name)
    system = image.Image.of_this_machine()
    own = ((str(tools), str(Path(PYZ).parent)), (str(Path(__file__).parent), SCRIPTS))
    return dataclasses.replace(system, binds=(*system.binds, *own))


def _end(pid: int) -> None:
    """Kill a node's init, and with it all that is left on the node.

    The kernel lets the init go only when everything on the node has been reaped, and what
    nsenter left behind is for this process (PID 1 of the benchmark's namespace) to reap.
    """
    os.kill(pid, signal.SIGKILL)
    while os.wait()[0] != pid:
        continue
