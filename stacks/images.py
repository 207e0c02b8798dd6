"""What an operating system's images are called and look like. No CDK: the account check uses it too."""

from __future__ import annotations

from cluster.spec import Architecture, ClusterSpec, OperatingSystem

ROOT_DEVICE = {OperatingSystem.AL2023: "/dev/xvda", OperatingSystem.UBUNTU: "/dev/sda1"}

_ARCHITECTURE_NAMES = {
    (OperatingSystem.AL2023, Architecture.X86_64): "x86_64",
    (OperatingSystem.AL2023, Architecture.ARM64): "arm64",
    (OperatingSystem.UBUNTU, Architecture.X86_64): "amd64",
    (OperatingSystem.UBUNTU, Architecture.ARM64): "arm64",
}
_PARAMETERS = {
    OperatingSystem.AL2023: "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}",
    OperatingSystem.UBUNTU: "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id",
}


def image_parameter(spec: ClusterSpec) -> str:
    """The public parameter that holds the newest image's id."""
    return _PARAMETERS[spec.operating_system].format(
        _ARCHITECTURE_NAMES[spec.operating_system, spec.architecture]
    )
