"""Will this account take the cluster? Asked before money is spent, read-only, with credentials.

A synthesis knows no account. What only the account knows (which types a placement group
takes, which zone offers them, quotas, the image) is asked here. What may not be looked at is
told with the permission that is missing: ok is None then, which is never fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cluster.instance_types import EFA_TYPES_COMMAND, family_of
from cluster.spec import Capacity, ClusterSpec, Placement, PortProfile
from diagnosis.prerequisites import Check
from stacks.account import Account, UnreadError, refuses_credentials
from stacks.account_vcpus import STANDARD_FAMILIES, vcpus_in_use
from stacks.images import ROOT_DEVICE, image_parameter

BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_VERSION = 6  # what a synthesised stack asks of the account, in its rule CheckBootstrapVersion
STANDARD_QUOTA = "L-1216C47A"
"""Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances, in vCPUs."""


def examine_account(spec: ClusterSpec, session: Any) -> list[Check]:
    """What the account says to this specification, most basic first.

    session: a boto3.Session of the account and region that `cdk deploy` would use.
    """
    questions: tuple[tuple[str, Callable[[ClusterSpec, Account], Check]], ...] = (
        ("bootstrap", _bootstrap),
        ("instance type", _instance_type),
        ("zone", _zone),
        ("vCPU quota", _quota),
        ("image", _image),
        *((("reservation", _reservation),) if spec.capacity_reservation_id else ()),
    )
    account = Account(session)
    credentials = _look("credentials", _credentials, spec, account)
    if credentials.ok is not True:
        unseen = "not looked at: there are no credentials that work"
        return [credentials, *(Check(name, None, unseen, credentials.remedy) for name, _ in questions)]
    return [credentials, *(_look(name, question, spec, account) for name, question in questions)]


def _look(
    name: str,
    question: Callable[[ClusterSpec, Account], Check],
    spec: ClusterSpec,
    account: Account,
) -> Check:
    try:
        return question(spec, account)
    except UnreadError as error:
        return Check(name, None, error.found, error.remedy)


def _credentials(_spec: ClusterSpec, account: Account) -> Check:
    name, way = "credentials", "sign in, e.g. aws sso login or aws configure, and set AWS_PROFILE"
    if not account.region:
        return Check(name, False, "no region is set", "set AWS_REGION to where the cluster is to be")
    try:
        identity = account.ask("sts", "get_caller_identity")
    except UnreadError as error:
        if refuses_credentials(error):
            return Check(name, False, str(error.__cause__), way)
        raise
    return Check(name, True, f"account {identity['Account']}, region {account.region}")


def _bootstrap(_spec: ClusterSpec, account: Account) -> Check:
    way = "run: npx cdk bootstrap"
    answer = account.ask("ssm", "get_parameter", absent=("ParameterNotFound",), Name=BOOTSTRAP_PARAMETER)
    if answer is None:
        return Check("bootstrap", False, f"{BOOTSTRAP_PARAMETER} does not exist", way)
    version = str(answer["Parameter"]["Value"])
    fits = version.isdigit() and int(version) >= BOOTSTRAP_VERSION
    return Check("bootstrap", fits, f"version {version}, {BOOTSTRAP_VERSION} needed", "" if fits else way)


def _type_details(spec: ClusterSpec, account: Account) -> Any:
    answer = account.ask(
        "ec2",
        "describe_instance_types",
        absent=("InvalidInstanceType",),
        InstanceTypes=[spec.instance_type],
    )
    return answer["InstanceTypes"][0] if answer and answer["InstanceTypes"] else None


def _instance_type(spec: ClusterSpec, account: Account) -> Check:
    details = _type_details(spec, account)
    wrong = list(_wrong_type(spec, account, details))
    found = "; ".join(wrong) or f"{spec.instance_type} fits placement={spec.placement.value}"
    way = "set cluster.instance_type or cluster.placement" if wrong else ""
    if any("EFA" in line for line in wrong):
        way = f"choose one of: {EFA_TYPES_COMMAND}; or set cluster.port_profile=all"
    return Check("instance type", not wrong, found, way)


def _wrong_type(spec: ClusterSpec, account: Account, details: Any) -> Iterator[str]:
    if details is None:
        yield f"there is no {spec.instance_type} in {account.region}"
        return
    strategies = details.get("PlacementGroupInfo", {}).get("SupportedStrategies", [])
    if spec.placement is not Placement.NONE and spec.placement.value not in strategies:
        taken = ", ".join(strategies) or "no strategy"
        yield f"{spec.instance_type} goes into placement groups of {taken} only, not {spec.placement.value}"
    architectures = details.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
    if spec.architecture.value not in architectures:
        yield f"{spec.instance_type} is {', '.join(architectures)}, not {spec.architecture.value}"
    if spec.port_profile is PortProfile.EFA and not details.get("NetworkInfo", {}).get("EfaSupported"):
        yield f"{spec.instance_type} has no EFA"


def _zone(spec: ClusterSpec, account: Account) -> Check:
    if spec.vpc_id and not spec.zones:
        way = "name it: cluster.availability_zone"
        raise UnreadError(f"the subnets of {spec.vpc_id} decide the zone", way)
    wanted = spec.zones or _first_zones(account)[: spec.subnets]
    answer = account.ask(
        "ec2",
        "describe_instance_type_offerings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": [spec.instance_type]}],
    )
    offered = sorted(item["Location"] for item in answer["InstanceTypeOfferings"])
    missing = [zone for zone in wanted if zone not in offered]
    if missing or len(wanted) < spec.subnets:
        few = f"Fn::GetAZs gives {len(wanted)} of the {spec.subnets} zones needed"
        found = f"{spec.instance_type} is not offered in {', '.join(missing)}" if missing else few
        those = ", ".join(offered) or "(none in this region)"
        way = f"set cluster.availability_zone to {spec.subnets} of {those}"
        return Check("zone", False, found, way)
    return Check("zone", True, f"{spec.instance_type} is offered in {', '.join(wanted)}")


def _first_zones(account: Account) -> tuple[str, ...]:
    """As Fn::GetAZs gives them: the zones with a default subnet, or all where no zone has one.

    docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/intrinsic-function-reference-getavailabilityzones.html
    """
    default = [{"Name": "default-for-az", "Values": ["true"]}]
    subnets = account.ask("ec2", "describe_subnets", Filters=default)["Subnets"]
    with_default = {subnet["AvailabilityZone"] for subnet in subnets}
    available = [{"Name": "state", "Values": ["available"]}]
    answer = account.ask("ec2", "describe_availability_zones", Filters=available)
    kinds = {zone["ZoneName"]: zone.get("ZoneType") for zone in answer["AvailabilityZones"]}
    regular = sorted(name for name, kind in kinds.items() if kind in (None, "availability-zone"))
    return tuple(name for name in regular if name in with_default) or tuple(regular)


def _quota(spec: ClusterSpec, account: Account) -> Check:
    name = "vCPU quota"
    if spec.capacity is Capacity.BLOCK:
        return Check(name, True, "a capacity block is not counted against it")
    if family_of(spec.instance_type) not in STANDARD_FAMILIES:
        way = "aws service-quotas list-service-quotas --service-code ec2 --query Quotas[].[QuotaName,Value]"
        raise UnreadError(f"{spec.instance_type} has a quota of its own family", f"look by hand: {way}")
    details = _type_details(spec, account)
    if details is None:
        raise UnreadError(f"there is no {spec.instance_type} in {account.region}", "mend the instance type")
    needed = details["VCpuInfo"]["DefaultVCpus"] * spec.nodes
    answer = account.ask("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=STANDARD_QUOTA)
    quota = int(answer["Quota"]["Value"])
    used = vcpus_in_use(spec, account)
    fits = needed <= quota - used
    found = f"{needed} vCPUs needed, {used} of {quota} held by others"
    way = (
        "raise it: aws service-quotas request-service-quota-increase --service-code ec2 "
        f"--quota-code {STANDARD_QUOTA} --desired-value {used + needed}"
    )
    return Check(name, fits, found, "" if fits else way)


def _image(spec: ClusterSpec, account: Account) -> Check:
    image_id = spec.ami_id
    if not image_id:
        name = image_parameter(spec)
        answer = account.ask("ssm", "get_parameter", absent=("ParameterNotFound",), Name=name)
        if answer is None:
            return Check("image", False, f"{name} does not exist", "set cluster.ami_id=ami-...")
        image_id = str(answer["Parameter"]["Value"])
    answer = account.ask(
        "ec2",
        "describe_images",
        absent=("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"),
        ImageIds=[image_id],
    )
    images = answer["Images"] if answer else []
    if not images:
        found = f"there is no {image_id} in {account.region}, or it is not shared with this account"
        return Check("image", False, found, "set cluster.ami_id to an image of this region")
    (image,) = images
    device = ROOT_DEVICE[spec.operating_system]
    wrong = [
        f"{what} {actual}, {wanted} needed"
        for what, actual, wanted in (
            ("architecture", image.get("Architecture"), spec.architecture.value),
            ("state", image.get("State"), "available"),
            ("root device", image.get("RootDeviceName"), device),
        )
        if actual != wanted
    ]
    found = f"{image_id}: {'; '.join(wrong) or spec.architecture.value}"
    way = "set cluster.ami_id, cluster.operating_system and cluster.architecture so that they fit"
    return Check("image", not wrong, found, way if wrong else "")


def _reservation(spec: ClusterSpec, account: Account) -> Check:
    name, reservation_id = "reservation", spec.capacity_reservation_id
    answer = account.ask(
        "ec2",
        "describe_capacity_reservations",
        absent=("InvalidCapacityReservationId.NotFound",),
        CapacityReservationIds=[reservation_id],
    )
    found = answer["CapacityReservations"] if answer else []
    if not found:
        return Check(
            name,
            False,
            f"there is no {reservation_id} in {account.region}",
            "find it with aws ec2 describe-capacity-reservations --filters Name=state,Values=active",
        )
    (reservation,) = found
    wrong = [
        f"{what} {actual}, not {wanted}"
        for what, actual, wanted in (
            ("state", reservation["State"], "active"),
            ("type", reservation["InstanceType"], spec.instance_type),
        )
        if actual != wanted
    ]
    zone = reservation["AvailabilityZone"]
    if spec.zones != (zone,):
        wrong.append(f"it lies in {zone}: set cluster.availability_zone={zone}")
    total, free = reservation["TotalInstanceCount"], reservation["AvailableInstanceCount"]
    if total < spec.nodes:
        wrong.append(f"{total} instances, {spec.nodes} needed")
    if reservation.get("PlacementGroupArn") and spec.placement is not Placement.NONE:
        wrong.append(f"it stands in {reservation['PlacementGroupArn']}, but the cluster makes its own group")
    if wrong:
        way = "set what is named, or use another reservation"
        return Check(name, False, f"{reservation_id}: {'; '.join(wrong)}", way)
    if free < spec.nodes:
        way = "wait until they are free, or deploy if the rest is this cluster's own"
        raise UnreadError(f"{reservation_id}: {free} of {total} instances are free now", way)
    return Check(name, True, f"{reservation_id}: {free} of {total} instances are free")
