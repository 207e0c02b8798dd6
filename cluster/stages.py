"""What one stage of a packet's way answers: the ports it stops, why, and what was not read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, FrozenSet, Iterable, List, Optional, Tuple

from cluster.lookup import Gap
from cluster.ports import PortSet
from cluster.rules import NO_PORT, Address, NetworkAclEntry


class Reason(str, Enum):
    """What stops a packet, in the order in which it would be met."""

    NO_EGRESS_RULE = "NO_EGRESS_RULE"
    ACL_EGRESS = "ACL_EGRESS"
    NO_ROUTE = "NO_ROUTE"
    ACL_INGRESS = "ACL_INGRESS"
    NO_INGRESS_RULE = "NO_INGRESS_RULE"
    ACL_REPLY_EGRESS = "ACL_REPLY_EGRESS"
    NO_RETURN_ROUTE = "NO_RETURN_ROUTE"
    ACL_REPLY_INGRESS = "ACL_REPLY_INGRESS"


class Explanation(str, Enum):
    """EC2's own words for it: codes of "Reachability Analyzer explanation codes" (VPC Reachability Analyzer
    guide), each used where its sentence there is true of what was found."""

    SG_HAS_NO_RULES = "SG_HAS_NO_RULES"
    ENI_SG_RULES_MISMATCH = "ENI_SG_RULES_MISMATCH"
    SUBNET_ACL_RESTRICTION = "SUBNET_ACL_RESTRICTION"
    NO_ROUTE_TO_DESTINATION = "NO_ROUTE_TO_DESTINATION"
    BAD_STATE_ROUTE = "BAD_STATE_ROUTE"
    NO_POSSIBLE_DESTINATION = "NO_POSSIBLE_DESTINATION"
    IGW_PRIVATE_DESTINATION = "IGW_DESTINATION_ADDRESS_NOT_IN_RFC1918_EGRESS"
    IGW_SHARED_DESTINATION = "IGW_DESTINATION_ADDRESS_NOT_IN_RFC6598_EGRESS"


@dataclass(frozen=True, eq=False)
class Obstacle:
    """Something that certainly stops some needed ports.

    resources: the groups, ACL or route table that decide. ports: the needed destination
    ports it stops. acl_entries: the ACL's entries that deny. explain: says in words what it
    stops between two places; of many thousands of pairs few are shown. One stage gives one object.
    """

    reason: Reason
    resources: Tuple[str, ...]
    ports: PortSet
    code: Explanation
    explain: Callable[[Place, Place], str]
    acl_entries: Tuple[NetworkAclEntry, ...] = ()


@dataclass(frozen=True)
class Stage:
    blocked: PortSet = NO_PORT
    unknown: PortSet = NO_PORT
    obstacles: Tuple[Obstacle, ...] = ()
    gaps: Tuple[Gap, ...] = ()


PASSES = Stage()


def stops(obstacle: Obstacle, unknown: PortSet = NO_PORT, gaps: Iterable[Gap] = ()) -> Stage:
    """A stage at which the obstacle stops its ports, and what else could not be told there."""
    return Stage(
        blocked=obstacle.ports,
        unknown=unknown,
        obstacles=(obstacle,) if obstacle.ports else (),
        gaps=tuple(dict.fromkeys(gaps)) if unknown else (),
    )


@dataclass(frozen=True)
class Place:
    """A member as rules see it.

    groups: those of its interface; None = not listed. signature: stands for the set of networks
    in all rules in question that hold its address; two places with equal fields but another address
    are treated alike everywhere.
    """

    groups: Optional[FrozenSet[str]]
    subnet_id: str
    vpc_id: str
    address: Address
    signature: int

    @property
    def net(self) -> Tuple[str, str]:
        """Subnet and VPC."""
        return (self.subnet_id, self.vpc_id)

    @property
    def seen_as(self) -> Tuple[Any, int]:
        """What a security group's rule can tell of it."""
        return (self.groups, self.signature)

    @property
    def key(self) -> Tuple[Any, ...]:
        return (self.groups, self.subnet_id, self.vpc_id, self.signature)


def all_gaps(stages: Iterable[Stage]) -> Tuple[Gap, ...]:
    """Every gap once, in order."""
    found: List[Gap] = [gap for stage in stages for gap in stage.gaps]
    return tuple(dict.fromkeys(found))
