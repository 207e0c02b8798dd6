"""Every fault that the lab can provoke: how it gets in, and exactly the causes it must raise, and where.

Declared once each; `fullmesh demo --fault ID` and the tests read this table. A fault's id is that
of its first cause, with a suffix where a cause has several faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from cluster.ports import DEFAULT_EPHEMERAL_PORTS
from diagnosis.report import Diagnosis
from lab.boot_change import BootChange
from lab.check import PROBE_DEADLINE_S, run_check
from lab.fault_api import AclDeny, OtherGroup, SelfRules
from lab.fault_host import Between, Launch, OnNode
from lab.fault_scene import Injection, Scene

UNSAFE_RULES_KEY = "fullmesh:unsafe-rules"  # app.py's


class Way(str, Enum):
    """When a demonstration lets the fault in."""

    STACK = "in the stack"
    BOOT = "at a node's boot"
    LIVE = "into a running cluster"
    LAUNCH = "at a job's start"


@dataclass(frozen=True)
class Fault:
    """One fault.

    expected: (cause, subject) of every finding it must raise, and no others.
    injection: how it gets into a running cluster.
    in_stack: app.py can deploy it, too; at_boot: a node can also come up with it.
    context: what the deployment needs for it (`-c`); least_nodes: how many nodes it speaks of.
    commands_mend: the commands of the finding repair it as they are.
    deadline_s: of the check, where somebody is waited for in vain.
    """

    id: str
    title: str
    expected: tuple[tuple[str, str], ...]
    injection: Injection
    in_stack: bool = False
    at_boot: bool = False
    context: Mapping[str, str] = field(default_factory=dict)
    least_nodes: int = 4
    commands_mend: bool = False
    deadline_s: float = PROBE_DEADLINE_S

    @property
    def way(self) -> Way:
        if self.in_stack:
            return Way.STACK
        if self.at_boot:
            return Way.BOOT
        return Way.LAUNCH if isinstance(self.injection, Launch) else Way.LIVE

    @property
    def deploy_context(self) -> dict[str, str]:
        """`-c` values of a deployment for this fault."""
        return {**self.context, **({UNSAFE_RULES_KEY: self.id} if self.in_stack else {})}

    def boot_changes(self, cluster: str = "") -> tuple[BootChange, ...]:
        """What the lab changes on nodes of that cluster (tag; "" = any) before their user data."""
        if not self.at_boot or not isinstance(self.injection, OnNode):
            return ()
        return (BootChange(rank=self.injection.rank, cluster=cluster, script=self.injection.script),)

    @contextmanager
    def provoked(self, scene: Scene) -> Iterator[None]:
        """In force inside the context."""
        with self.injection.inject(scene):
            yield

    def check(self, scene: Scene, collective: bool = False) -> Diagnosis:
        """`lab check` as this fault wants it: as the deployed nodes, or as a job under a launcher."""
        given = self.injection.environments(scene.lab) if isinstance(self.injection, Launch) else None
        return run_check(scene.lab, collective, environments=given, deadline_s=self.deadline_s)


def _nft(rules: str, hook: str = "input", policy: str = "accept") -> str:
    chain = f"chain {hook} {{\ntype filter hook {hook} priority 0; policy {policy};\n{rules}\n}}"
    return f"nft -f - <<'EOF'\ntable inet filter {{\n{chain}\n}}\nEOF\n"


_NO_NFT = "nft flush ruleset"
_AS_UFW_DOES = 'iif "lo" accept\nct state established,related accept\ntcp dport { 22, 29500 } accept\n'
_GLOO_PORTS = f"tcp dport {DEFAULT_EPHEMERAL_PORTS}"


def _server(port: int, answer: str) -> str:
    """A process that listens on a port of every address, and what it does with a connection `c`."""
    return (
        "python3 - >/dev/null 2>&1 <<'EOF' &\n"
        "import os, socket\n"
        f"s = socket.create_server(('', {port}), backlog=512)\n"
        "open('/run/fault.pid', 'w').write(str(os.getpid()))\n"
        "kept = []\n"
        "while True:\n"
        "    c = s.accept()[0]\n"
        f"    {answer}\n"
        "EOF\n"
        "until [ -s /run/fault.pid ]; do sleep 0.02; done\n"
    )


_NO_SERVER = "if [ -e /run/fault.pid ]; then kill $(cat /run/fault.pid); rm /run/fault.pid; fi\n"


def _sidecar(answer: str) -> OnNode:
    chain = (
        "chain prerouting {\ntype nat hook prerouting priority -100;\n"
        f'iifname "ens5" {_GLOO_PORTS} redirect to :15001\n}}'
    )
    table = f"nft -f - <<'EOF'\ntable ip nat {{\n{chain}\n}}\nEOF\n"
    return OnNode(rank=2, script=_server(15001, answer) + table, undo=f"{_NO_SERVER}{_NO_NFT}")


_TWO_SUBNETS = {"cluster.subnets": "2", "cluster.placement": "spread"}
_FILTERING = (
    Fault(
        id="sg-only-master-port",
        title="the group admits members on MASTER_PORT and on no other port",
        expected=(("sg-only-master-port", "cluster"),),
        injection=SelfRules(ingress=((29500, 29500),)),
        in_stack=True,
        least_nodes=2,
        commands_mend=True,
    ),
    Fault(
        id="sg-no-self-ingress",
        title="no rule of the group admits members",
        expected=(("sg-no-self-ingress", "cluster"),),
        injection=SelfRules(ingress=()),
        in_stack=True,
        least_nodes=2,
        commands_mend=True,
    ),
    Fault(
        id="sg-no-self-egress",
        title="the group lets members out to 443 only",
        expected=(("sg-no-self-egress", "cluster"),),
        injection=SelfRules(egress=()),
        in_stack=True,
        least_nodes=2,
        commands_mend=True,
    ),
    Fault(
        id="sg-ports-too-narrow",
        title="the group admits members on MASTER_PORT and on a part of the ephemeral range",
        expected=(("sg-ports-too-narrow", "cluster"),),
        injection=SelfRules(ingress=((29500, 29500), (49152, 65535))),
        in_stack=True,
        least_nodes=2,
        commands_mend=True,
    ),
    Fault(
        id="sg-missing-on-node",
        title="node 2 carries another group in place of the members'",
        expected=(("sg-missing-on-node", "node:2"),),
        injection=OtherGroup(rank=2),
        commands_mend=True,
    ),
    Fault(
        id="nacl-deny",
        title="the network ACL of two subnets denies high ports inbound",
        expected=(("nacl-deny", "cluster"),),
        injection=AclDeny(
            first_port=DEFAULT_EPHEMERAL_PORTS.first, last_port=DEFAULT_EPHEMERAL_PORTS.last, egress=False
        ),
        context=_TWO_SUBNETS,
        commands_mend=True,
    ),
    Fault(
        id="nacl-deny-master-port",
        title="the network ACL of two subnets denies MASTER_PORT outbound",
        expected=(("nacl-deny", "cluster"),),
        injection=AclDeny(first_port=29500, last_port=29500, egress=True),
        context=_TWO_SUBNETS,
        commands_mend=True,
    ),
    Fault(
        id="route-missing",
        title="node 2's own routing table leads to no other node",
        expected=(("route-missing", "node:2"),),
        injection=OnNode(
            rank=2,
            script="for a in {address0} {address1} {address3}; do ip route add throw $a; done",
            undo="for a in {address0} {address1} {address3}; do ip route del throw $a || true; done",
        ),
    ),
    Fault(
        id="os-firewall-drop",
        title="node 2's own firewall drops new connections to the ephemeral ports",
        expected=(("os-firewall-drop", "node:2"),),
        injection=OnNode(rank=2, script=_nft(f"ct state new {_GLOO_PORTS} drop"), undo=_NO_NFT),
        at_boot=True,
    ),
    Fault(
        id="os-firewall-drop-policy",
        title="node 2's own firewall admits ssh and MASTER_PORT, as ufw would, and drops the rest",
        expected=(("os-firewall-drop", "node:2"),),
        injection=OnNode(rank=2, script=_nft(_AS_UFW_DOES, policy="drop"), undo=_NO_NFT),
        at_boot=True,
    ),
    Fault(
        id="os-firewall-drop-stateless",
        title="node 2's own firewall drops members' packets to high ports, replies among them",
        expected=(("os-firewall-drop", "node:2"),),
        injection=OnNode(
            rank=2, script=_nft(f"ip saddr 10.0.0.0/8 {_GLOO_PORTS} counter drop"), undo=_NO_NFT
        ),
        at_boot=True,
    ),
    Fault(
        id="os-firewall-drop-one-peer",
        title="node 1's own firewall drops what node 3 opens",
        expected=(("os-firewall-drop", "node:1"),),
        injection=OnNode(rank=1, script=_nft("ip saddr {address3} ct state new drop"), undo=_NO_NFT),
    ),
    Fault(
        id="os-firewall-drop-outbound",
        title="node 1's own firewall lets nothing out to high ports of others",
        expected=(("os-firewall-drop", "node:1"),),
        injection=OnNode(
            rank=1, script=_nft(f"ct state new {_GLOO_PORTS} drop", hook="output"), undo=_NO_NFT
        ),
        at_boot=True,
    ),
    Fault(
        id="os-firewall-reject",
        title="node 2's own firewall answers the ephemeral ports with a reset",
        expected=(("os-firewall-reject", "node:2"),),
        injection=OnNode(
            rank=2, script=_nft(f"ct state new {_GLOO_PORTS} reject with tcp reset"), undo=_NO_NFT
        ),
        at_boot=True,
    ),
    Fault(
        id="os-firewall-reject-prohibited",
        title="node 2's own firewall admits ssh and MASTER_PORT, as firewalld would, and prohibits the rest",
        expected=(("os-firewall-reject", "node:2"),),
        injection=OnNode(
            rank=2, script=_nft(f"{_AS_UFW_DOES}reject with icmpx admin-prohibited"), undo=_NO_NFT
        ),
        at_boot=True,
    ),
    Fault(
        id="one-way-block",
        title="what node 1 opens to node 2 vanishes between them; the other way works",
        expected=(("one-way-block", "pair:1>2"),),
        injection=Between(pairs=((1, 2),)),
    ),
    Fault(
        id="pair-blocked",
        title="what nodes 1 and 3 open to each other vanishes between them",
        expected=(("pair-blocked", "pair:1>3"),),
        injection=Between(pairs=((1, 3), (3, 1))),
    ),
    Fault(
        id="proxy-sidecar",
        title="a proxy on node 2 takes connections to the ephemeral ports and stays silent",
        expected=(("proxy-sidecar", "node:2"),),
        injection=_sidecar("kept.append(c)"),
        at_boot=True,
    ),
    Fault(
        id="proxy-sidecar-closes",
        title="a proxy on node 2 takes connections to the ephemeral ports and closes them",
        expected=(("proxy-sidecar", "node:2"),),
        injection=_sidecar("c.close()"),
        at_boot=True,
    ),
)
_ADDRESSING = (
    Fault(
        id="hostname-loopback",
        title="node 2's own name is 127.0.1.1 in its /etc/hosts",
        expected=(("hostname-loopback", "node:2"),),
        injection=OnNode(
            rank=2,
            script='echo "127.0.1.1 $(hostname)" >>/etc/hosts',
            undo="sed -i '/^127.0.1.1 /d' /etc/hosts",
        ),
        at_boot=True,
    ),
)
_RENDEZVOUS = (
    Fault(
        id="port-in-use",
        title="another process on node 0 holds MASTER_PORT",
        expected=(("port-in-use", "node:0"),),
        injection=OnNode(rank=0, script=_server(29500, "kept.append(c)"), undo=_NO_SERVER),
        at_boot=True,
    ),
    Fault(
        id="env-missing",
        title="the launcher gives node 2 no MASTER_PORT",
        expected=(("env-missing", "node:2"),),
        injection=Launch(changes={2: {"MASTER_PORT": None}}),
    ),
    Fault(
        id="env-missing-rank",
        title="the launcher gives node 2 no RANK",
        expected=(("env-missing", "node:2"),),
        injection=Launch(changes={2: {"RANK": None}}),
    ),
    Fault(
        id="env-inconsistent",
        title="the launcher gives node 2 another MASTER_PORT",
        expected=(("env-inconsistent", "node:2"),),
        injection=Launch(changes={2: {"MASTER_PORT": "29501"}}),
    ),
    Fault(
        id="env-inconsistent-address",
        title="the launcher gives node 3 node 1's address as MASTER_ADDR",
        expected=(("env-inconsistent", "node:3"),),
        injection=Launch(changes={3: {"MASTER_ADDR": "{address1}"}}),
    ),
    Fault(
        id="world-size-mismatch",
        title="the launcher gives node 2 a WORLD_SIZE of 5",
        expected=(("world-size-mismatch", "node:2"),),
        injection=Launch(changes={2: {"WORLD_SIZE": "5"}}),
    ),
    Fault(
        id="world-size-mismatch-smaller",
        title="the launcher gives node 1 a WORLD_SIZE of 3",
        expected=(("world-size-mismatch", "node:1"),),
        injection=Launch(changes={1: {"WORLD_SIZE": "3"}}),
    ),
    Fault(
        id="duplicate-rank",
        title="the launcher gives node 2 the rank of node 1",
        expected=(("duplicate-rank", "node:1"),),
        injection=Launch(changes={2: {"RANK": "1"}}),
    ),
    Fault(
        id="peer-missing",
        title="node 3's first boot hangs before the probe",
        expected=(("peer-missing", "cluster"),),
        injection=OnNode(rank=3, script="exec sleep infinity", undo="true"),
        at_boot=True,
        context={"cluster.deadline_s": "20"},
    ),
    Fault(
        id="peer-missing-member",
        title="the launcher never starts node 3",
        expected=(("peer-missing", "node:3"),),
        injection=Launch(absent=frozenset({3})),
        deadline_s=12.0,
    ),
)

FAULTS: dict[str, Fault] = {fault.id: fault for fault in (*_FILTERING, *_ADDRESSING, *_RENDEZVOUS)}
