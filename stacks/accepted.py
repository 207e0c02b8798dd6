"""Findings of cdk-nag's AwsSolutions pack that are accepted, each with its reason."""

from __future__ import annotations

import re
from typing import Any

import aws_cdk as cdk
from constructs import IConstruct

_PREFIX = "AwsSolutions::AwsSolutions-"

WILDCARDS = (
    "Describe actions know no resources; below rows/ the names of runs and members are not known "
    "before they run"
)


def accept(construct: IConstruct, reasons: dict[str, str]) -> None:
    """Accept findings on a construct. Keys: the rule and what it found, e.g. `IAM4[Policy::...]`."""
    cdk.Validations.of(construct).acknowledge(
        *(cdk.Acknowledgment(id=_PREFIX + rule, reason=reason) for rule, reason in reasons.items())
    )


def accept_wildcards(construct: IConstruct, statements: list[dict[str, Any]]) -> None:
    """Accept the wildcards in exactly these statements: cdk-nag wants every one named."""
    found = []
    for statement in statements:
        named = statement["Resource"]
        for resource in named if isinstance(named, list) else [named]:
            text = as_cdk_nag_writes(cdk.Stack.of(construct).resolve(resource))
            if "*" in text:
                found.append(f"IAM5[Resource::{text}]")
    accept(construct, dict.fromkeys(found, WILDCARDS))


def as_cdk_nag_writes(value: Any) -> str:
    """A resolved value as one line, as in the ids of cdk-nag's findings: references in angle brackets."""
    if isinstance(value, str):
        return re.sub(r"\$\{([^}]*)\}", r"<\1>", value)
    (kind, inside), *_ = value.items()
    if kind == "Fn::Join":
        return str(inside[0]).join(as_cdk_nag_writes(part) for part in inside[1])
    if kind == "Fn::ImportValue":
        return as_cdk_nag_writes(inside)
    return f"<{'.'.join(inside) if isinstance(inside, list) else inside}>"
