"""Causes of the group "addressing": a node publishes an address that others cannot dial."""

from __future__ import annotations

from diagnosis.catalogue.cause import ADDRESS_ECHOES, LIVE, LOG, STATIC, Cause, Group

_NAME_INTERFACE = "export GLOO_SOCKET_IFNAME={interface}"
_MAP_NAME = "echo '{address} {name}' | sudo tee -a /etc/hosts"

CAUSES = (
    Cause(
        id="hostname-loopback",
        group=Group.ADDRESSING,
        title="a node's own name resolves to loopback",
        meaning="Without GLOO_SOCKET_IFNAME, Gloo publishes the address that the node's own host name "
        "resolves to. 127.x is dialled by the others on themselves.",
        decided_by="the node's name resolves to 127.x first, or a peer reports remote=[127...]",
        seen_in=(LIVE, LOG, STATIC),
        remediation="Name the interface for Gloo, or map the host name to the node's address.",
        commands=(_NAME_INTERFACE, "getent ahosts {name}", _MAP_NAME),
        explains=ADDRESS_ECHOES,
    ),
    Cause(
        id="hostname-unresolvable",
        group=Group.ADDRESSING,
        title="the node's own name does not resolve",
        meaning="Gloo then falls back to 127.0.0.1 with a warning (torch 1.10 and later) or fails.",
        decided_by="the resolver's error for the node's own name; the fallback warning",
        seen_in=(LIVE, LOG),
        remediation="Name the interface for Gloo, or map the host name to the node's address.",
        commands=(_NAME_INTERFACE, _MAP_NAME),
        explains=(*ADDRESS_ECHOES, "hostname-loopback"),
    ),
    Cause(
        id="hostname-numeric",
        group=Group.ADDRESSING,
        title="the host name is a number",
        meaning="The resolver reads a number as an IPv4 address: host name 7 becomes 0.0.0.7.",
        decided_by="the host name is a number, or an address 0.x.x.x appears",
        seen_in=(LIVE, LOG),
        remediation="Give the host a name that begins with a letter, or name the interface for Gloo.",
        commands=(_NAME_INTERFACE, "sudo hostnamectl set-hostname node-{name}"),
        explains=(*ADDRESS_ECHOES, "hostname-stale-ip", "hostname-unresolvable"),
    ),
    Cause(
        id="hostname-stale-ip",
        group=Group.ADDRESSING,
        title="the host name resolves to an address this host does not have",
        meaning="Gloo can only listen on an address of the host; a name that points at a former, public or "
        "virtual address leaves none.",
        decided_by="no local interface has any address the name resolves to; bind or the interface lookup "
        "fails",
        seen_in=(LIVE, LOG),
        remediation="Correct the name's entry, or name the interface for Gloo.",
        commands=(_NAME_INTERFACE, "getent ahosts {name}", "grep -n {name} /etc/hosts"),
        explains=ADDRESS_ECHOES,
    ),
    Cause(
        id="hostname-empty",
        group=Group.ADDRESSING,
        title="the host name is blank",
        meaning="Programs that build an address from the host name dial an empty one.",
        decided_by="the host name is blank; failed to connect to []:port",
        seen_in=(LIVE, LOG),
        remediation="Give the host a name.",
        commands=("sudo hostnamectl set-hostname node-{rank}", _NAME_INTERFACE),
        explains=(*ADDRESS_ECHOES, "hostname-unresolvable"),
    ),
    Cause(
        id="ifname-missing",
        group=Group.ADDRESSING,
        title="GLOO_SOCKET_IFNAME names an interface that is not usable here",
        meaning="Gloo compares names exactly: the interface has to exist on this host and to have an "
        "address.",
        decided_by="Unable to find address for: NAME; the host's interfaces",
        seen_in=(LIVE, LOG),
        remediation="Set the name of the interface that holds the member's address.",
        commands=("ip -br address", _NAME_INTERFACE),
        explains=("peer-missing", *ADDRESS_ECHOES),
    ),
    Cause(
        id="ifname-syntax",
        group=Group.ADDRESSING,
        title="GLOO_SOCKET_IFNAME is not a list of exact names",
        meaning="NCCL's syntax (prefixes, ^lo, =eth0), addresses and blanks mean nothing to Gloo: each "
        "entry between commas is compared exactly.",
        decided_by="the value",
        seen_in=(LIVE, LOG, STATIC),
        remediation="Set exact interface names, separated by commas without blanks.",
        commands=(_NAME_INTERFACE,),
        explains=("ifname-missing", *ADDRESS_ECHOES),
    ),
    Cause(
        id="ifname-heterogeneous",
        group=Group.ADDRESSING,
        title="the interface has another name on some nodes",
        meaning="One value of GLOO_SOCKET_IFNAME was given to all nodes, but only some have an interface "
        "of that name (ens5 on Nitro, enX0 on Xen, eth0 elsewhere).",
        decided_by="the interface names differ between nodes",
        seen_in=(LIVE, LOG),
        remediation="Set the variable on each node to the interface that holds its member address.",
        commands=(
            "export GLOO_SOCKET_IFNAME=$(ip -o -4 route get {peer_address} | sed -n 's/.* dev \\([^ "
            "]*\\).*/\\1/p')",
        ),
        explains=("ifname-missing", *ADDRESS_ECHOES),
    ),
    Cause(
        id="ifname-loopback",
        group=Group.ADDRESSING,
        title="GLOO_SOCKET_IFNAME is the loopback interface",
        meaning="lo works on one machine. Across several, every node publishes 127.0.0.1 and the others dial "
        "themselves.",
        decided_by="the value with members on several hosts, or remote 127.0.0.1",
        seen_in=(LIVE, LOG),
        remediation="Set the interface that holds the member's address.",
        commands=(_NAME_INTERFACE,),
        explains=("hostname-loopback", *ADDRESS_ECHOES),
    ),
    Cause(
        id="wrong-interface",
        group=Group.ADDRESSING,
        title="the published address belongs to an interface that members cannot reach",
        meaning="Gloo publishes a container bridge's, a VPN's or a link-local address.",
        decided_by="the address that the node publishes (172.17.x, 169.254.x, a tun, wg or docker interface)",
        seen_in=(LIVE, LOG),
        remediation="Name the interface that holds the member's address.",
        commands=(_NAME_INTERFACE,),
        explains=("duplicate-address", "ipv4-ipv6-mismatch", *ADDRESS_ECHOES),
    ),
    Cause(
        id="duplicate-address",
        group=Group.ADDRESSING,
        title="several nodes advertise one address",
        meaning="Cloned images or containers publish the same address; the others reach only one of them.",
        decided_by="the published records",
        seen_in=(LIVE,),
        remediation="Give every node an address of its own, or name the interface that has one.",
        commands=("ip -br address", _NAME_INTERFACE),
        explains=ADDRESS_ECHOES,
    ),
    Cause(
        id="ipv4-ipv6-mismatch",
        group=Group.ADDRESSING,
        title="members publish different address families",
        meaning="Gloo's pair needs both ends in one family; one host name resolves to IPv6, another to IPv4.",
        decided_by="ss_family 10 against 2; the published addresses",
        seen_in=(LIVE, LOG),
        remediation="Name an interface whose first address is of the common family on every node.",
        commands=("getent ahosts {name}", _NAME_INTERFACE),
        explains=ADDRESS_ECHOES,
    ),
    Cause(
        id="public-address",
        group=Group.ADDRESSING,
        title="members use public addresses",
        meaning="A rule that names a security group matches private addresses only, so traffic to a "
        "member's public address is dropped; it would also leave the placement group's network.",
        decided_by="MASTER_ADDR is a public address of a member",
        seen_in=(LIVE, STATIC),
        remediation="Use the private address of rank 0.",
        commands=("export MASTER_ADDR={master_address}",),
        explains=("master-unreachable", "master-addr-not-a-member"),
    ),
)
