"""Who may talk to whom: one group, rules that name the group itself, nobody else.

The self rules are resources of their own (CloudFormation allows no self reference
inline). One inline CIDR rule each way makes the group's lists explicit, so that
CloudFormation's drift detection compares them at all.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cluster.ports import ALL_PORTS, PortRange
from cluster.spec import ClusterSpec, PortProfile

UNSAFE_RULES = ("sg-only-master-port", "sg-no-self-ingress", "sg-no-self-egress", "sg-ports-too-narrow")
"""Deliberate faults: self rules on which the mesh cannot form. Named by the cause they raise."""

Ports = tuple[PortRange | None, ...]
"""Ports of the group's rules with itself; None = a rule for all protocols."""


class MemberGroup(Construct):
    """The security group of the members, with the rules that the port profile needs.

    unsafe_rules: a deliberate fault (`UNSAFE_RULES`), for the demonstration; blank = none.
    """

    def __init__(
        self, scope: Construct, id_: str, *, spec: ClusterSpec, vpc_id: str, cidr: str, unsafe_rules: str = ""
    ) -> None:
        super().__init__(scope, id_)
        stack_name = cdk.Stack.of(self).stack_name
        self.group = ec2.CfnSecurityGroup(
            self,
            "Group",
            vpc_id=vpc_id,
            group_description=f"fullmesh {stack_name}: members reach each other, nobody else reaches them",
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(
                    ip_protocol="icmp",
                    from_port=3,
                    to_port=4,  # type 3 code 4: without it a smaller MTU on the path is a black hole
                    cidr_ip=cidr,
                    description="fragmentation needed, from the VPC",
                )
            ],
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="tcp",
                    from_port=443,
                    to_port=443,
                    cidr_ip="0.0.0.0/0",
                    description="HTTPS: assets, rows, signal, packages",
                )
            ],
            tags=[cdk.CfnTag(key="Name", value=f"{stack_name}-members")],
        )
        self.group.override_logical_id("MemberGroup")
        self.group_id = self.group.attr_group_id
        self.rules: list[cdk.CfnResource] = []
        inward, outward = _with_fault(unsafe_rules, _self_rules(spec), spec)
        for ports in inward:
            self._ingress(ports)
        for ports in outward:
            self._egress(ports)

    def _ingress(self, ports: PortRange | None) -> None:
        self.rules.append(
            ec2.CfnSecurityGroupIngress(
                self,
                f"In{_span(ports)}",
                group_id=self.group_id,
                source_security_group_id=self.group_id,
                ip_protocol="tcp" if ports else "-1",
                from_port=ports.first if ports else None,
                to_port=ports.last if ports else None,
                description="members in",
            )
        )

    def _egress(self, ports: PortRange | None) -> None:
        self.rules.append(
            ec2.CfnSecurityGroupEgress(
                self,
                f"Out{_span(ports)}",
                group_id=self.group_id,
                destination_security_group_id=self.group_id,
                ip_protocol="tcp" if ports else "-1",
                from_port=ports.first if ports else None,
                to_port=ports.last if ports else None,
                description="members out",
            )
        )


def _self_rules(spec: ClusterSpec) -> Ports:
    if spec.port_profile is PortProfile.EFA:
        return (None,)
    return spec.needed_ports.ranges if spec.port_profile is PortProfile.PINNED else (ALL_PORTS,)


def _with_fault(unsafe_rules: str, healthy: Ports, spec: ClusterSpec) -> tuple[Ports, Ports]:
    """(inward, outward) with the deliberate fault, if there is one."""
    master = PortRange(spec.master_port, spec.master_port)
    last = spec.ephemeral_ports.last
    upper_half = PortRange((spec.ephemeral_ports.first + last) // 2 + 1, last)
    faults: dict[str, tuple[Ports, Ports]] = {
        "": (healthy, healthy),
        "sg-only-master-port": ((master,), healthy),
        "sg-no-self-ingress": ((), healthy),
        "sg-no-self-egress": (healthy, ()),
        "sg-ports-too-narrow": ((master, upper_half), healthy),
    }
    return faults[unsafe_rules]


def _span(ports: PortRange | None) -> str:
    return f"{ports.first}To{ports.last}" if ports else "All"
