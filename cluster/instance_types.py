"""What the name of an instance type tells, and how AWS is asked for what it does not."""

from __future__ import annotations

import re

from cluster.settings import Architecture

EFA_TYPES_COMMAND = (
    "aws ec2 describe-instance-types --filters Name=network-info.efa-supported,Values=true "
    "--query InstanceTypes[].InstanceType"
)
"""The list moves with every generation, so it is asked for and never written down."""


def family_of(instance_type: str) -> str:
    """The letters before the generation: `t` of t3a.small, `hpc` of hpc7g.4xlarge."""
    found = re.match(r"[a-z]+", instance_type)
    return found.group() if found else ""


def default_architecture(instance_type: str) -> Architecture:
    """The CPU of an instance type: a `g` after the generation's digit is Graviton."""
    family = instance_type.partition(".")[0]
    found = re.fullmatch(r"[a-z]+\d+([a-z]*)(-.*)?", family)
    graviton = found is not None and "g" in found.group(1)
    grace = "-gb" in family
    return Architecture.ARM64 if graviton or grace or family == "a1" else Architecture.X86_64
