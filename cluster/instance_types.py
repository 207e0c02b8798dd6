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


XEN_FAMILIES = frozenset(
    ("c1", "c3", "c4", "cc2", "cr1", "d2", "f1", "g2", "g3", "g3s", "h1", "hs1",
     "i2", "i3", "m1", "m2", "m3", "m4", "p2", "p3", "r3", "r4", "t1", "t2", "x1", "x1e")
)  # fmt: skip
"""What came before the Nitro System; nothing is added to it any more.

docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-nitro-instances.html (its last section)
"""


def is_nitro(instance_type: str) -> bool:
    """Whether the type stands on the Nitro System, as every later one and every bare metal one does."""
    family, _, size = instance_type.partition(".")
    return family not in XEN_FAMILIES or size.startswith("metal")


def default_architecture(instance_type: str) -> Architecture:
    """The CPU of an instance type: a `g` after the generation's digit is Graviton."""
    family = instance_type.partition(".")[0]
    found = re.fullmatch(r"[a-z]+\d+([a-z]*)(-.*)?", family)
    graviton = found is not None and "g" in found.group(1)
    grace = "-gb" in family
    return Architecture.ARM64 if graviton or grace or family == "a1" else Architecture.X86_64
