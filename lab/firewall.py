"""Security groups and network ACLs as one nftables script for the VPC namespace.

Pure: a ClusterSnapshot in, text out. What is kept of EC2:

- a packet must pass the groups of the sender (egress) and of the receiver (ingress); the groups of
  an interface are a union, and only ever allow; what nothing allows is dropped without a word;
- groups are stateful: replies, and connections made before a rule was revoked, go on;
- ACLs are stateless, first match decides, and only what crosses a subnet's edge meets them;
- metadata and DNS are filtered by neither; the AWS services (here: the relay) by both;
- an interface sends from its own addresses only, and reaches no other VPC.

Every chain of a direction either returns (allowed, go on to the next check) or drops.
"""

from __future__ import annotations

import ipaddress
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from cluster.rules import NetworkAclEntry, SecurityGroupRule, SourceKind, best_route
from cluster.snapshot import ClusterSnapshot, Interface, NetworkAcl
from lab import fabric

TABLE = "fullmesh"
_LAST_PROTOCOL = 255
_ROUTER_MAY_BE_USED_WITHOUT_PUBLIC_ADDRESS = (
    "nat-",
    "tgw-",
    "vgw-",
    "pcx-",
    "eni-",
    "vpce-",
    "lgw-",
    "cagw-",
)


def compile_ruleset(
    snapshot: ClusterSnapshot,
    ports: Mapping[str, str],
    prefix_lists: Optional[Mapping[str, Sequence[str]]] = None,
    endpoint_vpcs: FrozenSet[str] = frozenset(),
) -> str:
    """The nft script that enforces the snapshot; it replaces what was loaded before, atomically.

    ports: interface id -> name of its veth in the VPC namespace; other interfaces count as
    members of their groups only. prefix_lists: id -> CIDRs; a list that is not there matches
    nothing. endpoint_vpcs: VPCs with a VPC endpoint, from which the services are reachable
    without a route to the internet.
    """
    compiler = _Compiler(snapshot, ports, prefix_lists or {}, endpoint_vpcs)
    body = compiler.sets() + compiler.chains()
    return "\n".join(
        [f"table ip {TABLE}", f"delete table ip {TABLE}", f"table ip {TABLE} {{", *body, "}", ""]
    )


def reaches_services(snapshot: ClusterSnapshot, interface: Interface) -> bool:
    """Whether the interface's routes lead to the AWS services outside of the VPC.

    An internet gateway carries only those that have a public address, as on EC2.
    """
    table = next((t for t in snapshot.route_tables if interface.subnet_id in t.subnet_ids), None)
    if table is None:
        mains = (t for t in snapshot.route_tables if t.main and t.vpc_id == interface.vpc_id)
        table = next(mains, None)
    if table is None:
        return False
    if any(route.prefix_list and route.target.startswith("vpce-") and route.active for route in table.routes):
        return True
    route = best_route(table.routes, ipaddress.ip_address(fabric.RELAY_ADDRESS))
    if route is None or not route.active:
        return False
    if route.target.startswith("igw-"):
        return bool(interface.public_addresses)
    return route.target.startswith(_ROUTER_MAY_BE_USED_WITHOUT_PUBLIC_ADDRESS)


class _Compiler:
    def __init__(
        self,
        snapshot: ClusterSnapshot,
        ports: Mapping[str, str],
        prefix_lists: Mapping[str, Sequence[str]],
        endpoint_vpcs: FrozenSet[str],
    ) -> None:
        self._snapshot = snapshot
        self._prefix_lists = prefix_lists
        self._endpoint_vpcs = endpoint_vpcs
        known = {item.id: item for item in snapshot.interfaces}
        self._ports = [(known[key], veth) for key, veth in sorted(ports.items()) if key in known]

    # -- sets -------------------------------------------------------------------------------

    def sets(self) -> List[str]:
        sources = [f'"{veth}" . {a}' for item, veth in self._ports for a in _ipv4(item.addresses)]
        resolvers = {fabric.RESOLVER_ADDRESS}
        for vpc_id in self._vpcs():
            vpc = self._snapshot.vpcs.get(vpc_id)
            resolvers |= {fabric.vpc_resolver_address(c) for c in (vpc.cidrs if vpc else ()) if ":" not in c}
        lines = [
            *_set("ports", "ifname", [f'"{veth}"' for _, veth in self._ports]),
            *_set("sources", "ifname . ipv4_addr", sources),
            *_set("resolvers", "ipv4_addr", sorted(resolvers)),
            *_set("online", "ifname", [f'"{veth}"' for item, veth in self._ports if self._online(item)]),
        ]
        for group_id in self._referenced_groups():
            members = {
                address
                for item in self._snapshot.interfaces
                if group_id in (item.group_ids or ())
                for address in _ipv4(item.addresses)
            }
            lines += _set(_name("group", group_id), "ipv4_addr", sorted(members))
        for list_id, cidrs in sorted(self._prefix_lists.items()):
            four = sorted(c for c in cidrs if ":" not in c)
            lines += _set(_name("list", list_id), "ipv4_addr", four, "flags interval; auto-merge")
        return lines

    def _online(self, item: Interface) -> bool:
        return item.vpc_id in self._endpoint_vpcs or reaches_services(self._snapshot, item)

    def _vpcs(self) -> List[str]:
        return sorted({item.vpc_id for item, _ in self._ports})

    def _referenced_groups(self) -> List[str]:
        return sorted(
            {
                rule.source
                for groups in self._group_unions()
                for rule in self._rules(groups)
                if rule.kind is SourceKind.GROUP
            }
        )

    # -- chains -----------------------------------------------------------------------------

    def chains(self) -> List[str]:
        unions = self._group_unions()
        lines: List[str] = []
        for index, groups in enumerate(unions):
            rules = self._rules(groups)
            lines += _chain(f"sg_out_{index}", self._group_rules(r for r in rules if r.egress))
            lines += _chain(f"sg_in_{index}", self._group_rules(r for r in rules if not r.egress))
        for index, (_, acl, cidrs) in enumerate(self._guarded_subnets()):
            lines += _chain(f"acl_out_{index}", _acl_rules(acl, cidrs, egress=True))
            lines += _chain(f"acl_in_{index}", _acl_rules(acl, cidrs, egress=False))
        numbers = {groups: index for index, groups in enumerate(unions)}
        groups_of = {veth: numbers[_groups(item)] for item, veth in self._ports}
        subnets = {subnet_id: index for index, (subnet_id, _, _) in enumerate(self._guarded_subnets())}
        acl_of = {veth: subnets[item.subnet_id] for item, veth in self._ports if item.subnet_id in subnets}
        sg_out, sg_in = _dispatch("iifname", groups_of, "sg_out"), _dispatch("oifname", groups_of, "sg_in")
        acl_out, acl_in = _dispatch("iifname", acl_of, "acl_out"), _dispatch("oifname", acl_of, "acl_in")
        own_source = "iifname . ip saddr != @sources drop"
        relay = f"ip daddr {fabric.RELAY_ADDRESS}"
        lines += _hook(
            "forward",
            "drop",
            [
                own_source,
                *self._vpc_borders(),
                *acl_out,
                *acl_in,
                "ct state established,related accept",
                "ct state invalid drop",
                *sg_out,
                *sg_in,
                "iifname @ports oifname @ports accept",
            ],
        )
        lines += _hook(
            "input",
            "drop",
            [
                'iifname "lo" accept',
                own_source,
                f"ip daddr {fabric.METADATA_ADDRESS} tcp dport 80 accept",
                "ip daddr @resolvers meta l4proto { tcp, udp } th dport 53 accept",
                f"{relay} iifname != @online drop",
                *acl_out,
                "ct state established,related accept",
                "ct state invalid drop",
                *sg_out,
                f"{relay} tcp dport {fabric.RELAY_PORT} iifname @ports accept",
            ],
        )
        answers = [f"ip saddr {fabric.RELAY_ADDRESS} {rule}" for rule in acl_in]
        lines += _hook("output", "accept", answers)
        return lines

    def _vpc_borders(self) -> List[str]:
        lines = []
        for vpc_id in self._vpcs():
            names = ", ".join(f'"{veth}"' for item, veth in self._ports if item.vpc_id == vpc_id)
            lines.append(f"iifname {{ {names} }} oifname != {{ {names} }} drop")
        return lines

    def _group_unions(self) -> List[Tuple[str, ...]]:
        return sorted({_groups(item) for item, _ in self._ports})

    def _rules(self, groups: Iterable[str]) -> List[SecurityGroupRule]:
        found: List[SecurityGroupRule] = []
        for group_id in groups:
            group = self._snapshot.security_groups.get(group_id)
            found += (group.rules or ()) if group else ()
        return found

    def _group_rules(self, rules: Iterable[SecurityGroupRule]) -> List[str]:
        lines: List[str] = []
        for rule in rules:
            traffic = _traffic(rule.protocol, rule.first, rule.last)
            peer = self._peer(rule)
            if traffic is not None and peer is not None:
                lines.append(f"{peer} {traffic} return".strip().replace("  ", " "))
        return [*dict.fromkeys(lines), "drop"]

    def _peer(self, rule: SecurityGroupRule) -> Optional[str]:
        """The far end of the rule as a match; None when it can match nothing here."""
        end = "ip daddr" if rule.egress else "ip saddr"
        if rule.kind is SourceKind.CIDR:
            if rule.network is None or rule.network.version != 4:
                return None
            return "" if rule.network.prefixlen == 0 else f"{end} {rule.network}"
        if rule.kind is SourceKind.GROUP:
            return f"{end} @{_name('group', rule.source)}" if rule.peering_status in ("", "active") else None
        return f"{end} @{_name('list', rule.source)}" if rule.source in self._prefix_lists else None

    def _guarded_subnets(self) -> List[Tuple[str, NetworkAcl, List[str]]]:
        """Subnets that hold a port, each with its ACL and its IPv4 ranges."""
        found = []
        for subnet_id in sorted({item.subnet_id for item, _ in self._ports}):
            subnet = self._snapshot.subnets.get(subnet_id)
            acls = list(self._snapshot.network_acls)
            acl = next((a for a in acls if subnet_id in a.subnet_ids), None)
            if acl is None and subnet is not None:
                acl = next((a for a in acls if a.default and a.vpc_id == subnet.vpc_id), None)
            if subnet is not None and acl is not None:
                found.append((subnet_id, acl, [c for c in subnet.cidrs if ":" not in c]))
        return found


def _groups(item: Interface) -> Tuple[str, ...]:
    return tuple(sorted(item.group_ids or ()))


def _acl_rules(acl: NetworkAcl, own: Sequence[str], *, egress: bool) -> List[str]:
    end = "ip daddr" if egress else "ip saddr"
    lines = [f"{end} {cidr} return" for cidr in own]
    ordered: List[NetworkAclEntry] = sorted(
        (entry for entry in acl.entries if entry.egress is egress), key=lambda entry: entry.number
    )
    for entry in ordered:
        traffic = _traffic(entry.protocol, entry.first, entry.last)
        if entry.network.version != 4 or traffic is None:
            continue
        peer = "" if entry.network.prefixlen == 0 else f"{end} {entry.network}"
        lines.append(f"{peer} {traffic} {'return' if entry.allow else 'drop'}".strip().replace("  ", " "))
    return [*lines, "drop"]


def _traffic(protocol: str, first: Optional[int], last: Optional[int]) -> Optional[str]:
    """A protocol and its ports (type and code of icmp) as a match; None when IPv4 has none such."""
    if protocol == "-1":
        return ""
    if protocol == "icmp":
        return _icmp(first, last)
    if protocol in ("tcp", "udp"):
        if first is None or last is None or (first, last) == (0, 65535):
            return f"meta l4proto {protocol}"
        return f"{protocol} dport {first}" if first == last else f"{protocol} dport {first}-{last}"
    # a rule that cannot match must not stop the others from loading
    exists = protocol.isdigit() and int(protocol) <= _LAST_PROTOCOL
    return f"meta l4proto {protocol}" if exists else None


def _icmp(kind: Optional[int], code: Optional[int]) -> str:
    if kind is None or kind < 0:
        return "meta l4proto icmp"
    return f"icmp type {kind}" if code is None or code < 0 else f"icmp type {kind} icmp code {code}"


def _ipv4(addresses: Iterable[str]) -> List[str]:
    return [address for address in addresses if ":" not in address]


def _name(kind: str, resource_id: str) -> str:
    return f"{kind}_{resource_id.replace('-', '_')}"


def _set(name: str, kind: str, elements: Sequence[str], flags: str = "") -> List[str]:
    lines = [f"set {name} {{", f"type {kind}"]
    lines += flags.split("; ") if flags else []
    if elements:
        lines.append(f"elements = {{ {', '.join(elements)} }}")
    return [*lines, "}"]


def _chain(name: str, rules: Sequence[str]) -> List[str]:
    return [f"chain {name} {{", *rules, "}"]


def _hook(name: str, policy: str, rules: Sequence[str]) -> List[str]:
    return _chain(name, [f"type filter hook {name} priority 0; policy {policy};", *rules])


def _dispatch(end: str, chain_of: Dict[str, int], prefix: str) -> List[str]:
    """One look-up from the interface to its chain; nothing when no interface has one."""
    if not chain_of:
        return []
    jumps = ", ".join(f'"{veth}" : jump {prefix}_{index}' for veth, index in sorted(chain_of.items()))
    return [f"{end} vmap {{ {jumps} }}"]
