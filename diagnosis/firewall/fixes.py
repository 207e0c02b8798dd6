"""Commands that let members through the very rules of a host's firewall that stop them.

An accept stands before the rule that stops, in the same chain; nothing is deleted. Where ufw or
firewalld made the rules it is told instead, since it makes its own again.
"""

from __future__ import annotations

import ipaddress
from typing import Dict, List, Sequence, Tuple

from diagnosis.firewall.ruleset import Hook, Manager, Stop, Tool

MOST_PEERS = 16
"""As many as a command names; for more, the smallest network that holds them all."""

LASTING = (
    "Let the members through the node's own firewall; the security group is the cluster's wall. The "
    "commands hold until the rules are loaded again: put the same into what loads them."
)
_FIREWALLD_OUT = "sudo firewall-cmd --direct --get-all-rules && sudo firewall-cmd --list-all-policies"


def commands(stops: Sequence[Stop], peers: Sequence[str]) -> Tuple[str, ...]:
    """One command for each chain that stops; peers: addresses of one version. () = nothing was read."""
    first: Dict[Tuple[int, str], Stop] = {}
    for stop in stops:
        known = first.setdefault((id(stop.table), stop.chain), stop)
        if 0 < stop.number < (known.number or stop.number + 1):
            first[(id(stop.table), stop.chain)] = stop
    members = _members(peers)
    return tuple(dict.fromkeys(_command(stop, members) for stop in first.values()))


def lasting(stops: Sequence[Stop]) -> bool:
    """Whether the commands outlive a restart: ufw and firewalld write down what they are told."""
    return bool(stops) and all(stop.manager is not None for stop in stops)


def _members(peers: Sequence[str]) -> List[str]:
    addresses = sorted({ipaddress.ip_address(peer) for peer in peers}, key=int)
    if len(addresses) <= MOST_PEERS:
        return [str(address) for address in addresses]
    network = ipaddress.ip_network(addresses[0])
    while addresses[-1] not in network:
        network = network.supernet()
    return [str(network)]


def _command(stop: Stop, members: Sequence[str]) -> str:
    inbound = stop.hook is Hook.INPUT
    if stop.manager is Manager.FIREWALLD:
        if not inbound:
            return _FIREWALLD_OUT
        sources = " ".join(f"--add-source={member}" for member in members)
        return f"sudo firewall-cmd --permanent --zone=trusted {sources} && sudo firewall-cmd --reload"
    if stop.manager is Manager.UFW:
        allow = "allow from" if inbound else "allow out to"
        if len(members) == 1:
            return f"sudo ufw prepend {allow} {members[0]}"
        return f"for a in {' '.join(members)}; do sudo ufw prepend {allow} $a; done"
    if stop.table.tool is Tool.NFT:
        return _nft(stop, members)
    tool = stop.table.tool.value
    if stop.table.family == "ip6":
        tool = tool.replace("iptables", "ip6tables")
    table = "" if stop.table.name == "filter" else f"-t {stop.table.name} "
    place = f" {stop.number}" if stop.number > 1 else ""
    side = "-s" if inbound else "-d"
    return f"sudo {tool} {table}-I {stop.chain}{place} {side} {','.join(members)} -j ACCEPT"


def _nft(stop: Stop, members: Sequence[str]) -> str:
    place = f" handle {stop.handle}" if stop.handle is not None else ""
    version = "ip6" if ":" in members[0] else "ip"
    side = "saddr" if stop.hook is Hook.INPUT else "daddr"
    listed = members[0] if len(members) == 1 else f"{{ {', '.join(members)} }}"
    rule = f"{version} {side} {listed} accept"
    rule = rule if len(members) == 1 else f"'{rule}'"
    return f"sudo nft insert rule {stop.table.family} {stop.table.name} {stop.chain}{place} {rule}"
