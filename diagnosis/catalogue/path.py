"""Causes of the group "path": the way between two hosts is broken or slow."""

from __future__ import annotations

from diagnosis.catalogue.cause import LIVE, LOG, MESH_ECHOES, STATIC, Cause, Group

CAUSES = (
    Cause(
        id="mtu-black-hole",
        group=Group.PATH,
        title="full-size packets vanish",
        meaning="An interface sends packets larger than the path takes, and the ICMP message that would "
        "say so is dropped: small messages pass, larger ones never arrive.",
        decided_by="a small message is echoed; one larger than a segment is repeated and never acknowledged, "
        "and in small segments it passes",
        seen_in=(LIVE,),
        remediation="Lower the interface's MTU to the path's, and let ICMP fragmentation-needed in.",
        commands=(
            "ping -c 3 -M do -s 8972 {peer_address}",
            "sudo ip link set dev {interface} mtu 1500",
            "sudo sysctl -w net.ipv4.tcp_mtu_probing=1",
        ),
        explains=(*MESH_ECHOES, "proxy-sidecar", "packet-loss"),
    ),
    Cause(
        id="host-unreachable",
        group=Group.PATH,
        title="the host does not answer on the link",
        meaning="Nobody answers for the address: the host is gone, or the address was never there.",
        decided_by="errno 113 from every member and no row; or the neighbour table, which asked in vain",
        seen_in=(LIVE, LOG),
        remediation="Check that the instance runs and holds the address.",
        commands=(
            "aws ec2 describe-network-interfaces --filters "
            "Name=addresses.private-ip-address,Values={peer_address} --query "
            "'NetworkInterfaces[].[NetworkInterfaceId,Status,Attachment.InstanceId]'",
            "ip neighbour show {peer_address}",
        ),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="asymmetric-interfaces",
        group=Group.PATH,
        title="two interfaces share a subnet",
        meaning="Replies leave by the other interface and are dropped on their way.",
        decided_by="the route that the kernel takes to a member, against the interface of the member address",
        seen_in=(LIVE, STATIC),
        remediation="Use one interface a subnet, or routes by source address.",
        commands=("ip -br address", "ip rule", "ip route get {peer_address} from {address}"),
        explains=MESH_ECHOES,
    ),
    Cause(
        id="address-overlap",
        group=Group.PATH,
        title="a local bridge covers the VPC's range",
        meaning="Docker's 172.17.0.0/16 (or another bridge) takes packets that are meant for members.",
        decided_by="the route that the kernel takes to a member leads into a local network",
        seen_in=(LIVE, STATIC),
        remediation="Give the bridge another range.",
        commands=(
            "ip route get {peer_address}",
            'echo \'{{"bip": "192.168.250.1/24"}}\' | sudo tee /etc/docker/daemon.json && '
            "sudo systemctl restart docker",
        ),
        explains=(*MESH_ECHOES, "host-unreachable", "os-firewall-reject"),
    ),
    Cause(
        id="packet-loss",
        group=Group.PATH,
        title="packets are lost",
        meaning="One message in a hundred waits for a retransmission timer (200 ms and more), and each "
        "collective is as slow as its slowest message.",
        decided_by="1 % of a gentle stream's segments, and at least 5, had to be sent again and had not come",
        seen_in=(LIVE,),
        remediation="Look for allowances that are exceeded, then for the path.",
        commands=("ethtool -S {interface} | grep allowance_exceeded", "ss -ti dst {peer_address}"),
        explains=("bandwidth-below-baseline", "timeout-too-short"),
    ),
    Cause(
        id="bandwidth-below-baseline",
        group=Group.PATH,
        title="a link is slower than the type's baseline",
        meaning="What a link of the ring carries is below four fifths of what the instance types guarantee "
        "to one flow.",
        decided_by="each link of the ring, measured over Gloo, against the baseline that EC2 tells of a type",
        seen_in=(LIVE,),
        remediation="Check the placement group and the allowances.",
        commands=(
            "aws ec2 describe-instance-types --instance-types {instance_type} --query "
            "'InstanceTypes[0].NetworkInfo.NetworkCards'",
            "ethtool -S {interface} | grep allowance_exceeded",
        ),
        decides_verdict=False,
    ),
)
