"""What the lab's services know of the instances: plain data, sent from the fleet to them as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple


@dataclass(frozen=True)
class Credentials:
    """Temporary credentials of the instance's role. expiration: UTC, ISO 8601 with a Z."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    updated: str
    expiration: str


@dataclass(frozen=True)
class InstanceFacts:
    """One instance as its own metadata service describes it.

    user_data: base64, blank = none. tags: filled only where the instance shows them.
    """

    instance_id: str
    image_id: str
    instance_type: str
    address: str
    host_name: str
    mac: str
    interface_id: str
    subnet_id: str
    subnet_cidr: str
    vpc_id: str
    vpc_cidrs: Tuple[str, ...]
    security_groups: Tuple[str, ...]
    security_group_names: Tuple[str, ...]
    zone: str
    region: str
    account_id: str
    architecture: str
    launch_time: str
    launch_index: int = 0
    reservation_id: str = ""
    public_address: str = ""
    placement_group: str = ""
    user_data: str = ""
    tags: Dict[str, str] = field(default_factory=dict)
    metadata_enabled: bool = True
    token_required: bool = False
    profile_arn: str = ""
    profile_id: str = ""
    role: str = ""
    credentials: Optional[Credentials] = None


@dataclass(frozen=True)
class Directory:
    """All that the services need to answer. vpc_cidrs: IPv4 ranges that the lab routes."""

    region: str
    vpc_cidrs: Tuple[str, ...] = ()
    instances: Tuple[InstanceFacts, ...] = ()

    @property
    def domain(self) -> str:
        """The zone of private host names in the region."""
        return "ec2.internal" if self.region == "us-east-1" else f"{self.region}.compute.internal"
