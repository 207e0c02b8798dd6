"""Shapes of the stack that no other test stands up, by the real CDK command: proven, and true to their name.

Three deploys hold most settings that the default has not; one lab serves them all, each cluster
in addresses of its own.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.keys import CLUSTER_TAG
from diagnosis.report import Verdict
from lab import CHECKOUT, demo, deploy, enter, supervisor, toolchain
from lab.image import TORCH_ENVIRONMENT
from lab.progress import Progress
from lab.state import LabState, NodeState
from tests.userdata.wheels import wheel

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NODES = 2
PINNED = range(50000, 51000)
THEIR_CIDR = "10.62.0.0/16"
OTHER_TORCH = "2.13.1"
"""No image's release, so that a node takes the wheelhouse's."""
GLOO_LISTENERS = """
set -a; . /etc/fullmesh/cluster.env; set +a
RANK=$NODE_RANK "$(</run/fullmesh/torch-python)" - <<'EOF'
import json, os
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
own = {os.readlink(link) for link in links if os.path.islink(link)}
ports = []
for name in ("tcp", "tcp6"):
    for line in open(f"/proc/self/net/{name}").readlines()[1:]:
        values = line.split()
        if values[3] == "0A" and f"socket:[{values[9]}]" in own:
            ports.append(int(values[1].rpartition(":")[2], 16))
print(json.dumps(sorted(ports)))
dist.barrier()
EOF
"""


@dataclass(frozen=True)
class Standing:
    """One shape that was deployed, and the lab it stands in."""

    name: str
    lab: LabState
    result: toolchain.CdkResult

    def client(self, service: str) -> Any:
        return deploy.client(self.lab, service)

    def instances(self) -> list[dict[str, Any]]:
        tag = {"Name": f"tag:{CLUSTER_TAG}", "Values": [self.name]}
        found = self.client("ec2").describe_instances(Filters=[tag])["Reservations"]
        return [instance for reservation in found for instance in reservation["Instances"]]

    def resources(self, kind: str) -> list[str]:
        """Physical ids of the stack's resources of a type."""
        listed = self.client("cloudformation").describe_stack_resources(StackName=self.name)["StackResources"]
        return [item["PhysicalResourceId"] for item in listed if item["ResourceType"] == kind]

    def on_each(self, script: str) -> list[str]:
        """What a script printed on each node, where it ran at the same time."""
        ids = {instance["InstanceId"] for instance in self.instances()}
        members = [node for node in self.lab.nodes if node.instance_id in ids]
        assert len(members) == NODES
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda node: self._on(node, script), members))

    def _on(self, node: NodeState, script: str) -> str:
        done = subprocess.run(
            enter.command(self.lab, node, ["bash", "-ec", script]),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


# --- what each shape claims --------------------------------------------------------------------------


def pinned_in_a_reservation(standing: Standing) -> None:
    """Gloo's own listeners stand in the range; the reservation in the group is used up; behind NAT."""
    for text in standing.on_each(GLOO_LISTENERS):
        ports = [port for port in json.loads(text) if port != 29500]
        assert ports
        assert set(ports) <= set(PINNED)
    ec2 = standing.client("ec2")
    (reservation_id,) = standing.resources("AWS::EC2::CapacityReservation")
    (reservation,) = ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])[
        "CapacityReservations"
    ]
    assert (reservation["TotalInstanceCount"], reservation["AvailableInstanceCount"]) == (NODES, 0)
    (group,) = standing.resources("AWS::EC2::PlacementGroup")
    assert reservation["PlacementGroupArn"].endswith(f":placement-group/{group}")
    for instance in standing.instances():
        assert instance["CapacityReservationId"] == reservation_id
        assert instance["Placement"]["GroupName"] == group
        assert "PublicIpAddress" not in instance
        (disk,) = instance["BlockDeviceMappings"]
        assert disk["DeviceName"] == "/dev/sda1"  # Ubuntu's root; another name would be a second disk


def isolated_with_a_wheelhouse(standing: Standing) -> None:
    """torch came out of the wheelhouse, nobody was asked for it, and there is no way to the internet."""
    logs = standing.on_each("cat /run/fullmesh/torch-python /var/log/fullmesh/torch.log")
    for text in logs:
        assert text.startswith("/opt/fullmesh/torch/bin/python\n")
        assert "Looking in links: /opt/fullmesh/wheelhouse" in text
        assert f"Successfully installed torch-{OTHER_TORCH}" in text
        assert "Looking in indexes" not in text
        assert "http://" not in text.replace("s3://", "")
    ec2 = standing.client("ec2")
    (vpc,) = standing.resources("AWS::EC2::VPC")
    own = [{"Name": "vpc-id", "Values": [vpc]}]
    tables = ec2.describe_route_tables(Filters=own)["RouteTables"]
    assert not [route for table in tables for route in table["Routes"] if "0.0.0.0/0" in route.values()]
    assert {instance["Architecture"] for instance in standing.instances()} == {"arm64"}
    (group,) = standing.resources("AWS::EC2::PlacementGroup")
    (found,) = ec2.describe_placement_groups(GroupNames=[group])["PlacementGroups"]
    assert found["Strategy"] == "spread"
    functions = standing.resources("AWS::Lambda::Function")
    assert not [name for name in functions if "Audit" in name]


def in_their_vpc(standing: Standing) -> None:
    """In the given VPC's subnet and nothing of the network made; their reservation; EFA; their tags."""
    (vpc,) = {instance["VpcId"] for instance in standing.instances()}
    ec2 = standing.client("ec2")
    (found,) = ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"]
    assert found["CidrBlock"] == THEIR_CIDR
    made = ("VPC", "Subnet", "RouteTable", "InternetGateway", "VPCEndpoint")
    assert {kind: standing.resources(f"AWS::EC2::{kind}") for kind in made} == {kind: [] for kind in made}
    reservations = {instance["CapacityReservationId"] for instance in standing.instances()}
    (reservation,) = ec2.describe_capacity_reservations(CapacityReservationIds=sorted(reservations))[
        "CapacityReservations"
    ]
    assert reservation["AvailableInstanceCount"] == 0
    assert "PlacementGroupArn" not in reservation
    for instance in standing.instances():
        (interface,) = instance["NetworkInterfaces"]
        assert interface["InterfaceType"] == "efa"
    names = standing.resources("AWS::AutoScaling::AutoScalingGroup")
    groups = standing.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)
    (group,) = groups["AutoScalingGroups"]
    assert ("team", "ml") in [(tag["Key"], tag["Value"]) for tag in group["Tags"]]


@dataclass(frozen=True)
class Shape:
    """context: settings, with {fields} that `prepare` fills; arguments: more of the command's own."""

    truth: Callable[[Standing], None]
    context: dict[str, str]
    arguments: tuple[str, ...] = ()


SHAPES = {
    "pinned": Shape(
        truth=pinned_in_a_reservation,
        context={
            "network": "private",
            "port_profile": "pinned",
            "pinned_ports": f"{PINNED.start}-{PINNED.stop - 1}",
            "capacity": "reservation",
            "operating_system": "ubuntu",
            "vpc_cidr": "10.60.0.0/16",
        },
    ),
    "isolated": Shape(
        truth=isolated_with_a_wheelhouse,
        context={
            "network": "isolated",
            "torch_source": "wheelhouse",
            "wheelhouse_path": "{wheelhouse}",
            "torch_version": OTHER_TORCH,
            "instance_type": "c7g.xlarge",
            "placement": "spread",
            "audit_interval_min": "0",
            "vpc_cidr": "10.61.0.0/16",
        },
    ),
    "theirs": Shape(
        truth=in_their_vpc,
        context={
            "vpc_id": "{vpc}",
            "port_profile": "efa",
            "instance_type": "c7i.48xlarge",
            "placement": "none",
            "capacity": "existing",
            "capacity_reservation_id": "{reservation}",
            "availability_zone": "us-east-1b",
        },
        arguments=("--tags", "team=ml"),
    ),
}


# --- standing them up --------------------------------------------------------------------------------


def their_vpc(ec2: Any) -> str:
    """A VPC that somebody else made, with one public subnet."""
    vpc: str = ec2.create_vpc(CidrBlock=THEIR_CIDR)["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.62.0.0/20", AvailabilityZone="us-east-1b")
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet["Subnet"]["SubnetId"])
    return vpc


def their_reservation(ec2: Any) -> str:
    made = ec2.create_capacity_reservation(
        InstanceType="c7i.48xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1b",
        InstanceCount=NODES,
        InstanceMatchCriteria="targeted",
    )
    reservation_id: str = made["CapacityReservation"]["CapacityReservationId"]
    return reservation_id


def wheelhouse(folder: Path) -> Path:
    """A torch that leads to the image's own: real, and small enough for every run of the tests."""
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    packages = f"{TORCH_ENVIRONMENT}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    contents = {"leads_to_the_image.pth": f"{packages}\n"}
    wheel(folder, "torch", OTHER_TORCH, f"{version}-{version}-linux_{platform.machine()}", contents)
    return folder


def project_of_its_own(folder: Path) -> Path:
    """Where the CDK may write what it looks up, which goes beside cdk.json."""
    folder.mkdir()
    settings = json.loads((CHECKOUT / "cdk.json").read_text())
    (folder / "cdk.json").write_text(
        json.dumps({**settings, "app": f"{sys.executable} {CHECKOUT / 'app.py'}"})
    )
    return folder


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Standing]]:
    """All shapes, deployed by `cdk deploy` at the same time."""
    folder = tmp_path_factory.mktemp("shapes")
    options = demo.DemoOptions(state_dir=folder / "state")
    with demo.running_lab(options, Progress(quiet=True)) as started:
        assert deploy.bootstrap(started, folder / "bootstrap.log"), (folder / "bootstrap.log").read_text()
        ec2 = deploy.client(started, "ec2")
        values = {
            "vpc": their_vpc(ec2),
            "reservation": their_reservation(ec2),
            "wheelhouse": str(wheelhouse(folder / "wheelhouse")),
        }

        def stand_up(item: tuple[str, Shape]) -> toolchain.CdkResult:
            name, shape = item
            context = {"name": name, "nodes": str(NODES), **shape.context}
            given = [
                text
                for key, value in context.items()
                for text in ("-c", f"cluster.{key}={value.format(**values)}")
            ]
            return toolchain.cdk(
                ["deploy", "--all", *given, *shape.arguments],
                toolchain.environment(started.endpoint_url, started.region),
                working_dir=project_of_its_own(folder / name),
            )

        with ThreadPoolExecutor() as pool:
            results = dict(zip(SHAPES, pool.map(stand_up, SHAPES.items()), strict=True))
        running = supervisor.read_state(options.state_dir)
        assert running is not None
        yield {name: Standing(name=name, lab=running, result=result) for name, result in results.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_proven_and_what_it_claims(standing: dict[str, Standing], name: str) -> None:
    """CREATE_COMPLETE by its own nodes' PASS, and the shape's own truth."""
    shape = standing[name]
    assert shape.result.status == 0, shape.result.output[-4000:]
    newest = deploy.newest_verdict(shape.lab, name)
    assert newest is not None
    diagnosis, _ = newest
    assert (diagnosis.verdict, diagnosis.causes, diagnosis.exposed) == (Verdict.PASS, (), ())
    assert len(diagnosis.pairs) == NODES * (NODES - 1)
    assert diagnosis.collective is not None
    assert diagnosis.collective.outcome is Verdict.PASS
    SHAPES[name].truth(shape)
