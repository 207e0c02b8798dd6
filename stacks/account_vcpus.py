"""How much of the account's vCPU quota others hold: what they run, and what they reserve and leave unused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cluster.instance_types import family_of
from cluster.keys import CLUSTER_TAG
from cluster.spec import ClusterSpec
from stacks.account import Account, UnreadError

STANDARD_FAMILIES = frozenset(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"))
_TYPES_AT_MOST = 100  # that one request may name


def vcpus_in_use(spec: ClusterSpec, account: Account) -> int:
    """vCPUs that count against the quota of standard on-demand instances, but not by this cluster.

    Its own nodes end before new ones start, and its own or the given reservation is what they start in. Of a
    type its default number counts: CPU options only make fewer of them.

    Raises:
        UnreadError: the account did not say.
    """
    held = _running(spec, account) + _reserved(spec, account)
    standard = Counter({kind: n for kind, n in held.items() if n and family_of(kind) in STANDARD_FAMILIES})
    each = _vcpus_of(sorted(standard), account)
    return sum(each[kind] * count for kind, count in standard.items())


def _running(spec: ClusterSpec, account: Account) -> Counter[str]:
    found: Counter[str] = Counter()
    alive = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    for page in _pages(account, "describe_instances", Filters=alive):
        for instance in (item for reservation in page["Reservations"] for item in reservation["Instances"]):
            on_demand = "InstanceLifecycle" not in instance
            if on_demand and _tags(instance).get(CLUSTER_TAG) != spec.name:
                found[instance["InstanceType"]] += 1
    return found


def _reserved(spec: ClusterSpec, account: Account) -> Counter[str]:
    """Active and unused capacity reservations count, too.

    docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-reservations.html (Limitations)
    """
    owner = account.ask("sts", "get_caller_identity")["Account"]
    found: Counter[str] = Counter()
    active = [{"Name": "state", "Values": ["active"]}]
    for page in _pages(account, "describe_capacity_reservations", Filters=active):
        for item in page["CapacityReservations"]:
            own = item["CapacityReservationId"] == spec.capacity_reservation_id
            own = own or _tags(item).get("Name") == spec.name  # as stacks/fleet.py names it
            if item["OwnerId"] == owner and item.get("ReservationType", "default") == "default" and not own:
                found[item["InstanceType"]] += item["AvailableInstanceCount"]
    return found


def _vcpus_of(types: list[str], account: Account) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(types), _TYPES_AT_MOST):
        answer = account.ask(
            "ec2", "describe_instance_types", InstanceTypes=types[start : start + _TYPES_AT_MOST]
        )
        found |= {item["InstanceType"]: item["VCpuInfo"]["DefaultVCpus"] for item in answer["InstanceTypes"]}
    unknown = [kind for kind in types if kind not in found]
    if unknown:
        raise UnreadError(
            f"EC2 does not say how many vCPUs {', '.join(unknown)} has", "aws ec2 describe-instance-types"
        )
    return found


def _pages(account: Account, operation: str, **arguments: Any) -> Iterator[Any]:
    token: dict[str, Any] = {}
    while True:
        answer = account.ask("ec2", operation, **arguments, **token)
        yield answer
        if not answer.get("NextToken"):
            return
        token = {"NextToken": answer["NextToken"]}


def _tags(item: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in item.get("Tags", ())}
