"""Reads everything an audit looks at from an account: read-only, whole, and honest about what it could not.

Documents that do not depend on each other are read side by side: one audit takes about as long
as its slowest call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from audit import node_rows, prefix_lists, readings
from audit.account import Account, Unread
from audit.aws_errors import Refusal
from audit.documents import LIST_KEYS, Documents, Json
from audit.members import Selection
from audit.readings import Reading
from audit.template import DeployedStack, Resource, deployed_stack
from cluster.keys import CLUSTER_TAG

AT_ONCE = 8
"""Calls side by side: well below EC2's request rate, and most audits need two rounds."""

NO_STACK = "there is no stack"
VPC_FLAGS = ("enableDnsSupport", "enableDnsHostnames")


class Collector:
    """Documents in the making."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._documents: dict[str, Any] = {}
        self._problems: dict[str, str] = {}
        self._denied: dict[str, None] = {}

    def result(self) -> Documents:
        return Documents(
            documents=dict(self._documents), problems=dict(self._problems), denied=tuple(sorted(self._denied))
        )

    def read(self, *work: tuple[str, Callable[[], Json]]) -> None:
        """Do the work side by side; a document that cannot be read is noted with the reason."""
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            for name, answer in [(name, pool.submit(self._try, name, job)) for name, job in work]:
                found = answer.result()
                if found is not None:
                    self._documents[name] = found

    def _try(self, name: str, job: Callable[[], Json]) -> Json | None:
        try:
            return job()
        except Unread as error:
            self._problems[name] = error.refusal.text
            if error.refusal.action:
                self._denied[error.refusal.action] = None
            return None

    def note(self, name: str, problem: str) -> None:
        self._problems.setdefault(name, problem)

    def get(self, name: str) -> Any:
        return self._documents.get(name)


def read_selected(session: Any, selection: Selection) -> Documents:
    """The documents around the instances that a selection names: what any cluster is judged by.

    session: a boto3 session with credentials and the region to look in.
    """
    account = Account(session)
    found = Collector(account)
    found.read(("identity", lambda: _identity(account)), ("instances", lambda: _selected(account, selection)))
    vpcs = sorted({*selection.vpc_ids, *_vpc_ids(found.get("instances") or {})})
    _read_vpcs(found, vpcs, "no instance is selected, so no VPC is known")
    return found.result()


def read_stack(session: Any, name: str) -> Documents:
    """The documents of a stack of ours: what it was told, and what stands.

    session: a boto3 session with credentials and the region to look in. name: the cluster's, which
    is the stack's.
    """
    account = Account(session)
    found = Collector(account)
    found.read(
        ("identity", lambda: _identity(account)),
        ("stacks", lambda: _stacks(account, name)),
        ("stack-template", lambda: _template(account, name)),
        ("stack-resources", lambda: _resources(account, name)),
    )
    stack = deployed_stack(found.result(), name)
    vpcs = _vpcs_of(stack) if stack else []
    found.read(("instances", lambda: _instances(account, name, vpcs)))
    if not vpcs:
        vpcs = _vpc_ids(found.get("instances") or {})
    _read_vpcs(found, vpcs, "the stack's VPC is not known")
    if stack is None:
        for reading in (readings.GROUPS, readings.TEMPLATE_VERSIONS, readings.VPC_ENDPOINTS):
            found.note(reading.name, "the stack was not read")
        return found.result()
    _read_parts(found, stack, vpcs)
    return found.result()


def _read_vpcs(found: Collector, vpcs: Sequence[str], otherwise: str) -> None:
    """What the VPCs hold; `otherwise` says why nothing is known where there is no VPC."""
    if not vpcs:
        for reading in readings.IN_THE_VPC:
            found.note(reading.name, otherwise)
        return
    listed = [item for item in readings.IN_THE_VPC if item is not readings.SECURITY_GROUP_RULES]
    account = found.account
    found.read(*((item.name, _by_vpc(account, item, list(vpcs))) for item in listed))
    groups = [item["GroupId"] for item in (found.get("security-groups") or {}).get("SecurityGroups", ())]
    rules = readings.SECURITY_GROUP_RULES
    lists = prefix_lists.named(found.get("security-groups") or {}, found.get("route-tables") or {})
    found.read(
        # By group, for rules know no VPC: docs.aws.amazon.com/AWSEC2/latest/APIReference/
        # API_DescribeSecurityGroupRules.html
        (rules.name, lambda: account.filtered(rules, "group-id", groups)),
        (readings.PREFIX_LISTS.name, lambda: prefix_lists.read(account, lists)),
    )


def _by_vpc(account: Account, reading: Reading, vpcs: list[str]) -> Callable[[], Json]:
    return lambda: account.filtered(reading, "vpc-id", vpcs)


def _read_parts(found: Collector, stack: DeployedStack, vpcs: list[str]) -> None:
    """What only a stack of ours is compared by."""
    account = found.account
    subnets = [item["SubnetId"] for item in (found.get("subnets") or {}).get("Subnets", ())]
    instances = _ids(found.get("instances") or {})
    work: Mapping[Reading, Callable[[], Json]] = {
        readings.VPC_ENDPOINTS: _by_vpc(account, readings.VPC_ENDPOINTS, vpcs),
        readings.NAT_GATEWAYS: _by_vpc(account, readings.NAT_GATEWAYS, vpcs),
        readings.INTERNET_GATEWAYS: lambda: account.filtered(
            readings.INTERNET_GATEWAYS, "attachment.vpc-id", vpcs
        ),
        readings.FLOW_LOGS: lambda: account.filtered(readings.FLOW_LOGS, "resource-id", [*vpcs, *subnets]),
        readings.VOLUMES: lambda: account.filtered(readings.VOLUMES, "attachment.instance-id", instances),
        readings.VPC_ATTRIBUTES: lambda: _vpc_attributes(account, vpcs),
        readings.GROUPS: lambda: _named(
            account, readings.GROUPS, "AutoScalingGroupNames", stack.ids("AWS::AutoScaling::AutoScalingGroup")
        ),
        readings.PLACEMENT_GROUPS: lambda: account.filtered(
            readings.PLACEMENT_GROUPS, "group-name", stack.ids("AWS::EC2::PlacementGroup")
        ),
        readings.TEMPLATE_VERSIONS: lambda: _versions(account, stack.ids("AWS::EC2::LaunchTemplate")),
        readings.RESERVATIONS: lambda: _named(
            account, readings.RESERVATIONS, "CapacityReservationIds", reservation_ids(stack)
        ),
    }
    found.read(
        *((reading.name, job) for reading, job in work.items()),
        ("nodes", lambda: node_rows.read(account, stack.outputs)),
    )


def reservation_ids(stack: DeployedStack) -> list[str]:
    """The stack's own reservation, or the one that its launch template names."""
    named = [
        ((template.get("LaunchTemplateData") or {}).get("CapacityReservationSpecification") or {})
        .get("CapacityReservationTarget", {})
        .get("CapacityReservationId")
        for template in stack.of_type("AWS::EC2::LaunchTemplate")
    ]
    found = [*stack.ids("AWS::EC2::CapacityReservation"), *(item for item in named if isinstance(item, str))]
    return list(dict.fromkeys(found))


def _vpcs_of(stack: DeployedStack) -> list[str]:
    """The stack's own VPC, or the one that its groups stand in."""
    own = stack.ids("AWS::EC2::VPC")
    groups: list[Resource] = list(stack.of_type("AWS::EC2::SecurityGroup"))
    return own or sorted({str(group.get("VpcId")) for group in groups if isinstance(group.get("VpcId"), str)})


def _identity(account: Account) -> Json:
    return {**(account.call(readings.IDENTITY) or {}), "Region": account.region}


def _stacks(account: Account, name: str) -> Json:
    """The stack, and the evidence's, whose exports it imports; without that they stay unknown."""
    found = _of_stack(account, name, lambda: account.pages(readings.STACKS, StackName=name))["Stacks"]
    with contextlib.suppress(Unread):
        found += account.pages(readings.STACKS, StackName=f"{name}-evidence")["Stacks"]
    return {"Stacks": found}


def _template(account: Account, name: str) -> Json:
    # Processed: what CloudFormation acts on, after macros.
    return _of_stack(
        account,
        name,
        lambda: account.call(readings.STACK_TEMPLATE, StackName=name, TemplateStage="Processed") or {},
    )


def _resources(account: Account, name: str) -> Json:
    return _of_stack(account, name, lambda: account.pages(readings.STACK_RESOURCES, StackName=name))


def _of_stack(account: Account, name: str, job: Callable[[], Json]) -> Json:
    """CloudFormation has no code of its own for a stack that is not there."""
    try:
        return job()
    except Unread as error:
        if "does not exist" not in error.refusal.text:
            raise
        where = f"{NO_STACK} {name} in {account.region}"
        raise Unread(
            Refusal(f"{where}; deploy it, or look elsewhere with AWS_REGION and AWS_PROFILE")
        ) from error


def _instances(account: Account, cluster: str, vpcs: list[str]) -> Json:
    """Everything in the VPC, strangers too, and members wherever they are."""
    tagged = account.filtered(readings.INSTANCES, f"tag:{CLUSTER_TAG}", [cluster])
    around = account.filtered(readings.INSTANCES, "vpc-id", vpcs)
    return _joined(around, tagged)


def _selected(account: Account, selection: Selection) -> Json:
    """The selected instances, and whatever else runs in their VPCs."""
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in selection.tags]
    if selection.vpc_ids:
        filters.append({"Name": "vpc-id", "Values": list(selection.vpc_ids)})
    if selection.group_ids:
        filters.append({"Name": "network-interface.group-id", "Values": list(selection.group_ids)})
    arguments: Json = {"Filters": filters} if filters else {}
    if selection.instance_ids and not filters:
        arguments["InstanceIds"] = list(selection.instance_ids)
    chosen = account.pages(readings.INSTANCES, **arguments)
    return _joined(account.filtered(readings.INSTANCES, "vpc-id", _vpc_ids(chosen)), chosen)


def _joined(first: Json, second: Json) -> Json:
    """Both documents' instances, each once."""
    held = set(_ids(first))
    more = []
    for reservation in second["Reservations"]:
        new = [item for item in reservation.get("Instances", ()) if item["InstanceId"] not in held]
        if new:
            more.append({**reservation, "Instances": new})
    return {**first, "Reservations": [*first["Reservations"], *more]}


def _ids(instances: Json) -> list[str]:
    return [
        item["InstanceId"]
        for reservation in instances.get("Reservations", ())
        for item in reservation.get("Instances", ())
    ]


def _vpc_ids(instances: Json) -> list[str]:
    found = {
        item["VpcId"]
        for reservation in instances.get("Reservations", ())
        for item in reservation.get("Instances", ())
        if item.get("VpcId")
    }
    return sorted(found)


def _named(account: Account, reading: Reading, argument: str, names: list[str]) -> Json:
    return account.pages(reading, **{argument: names}) if names else {LIST_KEYS[reading.name]: []}


def _versions(account: Account, templates: list[str]) -> Json:
    found: list[Any] = []
    for each in templates:
        found += account.pages(readings.TEMPLATE_VERSIONS, LaunchTemplateId=each)["LaunchTemplateVersions"]
    return {"LaunchTemplateVersions": found}


def _vpc_attributes(account: Account, vpcs: list[str]) -> Json:
    """Both DNS flags of each VPC, which no other call shows."""
    found = []
    for vpc in vpcs:
        entry: Json = {"VpcId": vpc}
        for flag in VPC_FLAGS:
            answer = account.call(readings.VPC_ATTRIBUTES, VpcId=vpc, Attribute=flag)
            if answer is not None:
                entry.update(answer)
        if len(entry) > 1:
            found.append(entry)
    return {"VpcAttributes": found}
