"""Refuses a template on which the mesh could not form, or that lets anyone else in.

A synth-time validation plugin: it proves on the template, with the same judgement that
the nodes and the audit use, and checks the rules of AWS that CloudFormation would find
out only after minutes, or never. What only the deploy knows is refused as what it is: not known.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import jsii

from cluster.flows import reachability
from cluster.ports import PortSet
from cluster.rules import SecurityGroupRule, SourceKind
from cluster.spec import ClusterSpec, PortProfile
from stacks.launch_faults import Fault, launch_faults
from stacks.template_model import TemplateModel, mentions, read_template

RULES = {
    "fleet-missing": "the cluster's template holds the auto scaling group whose members are judged",
    "not-known": "what decides who reaches a member stands in the template itself",
    "mesh-impossible": "every member reaches every other one on every port that Gloo uses",
    "open-to-others": "nobody but members opens a connection to a member",
    "efa-self-rules": "with profile efa the group allows all protocols with itself, in and out",
    "efa-interface": "with profile efa the members' interface is an EFA",
    "cluster-placement": "a cluster placement group has one zone and no T type",
    "reservation": "a capacity reservation stands in a cluster placement group or in none, for one zone",
    "launch-template": "groups stand in the NetworkInterfaces block, and nothing stands beside it",
    "wait-beside-group": "nothing depends on the wait, and the wait does not depend on the group",
    "size-limits": "template, resources and user data are within CloudFormation's and EC2's limits",
}


def check(
    template: dict[str, Any], spec: ClusterSpec, outside_cidr: str = "", *, is_cluster: bool = True
) -> list[Fault]:
    """Every fault of a template.

    is_cluster: it is the cluster's own, where no fleet is a fault: nothing would be proven.
    While anything is not known, only that is told and what is surely open: what seems to be missing may
    be there.
    """
    model = read_template(template, outside_cidr=outside_cidr or spec.vpc_cidr)
    if model.unknowns and (is_cluster or model.fleets):
        return [*_not_known(model), *_others(model, outside_cidr or spec.vpc_cidr)]
    faults = list(launch_faults(template, model, spec))
    if is_cluster and not model.fleets:
        faults.append(
            Fault(
                "fleet-missing",
                "",
                "Resources",
                "no AWS::AutoScaling::AutoScalingGroup, so there is no member whose mesh could be judged",
                "launch the members from one auto scaling group with a launch template",
            )
        )
    if model.fleets:
        faults += [
            *_mesh(model, spec),
            *_others(model, outside_cidr or spec.vpc_cidr),
            *(_efa(model) if spec.port_profile is PortProfile.EFA else ()),
            *_wait(model),
        ]
    return faults


def _not_known(model: TemplateModel) -> Iterator[Fault]:
    for unknown in model.unknowns:
        yield Fault(
            "not-known",
            unknown.resource,
            unknown.location,
            f"cannot be told: {unknown.location}: {unknown.reason}",
            "write the value itself into the template, without a condition; the rest is judged then",
        )


def _mesh(model: TemplateModel, spec: ClusterSpec) -> Iterator[Fault]:
    answer = reachability(model.snapshot, model.members, spec.needed_ports, PortSet((spec.ephemeral_ports,)))
    group = model.groups[0] if model.groups else ""
    if answer.holds:
        return
    if answer.holds is None:
        gaps = "; ".join(map(str, answer.gaps)) or "the fleet has no subnet or no group"
        yield Fault(
            "mesh-impossible",
            group,
            "Properties",
            f"cannot be told: {gaps}",
            "name the group and the subnets",
        )
        return
    blocked: dict[str, None] = {}
    for run in answer.blocked_runs():
        blocked[f"tcp {run.ports}: {run.reason}"] = None
    yield Fault(
        "mesh-impossible",
        group,
        "Properties",
        f"members cannot reach each other on {'; '.join(blocked)}",
        f"allow tcp {spec.needed_ports} from the group to itself, in and out",
    )


def _others(model: TemplateModel, vpc_cidr: str) -> Iterator[Fault]:
    own = set(model.groups)
    network = ipaddress.IPv4Network(vpc_cidr, strict=False)
    for group_id in model.groups:
        group = model.snapshot.security_groups.get(group_id)
        for rule in (group.rules if group else None) or ():
            if rule.egress or (rule.kind is SourceKind.GROUP and rule.source in own):
                continue
            if not _is_fragmentation_needed(rule, network):
                yield Fault(
                    "open-to-others",
                    group_id,
                    "Properties/SecurityGroupIngress",
                    f"{rule.traffic} is open to {rule.source}, which is not the group itself",
                    "remove the rule; members need each other only, Session Manager needs none",
                )


def _is_fragmentation_needed(rule: SecurityGroupRule, network: ipaddress.IPv4Network) -> bool:
    """ICMP type 3 code 4 from the VPC: opens no connection, and without it large packets vanish."""
    inside = isinstance(rule.network, ipaddress.IPv4Network) and rule.network.subnet_of(network)
    return inside and rule.protocol == "icmp" and (rule.first, rule.last) == (3, 4)


def _efa(model: TemplateModel) -> Iterator[Fault]:
    """Rules by CIDR do not count for EFA: it needs the group by its id, all protocols, both ways."""
    for group_id in model.groups:
        group = model.snapshot.security_groups.get(group_id)
        rules = (group.rules if group else None) or ()
        for egress in (False, True):
            if not any(r.egress is egress and r.protocol == "-1" and r.source == group_id for r in rules):
                way = "out to" if egress else "in from"
                yield Fault(
                    "efa-self-rules",
                    group_id,
                    "Properties",
                    f"no rule lets all protocols {way} the group itself, so the fabric stays down",
                    f"add IpProtocol -1 {way} the group itself",
                )


def _wait(model: TemplateModel) -> Iterator[Fault]:
    waits = [logical_id for logical_id, _ in model.of_type("AWS::CloudFormation::WaitCondition")]
    groups = {logical_id for logical_id, _, _ in model.fleets}
    if not waits:
        yield Fault(
            "wait-beside-group",
            next(iter(groups)),
            "Properties",
            "no wait condition: the stack would complete without any proof",
            "wait for the verdict beside the group",
        )
    for logical_id, resource in model.resources.items():
        needed = {*mentions(resource.get("Properties", {})), *_depends_on(resource)}
        for wait in waits:
            if wait in needed:
                yield Fault(
                    "wait-beside-group",
                    logical_id,
                    "DependsOn",
                    f"{logical_id} depends on {wait}, whose id changes with every proof: updates meet cycles",
                    "let only outputs refer to the wait",
                )
            if logical_id == wait and needed & groups:
                yield Fault(
                    "wait-beside-group",
                    wait,
                    "DependsOn",
                    "the wait stands behind the group: after a failed launch it never begins",
                    "let the wait depend on what the group depends on, not on the group",
                )


def _depends_on(resource: dict[str, Any]) -> list[str]:
    value = resource.get("DependsOn", [])
    return [value] if isinstance(value, str) else list(value)


@jsii.implements(cdk.IPolicyValidationPlugin)
class Guard:
    """The plugin. Synthesis exits 1 on any fault and prints rule, place, fault and fix.

    cluster_template: file name of the template that must hold the fleet; a synthesis without that
    file is refused too, for then nothing was proven.
    unsafe_rules: the deliberate fault that was asked for: then the mesh's own fault is only
    reported (`report`), or the fault could not be demonstrated. Every other rule holds.
    """

    def __init__(
        self, spec: ClusterSpec, *, cluster_template: str, unsafe_rules: str = "", outside_cidr: str = ""
    ) -> None:
        self._spec = spec
        self._cluster_template = cluster_template
        self._unsafe_rules = unsafe_rules
        self._outside_cidr = outside_cidr

    @property
    def name(self) -> str:
        return "fullmesh-guard"

    @property
    def version(self) -> str:
        return "1.0.0"

    @property
    def rule_ids(self) -> list[str]:
        return list(RULES)

    def validate(self, context: cdk.IPolicyValidationContext) -> cdk.PolicyValidationPluginReport:
        violations = []
        names = [Path(path).name for path in context.template_paths]
        if self._cluster_template not in names:
            raise ValueError(
                f"{self._cluster_template} is not among the templates {', '.join(names) or '(none)'}, "
                "so no mesh was judged; synthesise with --all"
            )
        for path in context.template_paths:
            template = json.loads(Path(path).read_text(encoding="utf-8"))
            is_cluster = Path(path).name == self._cluster_template
            for fault in check(template, self._spec, self._outside_cidr, is_cluster=is_cluster):
                tolerated = bool(self._unsafe_rules) and fault.rule == "mesh-impossible"
                violations.append(_violation(fault, path, "warning" if tolerated else "error"))
        failing = [violation for violation in violations if violation.severity == "error"]
        return cdk.PolicyValidationPluginReport(success=not failing, violations=violations)


def _violation(fault: Fault, path: str, severity: str) -> cdk.PolicyViolation:
    return cdk.PolicyViolation(
        rule_name=fault.rule,
        description=f"{fault.detail} (must hold: {RULES[fault.rule]})",
        fix=fault.fix,
        severity=severity,
        violating_resources=[
            cdk.PolicyViolatingResource(
                resource_logical_id=fault.resource or "template",
                template_path=path,
                locations=[fault.location],
            )
        ],
    )
