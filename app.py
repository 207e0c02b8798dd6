#!/usr/bin/env python3
"""The composition root: reads context and environment, and builds the two stacks.

    cdk deploy --all -c cluster.nodes=8

Nothing else in the project reads the context or the environment of a synthesis.
"""

from __future__ import annotations

import os
import sys

import aws_cdk as cdk
from aws_cdk import aws_ssm as ssm

from audit import readings
from cluster.keys import UNSAFE_RULES_KEY
from cluster.settings import convert
from cluster.spec import ClusterSpec, SpecError
from stacks.cluster_stack import ClusterStack
from stacks.evidence_stack import EvidenceStack
from stacks.guard import Guard
from stacks.images import image_parameter
from stacks.security import UNSAFE_RULES

LIVE_KEY = "live"

NOT_LOOKED_UP = "ami-00000000000000000"
"""Stands in the template until the CLI has looked the image up; the CLI then synthesises again."""


def read_spec(app: cdk.App) -> ClusterSpec:
    """The `cluster` object of cdk.json and every `-c cluster.KEY=VALUE`.

    Raises:
        SpecError: names every value that cannot be.
    """
    return ClusterSpec.from_cdk_context(app.node.get_all_context())


def read_unsafe_rules(app: cdk.App) -> str:
    """The deliberate fault, if one is asked for."""
    value = str(app.node.try_get_context(UNSAFE_RULES_KEY) or "")
    if value and value not in UNSAFE_RULES:
        raise SpecError(
            [
                f"{UNSAFE_RULES_KEY}: {value!r} is none of {', '.join(UNSAFE_RULES)}; "
                "leave it out for a cluster that works"
            ]
        )
    return value


def image_id(scope: cdk.Stack, spec: ClusterSpec) -> str:
    """The image: as given, or the newest one, looked up once by the CLI and kept in cdk.context.json.

    A reference that CloudFormation resolves would change under an unrelated deploy and
    replace every node under a wait that stays as it is.
    """
    if spec.ami_id:
        return spec.ami_id
    if cdk.Token.is_unresolved(scope.account) or cdk.Token.is_unresolved(scope.region):
        raise ValueError(
            "no AWS account: the image is looked up in it, and the CDK found no credentials that work (or no "
            'region); log in, or point at a running lab (eval "$(.venv/bin/fullmesh lab env)"), or name an '
            "image: -c cluster.ami_id=ami-..."
        )
    return ssm.StringParameter.value_from_lookup(scope, image_parameter(spec), default_value=NOT_LOOKED_UP)


def build(app: cdk.App) -> None:
    """Both stacks, evidence first."""
    spec = read_spec(app)
    unsafe_rules = read_unsafe_rules(app)
    env = cdk.Environment(
        account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=os.environ.get("CDK_DEFAULT_REGION")
    )
    evidence = EvidenceStack(
        app,
        f"{spec.name}-evidence",
        retention_days=spec.retention_days,
        env=env,
        description=f"fullmesh {spec.name}: rows, verdicts and logs, kept {spec.retention_days} days",
    )
    cluster = ClusterStack(
        app,
        spec.name,
        spec=spec,
        image_id=image_id(evidence, spec),
        evidence=evidence.names,
        audit_reading=readings.statements,
        unsafe_rules=unsafe_rules,
        env=env,
        description=f"fullmesh {spec.name}: {spec.nodes} x {spec.instance_type}, proven by its own nodes",
    )
    cluster.add_stack_dependency(evidence, "imports its names")
    outside_cidr = "" if cdk.Token.is_unresolved(cluster.cidr) else cluster.cidr
    cdk.Validations.of(app).add_plugins(
        Guard(
            spec,
            cluster_template=cluster.template_file,
            unsafe_rules=unsafe_rules,
            outside_cidr=outside_cidr,
        )
    )
    for note in spec.notes:
        cdk.Annotations.of(cluster).add_info(note)
    if read_live(app):
        add_live_notes(cluster)
    else:
        cdk.Annotations.of(cluster).add_info(
            f"live state was not looked at (a diff compares templates): -c {LIVE_KEY}=true, or fullmesh audit"
        )


def read_live(app: cdk.App) -> bool:
    """Whether this synthesis looks at what stands.

    Raises:
        SpecError: the value is neither true nor false.
    """
    value = app.node.try_get_context(LIVE_KEY)
    try:
        return value is not None and bool(convert(bool, value))
    except ValueError as error:
        raise SpecError([f"{LIVE_KEY}: {error}; leave it out, or -c {LIVE_KEY}=true"]) from None


def add_live_notes(cluster: ClusterStack) -> None:
    """Every difference of the account from the deployed stack, at the construct that it belongs to."""
    import boto3  # noqa: PLC0415 - only where somebody wants to look

    from audit.notes import Level, live_notes  # noqa: PLC0415 - it imports boto3

    known = os.environ.get("CDK_DEFAULT_ACCOUNT", "")
    session = boto3.Session(region_name=os.environ.get("CDK_DEFAULT_REGION"))
    owners = {
        cluster.resolve(child.logical_id): child
        for child in cluster.node.find_all()
        if isinstance(child, cdk.CfnElement)
    }
    for note in live_notes(session, cluster.stack_name, known):
        says = cdk.Annotations.of(owners.get(note.logical_id, cluster))
        if note.level is Level.ERROR:
            says.add_error(note.text)
        elif note.level is Level.WARNING:
            says.add_warning_v2(note.key, note.text)
        else:
            says.add_info(note.text)


def main() -> int:
    app = cdk.App()
    try:
        build(app)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    try:
        app.synth()
    except RuntimeError as error:
        if "ValidationFailed" not in str(error):
            raise
        return 1  # CDK has printed every violation with its fix
    return 0


if __name__ == "__main__":
    sys.exit(main())
