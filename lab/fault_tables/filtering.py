"""Faults of what stands between members: groups, ACLs, routes, host firewalls, proxies."""

from __future__ import annotations

from cluster.ports import DEFAULT_EPHEMERAL_PORTS
from lab.fault import Fault
from lab.fault_api import AclDeny, OtherGroup, SelfRules
from lab.fault_host import Between, OnNode
from lab.fault_scripts import AS_UFW_DOES, GLOO_PORTS, NO_NFT, NO_SERVER, nft, server


def _sidecar(answer: str) -> OnNode:
    chain = (
        "chain prerouting {\ntype nat hook prerouting priority -100;\n"
        f'iifname "ens5" {GLOO_PORTS} redirect to :15001\n}}'
    )
    table = f"nft -f - <<'EOF'\ntable ip nat {{\n{chain}\n}}\nEOF\n"
    return OnNode(rank=2, script=server(15001, answer) + table, undo=f"{NO_SERVER}{NO_NFT}")


_TWO_SUBNETS = {"cluster.subnets": "2", "cluster.placement": "spread"}
FAULTS: tuple[Fault, ...] = (
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
        injection=OnNode(rank=2, script=nft(f"ct state new {GLOO_PORTS} drop"), undo=NO_NFT),
        at_boot=True,
        commands_mend=True,
    ),
    Fault(
        id="os-firewall-drop-policy",
        title="node 2's own firewall admits ssh and MASTER_PORT, as ufw would, and drops the rest",
        expected=(("os-firewall-drop", "node:2"),),
        injection=OnNode(rank=2, script=nft(AS_UFW_DOES, policy="drop"), undo=NO_NFT),
        at_boot=True,
        commands_mend=True,
    ),
    Fault(
        id="os-firewall-drop-stateless",
        title="node 2's own firewall drops members' packets to high ports, replies among them",
        expected=(("os-firewall-drop", "node:2"),),
        injection=OnNode(rank=2, script=nft(f"ip saddr 10.0.0.0/8 {GLOO_PORTS} counter drop"), undo=NO_NFT),
        at_boot=True,
        commands_mend=True,
    ),
    Fault(
        id="os-firewall-drop-one-peer",
        title="node 1's own firewall drops what node 3 opens",
        expected=(("os-firewall-drop", "node:1"),),
        injection=OnNode(rank=1, script=nft("ip saddr {address3} ct state new drop"), undo=NO_NFT),
        commands_mend=True,
    ),
    Fault(
        id="os-firewall-drop-outbound",
        title="node 1's own firewall lets nothing out to high ports of others",
        expected=(("os-firewall-drop", "node:1"),),
        injection=OnNode(rank=1, script=nft(f"ct state new {GLOO_PORTS} drop", hook="output"), undo=NO_NFT),
        at_boot=True,
        commands_mend=True,
    ),
    Fault(
        id="os-firewall-reject",
        title="node 2's own firewall answers the ephemeral ports with a reset",
        expected=(("os-firewall-reject", "node:2"),),
        injection=OnNode(rank=2, script=nft(f"ct state new {GLOO_PORTS} reject with tcp reset"), undo=NO_NFT),
        at_boot=True,
        commands_mend=True,
    ),
    Fault(
        id="os-firewall-reject-prohibited",
        title="node 2's own firewall admits ssh and MASTER_PORT, as firewalld would, and prohibits the rest",
        expected=(("os-firewall-reject", "node:2"),),
        injection=OnNode(rank=2, script=nft(f"{AS_UFW_DOES}reject with icmpx admin-prohibited"), undo=NO_NFT),
        at_boot=True,
        commands_mend=True,
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
