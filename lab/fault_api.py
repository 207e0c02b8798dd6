"""Faults of the account: rules, groups and entries changed through the API, as a hand or a script would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lab.fault_scene import Scene

_ENTRY_FIELDS = ("RuleNumber", "Egress", "Protocol", "RuleAction", "CidrBlock", "PortRange")


@dataclass(frozen=True)
class SelfRules:
    """The member group's TCP rules with itself narrowed to these ports; None = as deployed."""

    ingress: tuple[tuple[int, int], ...] | None = None
    egress: tuple[tuple[int, int], ...] | None = None

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        group = scene.output("MemberGroupId")
        ec2 = scene.client("ec2")
        deployed = {way: _self_permissions(ec2, group, way) for way in ("ingress", "egress")}
        wanted = {
            way: [_permission(group, first, last) for first, last in ports]
            for way, ports in (("ingress", self.ingress), ("egress", self.egress))
            if ports is not None
        }
        try:
            with scene.firewall_follows():
                for way, permissions in wanted.items():
                    _replace(ec2, group, way, permissions)
            yield
        finally:
            if {way: _self_permissions(ec2, group, way) for way in deployed} != deployed:
                with scene.firewall_follows():
                    for way, permissions in deployed.items():
                        _replace(ec2, group, way, permissions)


def _permission(group: str, first: int, last: int) -> dict[str, Any]:
    pairs = [{"GroupId": group}]
    return {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "UserIdGroupPairs": pairs}


def _self_permissions(ec2: Any, group: str, way: str) -> list[dict[str, Any]]:
    """The group's rules that name the group itself, each a permission of its own, in order of ports."""
    (found,) = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    rules = found["IpPermissions" if way == "ingress" else "IpPermissionsEgress"]
    own = [rule for rule in rules if any(pair["GroupId"] == group for pair in rule["UserIdGroupPairs"])]
    return sorted(
        (_permission(group, rule["FromPort"], rule["ToPort"]) for rule in own), key=lambda p: p["FromPort"]
    )


def _replace(ec2: Any, group: str, way: str, wanted: Sequence[Mapping[str, Any]]) -> None:
    now = _self_permissions(ec2, group, way)
    surplus = [rule for rule in now if rule not in wanted]
    missing = [rule for rule in wanted if rule not in now]
    if surplus:
        getattr(ec2, f"revoke_security_group_{way}")(GroupId=group, IpPermissions=surplus)
    if missing:
        getattr(ec2, f"authorize_security_group_{way}")(GroupId=group, IpPermissions=missing)


@dataclass(frozen=True)
class OtherGroup:
    """One node's interface carries a new group, which lets everything out, in the member group's place."""

    rank: int

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        ec2 = scene.client("ec2")
        instance_id = scene.lab.node(self.rank).instance_id
        (found,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
        interface = found["Instances"][0]["NetworkInterfaces"][0]
        deployed = [group["GroupId"] for group in interface["Groups"]]
        interface_id = interface["NetworkInterfaceId"]
        other = ec2.create_security_group(
            GroupName=f"{scene.cluster}-other", Description="not the members'", VpcId=interface["VpcId"]
        )["GroupId"]
        try:
            with scene.firewall_follows():
                ec2.modify_network_interface_attribute(NetworkInterfaceId=interface_id, Groups=[other])
            yield
        finally:
            with scene.firewall_follows():
                ec2.modify_network_interface_attribute(NetworkInterfaceId=interface_id, Groups=deployed)
            ec2.delete_security_group(GroupId=other)


@dataclass(frozen=True)
class NoLogGroup:
    """A log group of the evidence stack, by the output that names it, is gone."""

    output: str

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        logs = scene.client("logs")
        name = scene.evidence(self.output)
        logs.delete_log_group(logGroupName=name)
        try:
            yield
        finally:
            logs.create_log_group(logGroupName=name)


@dataclass(frozen=True)
class AclDeny:
    """An entry in front of all others in the members' network ACL: TCP ports from (or to) the VPC denied."""

    first_port: int
    last_port: int
    egress: bool

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        ec2 = scene.client("ec2")
        (found,) = ec2.describe_instances(InstanceIds=[scene.lab.node(0).instance_id])["Reservations"]
        vpc_id = found["Instances"][0]["VpcId"]
        (vpc,) = ec2.describe_vpcs(VpcIds=[vpc_id])["Vpcs"]
        by_vpc = [{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "default", "Values": ["true"]}]
        (acl,) = ec2.describe_network_acls(Filters=by_vpc)["NetworkAcls"]
        acl_id, deployed = acl["NetworkAclId"], _entries(acl)
        try:
            with scene.firewall_follows():
                ec2.create_network_acl_entry(
                    NetworkAclId=acl_id,
                    RuleNumber=50,
                    Protocol="6",
                    RuleAction="deny",
                    Egress=self.egress,
                    CidrBlock=vpc["CidrBlock"],
                    PortRange={"From": self.first_port, "To": self.last_port},
                )
            yield
        finally:
            (acl,) = ec2.describe_network_acls(NetworkAclIds=[acl_id])["NetworkAcls"]
            surplus = [entry for entry in _entries(acl) if entry not in deployed]
            if surplus:
                with scene.firewall_follows():
                    for entry in surplus:
                        ec2.delete_network_acl_entry(
                            NetworkAclId=acl_id, RuleNumber=entry["RuleNumber"], Egress=entry["Egress"]
                        )


def _entries(acl: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{key: entry.get(key) for key in _ENTRY_FIELDS} for entry in acl["Entries"]]
