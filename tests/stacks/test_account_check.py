"""What is asked of an account before a deploy: against the lab's control plane, and against refusals."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional
from urllib.parse import parse_qs

import boto3
import pytest

from cluster.spec import ClusterSpec
from diagnosis.prerequisites import Check
from stacks.account import Account
from stacks.account_check import examine_account
from stacks.account_vcpus import vcpus_in_use
from tests.lab.plane import Plane, running_plane

REGION = "us-east-1"


def session_at(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose every client speaks to `url`."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return boto3.Session(
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - checked by nobody
        region_name=REGION,
    )


def spec_of(**settings: Any) -> ClusterSpec:
    return ClusterSpec.from_context(settings)


def told(checks: list[Check]) -> dict[str, Optional[bool]]:
    return {check.name: check.ok for check in checks}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as running:
        running.client("ssm").put_parameter(
            Name="/cdk-bootstrap/hnb659fds/version", Value="29", Type="String", Overwrite=True
        )
        yield running


@pytest.mark.lab
def test_the_default_cluster_fits_the_lab_as_far_as_it_answers(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab has no quotas: that stays unknown, and is not fine."""
    spec = spec_of(availability_zone="us-east-1a", ami_id="ami-0c2023a1b2c3d4e5f")
    checks = examine_account(spec, session_at(plane.url, monkeypatch))
    assert told(checks) == {
        "credentials": True,
        "bootstrap": True,
        "instance type": True,
        "zone": True,
        "vCPU quota": None,
        "image": True,
    }
    assert all(check.remedy for check in checks if check.ok is not True)


@pytest.mark.lab
def test_each_misfit_is_found_at_its_own_check(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that no cluster group takes, a zone without it, an image of the other system."""
    spec = spec_of(ami_id="ami-0c2023a1b2c3d4e5f", placement="none", availability_zone="us-east-1z")
    spec = dataclasses.replace(
        spec,
        instance_type="t3.micro",
        placement=spec_of().placement,
        operating_system=spec_of(operating_system="ubuntu").operating_system,
    )
    found = {c.name: c for c in examine_account(spec, session_at(plane.url, monkeypatch))}
    assert found["instance type"] == Check(
        "instance type",
        False,
        "t3.micro goes into placement groups of partition, spread only, not cluster",
        "set cluster.instance_type or cluster.placement",
    )
    assert (found["zone"].ok, found["zone"].found) == (False, "t3.micro is not offered in us-east-1z")
    assert (found["image"].ok, found["image"].found) == (
        False,
        "ami-0c2023a1b2c3d4e5f: root device /dev/xvda, /dev/sda1 needed",
    )


@pytest.mark.lab
def test_a_type_without_efa_is_refused_for_profile_efa(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer lists no fabric for it, so the launch would be refused."""
    checks = examine_account(spec_of(port_profile="efa"), session_at(plane.url, monkeypatch))
    (check,) = (c for c in checks if c.name == "instance type")
    assert (check.ok, check.found) == (False, "c7i.xlarge has no EFA")
    assert "network-info.efa-supported" in check.remedy


@pytest.mark.lab
def test_a_reservation_must_lie_where_the_nodes_do(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type, zone and size are the reservation's; what differs is named with what to set."""
    made = plane.client("ec2").create_capacity_reservation(
        InstanceType="c7i.xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1b",
        InstanceCount=4,
    )
    reservation_id = made["CapacityReservation"]["CapacityReservationId"]
    session = session_at(plane.url, monkeypatch)

    def answer(**settings: Any) -> Check:
        spec = spec_of(
            capacity="existing", capacity_reservation_id=reservation_id, placement="none", **settings
        )
        (check,) = (c for c in examine_account(spec, session) if c.name == "reservation")
        return check

    assert answer(availability_zone="us-east-1b").ok is True
    wrong = answer(nodes=6)
    assert (wrong.ok, wrong.found) == (
        False,
        f"{reservation_id}: it lies in us-east-1b: set cluster.availability_zone=us-east-1b; "
        "4 instances, 6 needed",
    )


@pytest.mark.lab
def test_the_zone_is_the_one_that_the_template_gets(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fn::GetAZs leaves out a zone without a default subnet while another has one."""
    ec2, session = plane.client("ec2"), session_at(plane.url, monkeypatch)

    def answer(**settings: Any) -> Check:
        (check,) = (c for c in examine_account(spec_of(**settings), session) if c.name == "zone")
        return check

    defaults = [{"Name": "default-for-az", "Values": ["true"]}]
    first, *others = sorted(
        ec2.describe_subnets(Filters=defaults)["Subnets"], key=lambda subnet: str(subnet["AvailabilityZone"])
    )
    assert answer().found == f"c7i.xlarge is offered in {first['AvailabilityZone']}"
    ec2.delete_subnet(SubnetId=first["SubnetId"])
    assert answer().found == f"c7i.xlarge is offered in {others[0]['AvailabilityZone']}"
    for subnet in others[1:]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    few = answer(subnets=2, placement="none")
    assert (few.ok, few.found) == (False, "Fn::GetAZs gives 1 of the 2 zones needed")


@pytest.mark.lab
def test_unused_reservations_count_against_the_quota_as_running_instances_do(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others' instances and reserved room by their types' vCPUs; nothing of this cluster's, no GPU."""
    ec2, account = plane.client("ec2"), Account(session_at(plane.url, monkeypatch))
    mine = spec_of(name="mine")
    before = vcpus_in_use(mine, account)

    def launch(instance_type: str, *tags: dict[str, str]) -> None:
        ec2.run_instances(
            ImageId="ami-0123456789abcdef0",
            InstanceType=instance_type,
            MinCount=2,
            MaxCount=2,
            TagSpecifications=[{"ResourceType": "instance", "Tags": list(tags)}] if tags else [],
        )

    def reserve(*tags: dict[str, str]) -> str:
        made = ec2.create_capacity_reservation(
            InstanceType="c7i.2xlarge",
            InstancePlatform="Linux/UNIX",
            AvailabilityZone="us-east-1b",
            InstanceCount=3,
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": list(tags)}] if tags else [],
        )
        return str(made["CapacityReservation"]["CapacityReservationId"])

    launch("c7i.xlarge")
    launch("g5.xlarge")
    launch("c7i.xlarge", {"Key": "fullmesh:cluster", "Value": "mine"})
    assert vcpus_in_use(mine, account) - before == 2 * 4
    given = reserve()
    reserve({"Key": "Name", "Value": "mine"})
    assert vcpus_in_use(mine, account) - before == 2 * 4 + 3 * 8
    using = dataclasses.replace(mine, capacity_reservation_id=given)
    assert vcpus_in_use(using, account) - before == 2 * 4


class Refusing(BaseHTTPRequestHandler):
    """Speaks as AWS does to credentials that may ask who they are and nothing else."""

    expired = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        target = self.headers.get("X-Amz-Target")
        action = parse_qs(body).get("Action", [""])[0]
        if action == "GetCallerIdentity" and not self.expired:
            self._answer(
                200,
                "<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
                "<GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult>"
                "</GetCallerIdentityResponse>",
            )
        elif action == "GetCallerIdentity":
            self._answer(
                403,
                "<ErrorResponse><Error><Code>ExpiredToken</Code><Message>The security token included in the "
                "request is expired</Message></Error></ErrorResponse>",
            )
        elif target:
            self._answer(400, json.dumps({"__type": "AccessDeniedException", "message": "no"}))
        else:
            self._answer(
                403,
                "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error>"
                "</Errors></Response>",
            )

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the terminal."""


class Expired(Refusing):
    """The same, after the credentials' last hour."""

    expired = True


@contextmanager
def serving(handler: type[Refusing]) -> Iterator[str]:
    """Its address, while it answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def test_a_missing_permission_is_named_and_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question that was not answered says which permission answers it."""
    with serving(Refusing) as url:
        checks = examine_account(spec_of(), session_at(url, monkeypatch))
    assert [(c.name, c.ok, c.found) for c in checks] == [
        ("credentials", True, "account 123456789012, region us-east-1"),
        ("bootstrap", None, "not permitted: ssm:GetParameter"),
        ("instance type", None, "not permitted: ec2:DescribeInstanceTypes"),
        ("zone", None, "not permitted: ec2:DescribeSubnets"),
        ("vCPU quota", None, "not permitted: ec2:DescribeInstanceTypes"),
        ("image", None, "not permitted: ssm:GetParameter"),
    ]


def test_expired_credentials_end_the_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else was looked at then, and it is said."""
    with serving(Expired) as url:
        first, *others = examine_account(spec_of(), session_at(url, monkeypatch))
    assert (first.name, first.ok) == ("credentials", False)
    assert "ExpiredToken" in first.found
    assert {(c.ok, c.found) for c in others} == {(None, "not looked at: there are no credentials that work")}


def test_no_credentials_and_no_region_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two most common reasons for a deploy that ends before it began."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    region = examine_account(spec_of(), boto3.Session())[0]
    assert (region.ok, region.found) == (False, "no region is set")
    credentials = examine_account(spec_of(), boto3.Session(region_name=REGION))[0]
    assert (credentials.ok, credentials.found) == (False, "Unable to locate credentials")
