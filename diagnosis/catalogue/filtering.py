"""Causes of the group "filtering": packets between members are dropped or refused."""

from __future__ import annotations

from diagnosis.catalogue.cause import LIVE, LOG, MESH_ECHOES, STATIC, Cause, Group

_SHOW_FIREWALL = (
    "sudo nft list ruleset",
    "sudo iptables-save",
)

CAUSES = (
    Cause(
        id="sg-only-master-port",
        group=Group.FILTERING,
        title="the security group opens MASTER_PORT only",
        meaning="Members reach each other's store port, but Gloo's own listeners are on ports that the "
        "kernel chooses from net.ipv4.ip_local_port_range, and the security group drops those.",
        decided_by="MASTER_PORT answers on every pair while the ephemeral ports time out on every pair, both "
        "directions, against proven listeners; the group's rules show it",
        seen_in=(LIVE, STATIC),
        remediation='Add the rule "all TCP from itself" to the security group.',
        commands=(
            "aws ec2 authorize-security-group-ingress --group-id {group_id} --protocol tcp --port 0-65535 "
            "--source-group {group_id}",
        ),
        explains=(*MESH_ECHOES, "sg-ports-too-narrow"),
    ),
    Cause(
        id="sg-no-self-ingress",
        group=Group.FILTERING,
        title="no rule lets members in from each other",
        meaning="A security group denies what no rule allows. Sharing a group does not by itself let its "
        "members talk: a rule has to name the group (or the members' addresses) as a source.",
        decided_by="all ports time out between the members; the rules hold no ingress from the members",
        seen_in=(LIVE, STATIC),
        remediation='Add the rule "all TCP from itself" to the security group.',
        commands=(
            "aws ec2 authorize-security-group-ingress --group-id {group_id} --protocol tcp --port 0-65535 "
            "--source-group {group_id}",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="sg-no-self-egress",
        group=Group.FILTERING,
        title="egress to members is not allowed",
        meaning="The outbound rules were narrowed (often to 443) and no longer cover the members. Security "
        "groups are stateful for replies only: the first packet needs egress at its source.",
        decided_by="all ports time out from the sending side; the rules hold no egress to the members",
        seen_in=(LIVE, STATIC),
        remediation='Add the outbound rule "all TCP to itself" to the security group.',
        commands=(
            "aws ec2 authorize-security-group-egress --group-id {group_id} --ip-permissions "
            "'IpProtocol=tcp,FromPort=0,ToPort=65535,UserIdGroupPairs=[{{GroupId={group_id}}}]'",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="sg-missing-on-node",
        group=Group.FILTERING,
        title="one node does not carry the cluster's security group",
        meaning="A rule that names a group matches the interfaces that carry it. An interface without the "
        "group neither reaches the members nor is reached by them.",
        decided_by="every pair with that node times out; the groups of its network interface",
        seen_in=(LIVE, STATIC),
        remediation="Give the node's interface the cluster's security group (the list replaces the present "
        "one).",
        commands=(
            "aws ec2 describe-network-interfaces --network-interface-ids {interface_id} --query "
            "'NetworkInterfaces[0].Groups'",
            "aws ec2 modify-network-interface-attribute --network-interface-id {interface_id} "
            "--groups {group_id}",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="sg-ports-too-narrow",
        group=Group.FILTERING,
        title="the allowed ports do not cover the nodes' ephemeral range",
        meaning="Gloo's listeners come from net.ipv4.ip_local_port_range of their node. Where the security "
        "group allows a part of that range only, the mesh works or fails by chance.",
        decided_by="some ephemeral ports answer and others time out, on every pair alike; the rules or the "
        "range show which",
        seen_in=(LIVE, STATIC),
        remediation="Allow the whole range, or set the nodes' range to what is allowed.",
        commands=(
            "aws ec2 authorize-security-group-ingress --group-id {group_id} --protocol tcp "
            "--port {first_port}-{last_port} --source-group {group_id}",
            "sudo sysctl -w net.ipv4.ip_local_port_range='{allowed_first_port} {allowed_last_port}'",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="nacl-deny",
        group=Group.FILTERING,
        title="a network ACL drops traffic between subnets",
        meaning="Network ACLs filter what crosses a subnet's edge and are stateless: the replies, which go "
        "to ephemeral ports, need a rule of their own. Nodes of one subnet never meet their ACL.",
        decided_by="only pairs across subnets time out; the ACL's entries",
        seen_in=(LIVE, STATIC),
        remediation="Allow TCP 1024-65535 and MASTER_PORT between the subnets, inbound and outbound, in "
        "both ACLs.",
        commands=(
            "aws ec2 describe-network-acls --network-acl-ids {acl_id} --query 'NetworkAcls[0].Entries'",
            "aws ec2 create-network-acl-entry --network-acl-id {acl_id} --rule-number {rule_number} "
            "--protocol tcp --port-range From=1024,To=65535 --cidr-block {subnet_cidr} --rule-action allow "
            "--ingress",
            "aws ec2 create-network-acl-entry --network-acl-id {acl_id} --rule-number {rule_number} "
            "--protocol tcp --port-range From=1024,To=65535 --cidr-block {subnet_cidr} --rule-action allow "
            "--egress",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="route-missing",
        group=Group.FILTERING,
        title="no route between two members' networks",
        meaning="Inside one VPC the local route always exists. Between VPCs both sides need a route "
        "through the peering connection or transit gateway; on a node, its own routing table can lack the "
        "way too.",
        decided_by="network unreachable at the source, or pairs across the two networks time out and the "
        "route tables show it",
        seen_in=(LIVE, STATIC),
        remediation="Add the route to the other network, on both sides.",
        commands=(
            "ip route get {peer_address}",
            "aws ec2 describe-route-tables --filters Name=association.subnet-id,Values={subnet_id} --query "
            "'RouteTables[0].Routes'",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="os-firewall-drop",
        group=Group.FILTERING,
        title="a host firewall drops silently",
        meaning="nftables, iptables, ufw or firewalld on a node drops new connections from members. It "
        "looks like a security group from outside, but AWS's rules allow the flow.",
        decided_by="the flow times out and the node's ruleset drops it, or the node does not reach itself",
        seen_in=(LIVE,),
        remediation="Let the members through the node's own firewall, with the tool that made its rules "
        "(nft, iptables, ufw or firewall-cmd); the security group is the cluster's wall.",
        commands=_SHOW_FIREWALL,
        explains=MESH_ECHOES,
    ),
    Cause(
        id="os-firewall-reject",
        group=Group.FILTERING,
        title="a host firewall rejects",
        meaning="A REJECT rule answers with a reset or an ICMP error. AWS's security groups and ACLs never "
        "do: they "
        'drop. "Connection refused" is never a security group.',
        decided_by="refused or unreachable at once while the target's listener is proven",
        seen_in=(LIVE, LOG),
        remediation="Let the members through the node's own firewall, with the tool that made its rules "
        "(nft, iptables, ufw or firewall-cmd); the security group is the cluster's wall.",
        commands=_SHOW_FIREWALL,
        explains=MESH_ECHOES,
    ),
    Cause(
        id="one-way-block",
        group=Group.FILTERING,
        title="one direction of a pair is blocked",
        meaning="New connections pass from one member to the other, but not back. Gloo dials from the "
        "numerically higher address to the lower, so it may or may not notice.",
        decided_by="the two directions of the pair differ",
        seen_in=(LIVE, STATIC),
        remediation="Compare the rules of the two members' interfaces and their host firewalls, and allow "
        "both directions.",
        commands=(
            "aws ec2 describe-instances --instance-ids {instance_id} {peer_instance_id} --query "
            "'Reservations[].Instances[].NetworkInterfaces[].Groups'",
            "sudo nft list ruleset",
        ),
        explains=("master-unreachable", "peer-not-in-collective", "timeout-too-short"),
    ),
    Cause(
        id="pair-blocked",
        group=Group.FILTERING,
        title="one pair cannot talk",
        meaning="Both members reach everyone else, but not each other. A rule for single addresses, or a "
        "broken path between two hosts, does this.",
        decided_by="all other pairs of both nodes work",
        seen_in=(LIVE,),
        remediation="Look on both nodes for a firewall rule or a route that names the other's address.",
        commands=(
            "sudo nft list ruleset",
            "ip route get {peer_address}",
        ),
        explains=("master-unreachable", "peer-not-in-collective", "timeout-too-short"),
    ),
    Cause(
        id="proxy-sidecar",
        group=Group.FILTERING,
        title="something accepts the connection and stays silent",
        meaning="A service mesh or proxy takes connections in the listener's place: the handshake "
        "succeeds, and then no data comes back or the connection is closed.",
        decided_by="connected, and something else than the echo came back, a ruleset redirects the port, or "
        "every port closes on everybody",
        seen_in=(LIVE, LOG),
        remediation="Keep MASTER_PORT and the ephemeral ports out of the proxy.",
        commands=(
            "sudo ss -ltnp",
            "sudo nft list ruleset",
            "kubectl annotate pod {name} traffic.sidecar.istio.io/excludeInboundPorts={master_port}",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="efa-self-egress",
        group=Group.FILTERING,
        title="EFA lacks the rules with the group itself",
        meaning="EFA traffic needs all protocols, in and out, with the security group itself; 0.0.0.0/0 "
        "outbound does not count for EFA.",
        decided_by="the group's rules; the fabric's error text",
        seen_in=(STATIC, LOG),
        remediation="Allow all protocols from and to the group itself.",
        commands=(
            "aws ec2 authorize-security-group-ingress --group-id {group_id} --ip-permissions "
            "'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={group_id}}}]'",
            "aws ec2 authorize-security-group-egress --group-id {group_id} --ip-permissions "
            "'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={group_id}}}]'",
        ),
    ),
)
