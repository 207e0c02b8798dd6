"""Changes of rules, interfaces, ACLs and routes."""

from __future__ import annotations

from bench.changes import make_others, make_rules
from bench.changes.change import ACROSS, ALL, COSMETIC, IN, NEW, NOW, OPENS, OUT, WEAKENS, WITH_3, Change, one
from bench.changes.make_rules import WORLD, permission

STRANGER = "198.51.100.7/32"

RULES = (
    Change(
        "rule-world-ssh",
        "a rule lets the world in on port 22",
        make_rules.added("ingress", lambda _: permission(22, 22, cidr=WORLD)),
        one("group", IN, OPENS),
        moves_rules=True,
        exposes=True,
    ),
    Change(
        "rule-world-everything",
        "a rule lets the world in on everything",
        make_rules.added("ingress", lambda _: permission(0, 0, cidr=WORLD, protocol="-1")),
        one("group", IN, OPENS),
        moves_rules=True,
        exposes=True,
    ),
    Change(
        "rule-one-address",
        "a rule lets one address of the internet in",
        make_rules.added("ingress", lambda _: permission(29500, 29500, cidr=STRANGER)),
        one("group", IN, OPENS),
        moves_rules=True,
        exposes=True,
    ),
    Change(
        "rule-nobody-there",
        "a rule lets an address of the VPC in that nobody has",
        make_rules.added("ingress", lambda _: permission(22, 22, cidr="10.20.255.1/32")),
        one("group", IN, WEAKENS),
        moves_rules=True,
    ),
    Change(
        "rule-out-to-the-world",
        "a rule lets members send anything anywhere",
        make_rules.added("egress", lambda _: permission(0, 0, cidr=WORLD, protocol="-1")),
        one("group", OUT, WEAKENS),
        moves_rules=True,
    ),
    Change(
        "self-in-revoked",
        "the rule that lets members in is revoked",
        make_rules.replaced("ingress", ()),
        one("group", IN, NEW, ALL),
        moves_rules=True,
        causes=(("sg-no-self-ingress", "cluster"),),
    ),
    Change(
        "self-out-revoked",
        "the rule that lets members out to each other is revoked",
        make_rules.replaced("egress", ()),
        one("group", OUT, NEW, ALL),
        moves_rules=True,
        causes=(("sg-no-self-egress", "cluster"),),
    ),
    Change(
        "self-in-master-only",
        "an overly permissive rule is replaced by the one port of the documentation",
        make_rules.replaced("ingress", ((29500, 29500),)),
        one("group", IN, NEW, ALL),
        moves_rules=True,
        causes=(("sg-only-master-port", "cluster"),),
    ),
    Change(
        "self-in-narrowed",
        "the rule that lets members in is narrowed to ports 0-40000",
        make_rules.replaced("ingress", ((0, 40000),)),
        one("group", IN, NEW, ALL),
        moves_rules=True,
    ),
    Change(
        "self-in-split",
        "the rule is replaced by two that together let the same ports pass",
        make_rules.replaced("ingress", ((0, 30000), (30001, 65535))),
        (*one("group", IN, WEAKENS), *one("group", IN, WEAKENS), *one("group", IN, WEAKENS)),
        moves_rules=True,
    ),
    Change(
        "https-out-revoked",
        "the rule that lets members out to AWS is revoked",
        make_rules.replaced("egress", (), own=False),
        one("group", OUT, WEAKENS),
        moves_rules=True,
    ),
    Change(
        "icmp-revoked",
        "the rule for ICMP's fragmentation needed is revoked",
        make_rules.replaced("ingress", (), own=False, protocol="icmp"),
        one("group", IN, WEAKENS),
        moves_rules=True,
    ),
    Change(
        "default-group-opened",
        "the VPC's default group, which the stack has emptied, lets its own members in",
        make_rules.added(
            "ingress",
            lambda h: permission(0, 0, group=h.default_group, protocol="-1"),
            lambda h: h.default_group,
        ),
        one("default-group", IN, WEAKENS),
    ),
    Change(
        "rule-described",
        "the description of a rule is changed",
        make_rules.described,
        one("group", "description of the ingress rule", COSMETIC),
    ),
)

INTERFACES = (
    Change(
        "group-swapped",
        "one member's interface carries another group in the place of the members'",
        make_rules.groups_of(3, "swapped", beside=False),
        one("interface 3", "security groups", NEW, WITH_3),
        moves_rules=True,
        causes=(("sg-missing-on-node", "node:3"),),
    ),
    Change(
        "second-group",
        "one member's interface carries a second group that lets nobody in",
        make_rules.groups_of(1, "second", beside=True),
        one("interface 1", "security groups", WEAKENS),
    ),
    Change(
        "second-group-open",
        "one member's interface carries a second group that lets the world in",
        make_rules.groups_of(1, "open", permission(22, 22, cidr=WORLD), beside=True),
        one("interface 1", "security groups", OPENS),
        moves_rules=True,
        exposes=True,
    ),
    Change(
        "conntrack-shortened",
        "one member's interface forgets idle connections after 350 s",
        make_others.conntrack,
        one("interface 2", "TcpEstablishedTimeout", WEAKENS),
    ),
    Change(
        "source-check-off",
        "one member's interface may take packets of other addresses",
        make_others.call(
            lambda h: h.ec2.modify_network_interface_attribute(
                NetworkInterfaceId=h.interface(2), SourceDestCheck={"Value": False}
            ),
            lambda h: h.ec2.modify_network_interface_attribute(
                NetworkInterfaceId=h.interface(2), SourceDestCheck={"Value": True}
            ),
        ),
        one("interface 2", "SourceDestCheck", WEAKENS),
    ),
)

PATHS = (
    Change(
        "acl-deny-in",
        "an entry in front of the ACL's own denies members' ports between the subnets",
        make_rules.entry(50, egress=False, ports=(29500, 60999)),
        one("acl", "ingress entry 50", NOW, ACROSS),
        moves_rules=True,
        causes=(("nacl-deny", "cluster"),),
    ),
    Change(
        "acl-deny-replies",
        "an entry denies what leaves a subnet for ephemeral ports: replies die",
        make_rules.entry(60, egress=True, ports=(32768, 60999)),
        one("acl", "egress entry 60", NOW, ACROSS),
        moves_rules=True,
    ),
    Change(
        "acl-deny-elsewhere",
        "an entry denies an address that is none of ours",
        make_rules.entry(70, egress=False, ports=(22, 22), cidr=STRANGER),
        one("acl", "ingress entry 70", WEAKENS),
        moves_rules=True,
    ),
    Change(
        "acl-swapped",
        "one subnet has another ACL, which denies everything",
        make_rules.other_acl,
        one("subnet 0", "network ACL", NOW, ACROSS),
        moves_rules=True,
    ),
    Change(
        "route-removed",
        "the route to the internet is removed",
        make_rules.no_way_out,
        one("table", "route to 0.0.0.0/0", WEAKENS),
        moves_rules=True,
    ),
    Change(
        "route-added",
        "a route more",
        make_rules.route_more,
        one("table", "route to 192.0.2.0/24", WEAKENS),
    ),
    Change(
        "table-swapped",
        "one subnet has another route table, without a way out",
        make_rules.other_table,
        one("subnet 0", "route table", WEAKENS),
        moves_rules=True,
    ),
)
