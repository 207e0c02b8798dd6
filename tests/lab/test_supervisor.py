"""lab.supervisor and all it holds: a whole lab, spoken to as AWS, as root and as an ordinary user."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from lab import enter, state, supervisor
from lab.state import LabState, NodeState
from tests.lab.identities import IDENTITIES, Identity

pytestmark = pytest.mark.lab

RUN = """
import json, sys
from cluster.serial import decode
from lab import supervisor
options = decode(supervisor.LabOptions, json.loads(sys.argv[1]))
try:
    supervisor.run(options, lambda state: print("ready", flush=True))
except supervisor.LabError as error:
    print("error:", error, flush=True)
"""
CIDR = "10.42.0.0/16"
USER_DATA = """#!/bin/bash
echo "booted with HOME=${HOME-unset} as $(hostname)"
setsid sleep 98765 >/dev/null 2>&1 &
"""


class Lab:
    """A running lab and a client of it."""

    def __init__(self, who: Identity, **more: Any) -> None:
        self.who = who
        self.folder = who.folder()
        self.options = {
            "state_dir": str(self.folder / "state"),
            "log_dir": str(self.folder / "logs"),
            **more,
        }
        self.caller = who.start("-c", RUN, json.dumps(self.options))
        assert self.caller.stdout is not None
        line = self.caller.stdout.readline()
        assert line == "ready\n", line + self.logs()
        found = supervisor.read_state(Path(self.options["state_dir"]))
        assert found is not None
        self.url = found.endpoint_url
        self.ec2 = self.client("ec2")
        self.security_group = ""

    def client(self, name: str) -> Any:
        """A boto3 client of the lab's control plane."""
        return boto3.client(
            name,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - the lab takes any
            config=Config(proxies={}),
        )

    def state(self) -> LabState:
        """The lab's state now."""
        found = supervisor.read_state(Path(self.options["state_dir"]))
        assert found is not None, self.logs()
        return found

    def logs(self) -> str:
        """The lab's own logs, for the message of a failed test."""
        return "\n".join(path.read_text() for path in sorted((self.folder / "logs").glob("*.log")))

    def launch(self, count: int, user_data: str = USER_DATA) -> list[NodeState]:
        """Build a VPC and run instances in it; returns when they are nodes."""
        ec2, iam = self.ec2, self.client("iam")
        vpc_id = ec2.create_vpc(CidrBlock=CIDR)["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc_id, CidrBlock="10.42.0.0/20")["Subnet"]["SubnetId"]
        ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc_id)
        (table,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["RouteTables"]
        ec2.create_route(
            RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway
        )
        group = ec2.create_security_group(GroupName="mesh", Description="mesh", VpcId=vpc_id)["GroupId"]
        self.security_group = group
        self.allow(29500)
        role = iam.create_role(RoleName="node", AssumeRolePolicyDocument="{}")["Role"]["RoleName"]
        iam.create_instance_profile(InstanceProfileName="node")
        iam.add_role_to_instance_profile(InstanceProfileName="node", RoleName=role)
        ec2.run_instances(
            ImageId="ami-0123456789abcdef0",
            InstanceType="c6i.large",
            MinCount=count,
            MaxCount=count,
            UserData=user_data,
            IamInstanceProfile={"Name": "node"},
            MetadataOptions={"HttpTokens": "required"},
            SubnetId=subnet,
            SecurityGroupIds=[group],
        )
        wait_until(lambda: len(self.state().nodes) == count, self.logs)
        return list(self.state().nodes)

    def permission(self, port: int) -> list[dict[str, Any]]:
        """A port, from the group itself."""
        pairs = [{"GroupId": self.security_group}]
        return [{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "UserIdGroupPairs": pairs}]

    def allow(self, port: int) -> None:
        """Open a port between members."""
        self.ec2.authorize_security_group_ingress(
            GroupId=self.security_group, IpPermissions=self.permission(port)
        )

    def revoke(self, port: int) -> None:
        """Shut it again."""
        self.ec2.revoke_security_group_ingress(
            GroupId=self.security_group, IpPermissions=self.permission(port)
        )

    def command(self, node: NodeState, *argv: str) -> list[str]:
        """The argument list that runs `argv` inside a node, as the lab's owner."""
        inside = enter.command(self.state(), node, argv)
        if self.who.uid is None:
            return inside
        return ["setpriv", f"--reuid={self.who.uid}", f"--regid={self.who.uid}", "--clear-groups", *inside]

    def run(self, node: NodeState, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node to its end."""
        return subprocess.run(
            self.command(node, *argv), capture_output=True, text=True, check=False, timeout=60
        )

    def connects(self, source: NodeState, target: NodeState, port: int) -> str:
        """What a new connection between two nodes ends in."""
        code = (
            "import socket, sys\n"
            f"try: socket.create_connection(({target.address!r}, {port}), 2.5); print('open')\n"
            "except TimeoutError: print('dropped')\n"
            "except ConnectionRefusedError: print('refused')\n"
        )
        return self.run(source, "python3", "-c", code).stdout.strip()

    def end(self) -> None:
        """Stop the lab, however far it came."""
        self.caller.kill()
        self.caller.wait(timeout=20)


def wait_until(happened: Callable[[], bool], explain: Callable[[], str], seconds: float = 20.0) -> None:
    """Wait for something that the lab does by itself."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.05)


@pytest.fixture(params=IDENTITIES, ids=str)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab that runs, ended by the death of its caller."""
    made = Lab(request.param)
    yield made
    made.end()


def processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder, and the daemons that the nodes' user data left."""
    found = []
    for item in Path("/proc").iterdir():
        try:
            line = (item / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in line or "sleep 98765" in line:
                found.append(line)
        except (OSError, ValueError):
            continue
    return found


def test_whole_life_of_a_lab(lab: Lab) -> None:
    """Boot, names, the firewall following the API, termination, and death by SIGKILL without a trace."""
    first, second = lab.launch(2)

    # the nodes, in the order of their addresses, with their own names and logs
    assert [(n.rank, n.address, n.name) for n in (first, second)] == [
        (0, "10.42.0.4", "ip-10-42-0-4"),
        (1, "10.42.0.5", "ip-10-42-0-5"),
    ]
    log = Path(first.log)
    wait_until(lambda: "booted" in log.read_text(), lab.logs)
    assert log.read_text() == "booted with HOME=unset as ip-10-42-0-4\n"
    inside = lab.run(first, "cat", "/var/log/cloud-init-output.log")
    assert inside.stdout == log.read_text()

    # a command's status, terminal-free environment and place
    there = lab.run(second, "bash", "-c", "hostname; pwd; echo $AWS_ENDPOINT_URL; ls; exit 7")
    assert (there.returncode, there.stdout) == (7, "ip-10-42-0-5\n/root\nhttp://aws.fullmesh.internal:443\n")

    # names, through the resolver
    assert lab.run(first, "getent", "ahostsv4", second.name).stdout.split()[0] == second.address
    assert (
        lab.run(first, "getent", "hosts", second.address).stdout.split()[1] == f"{second.name}.ec2.internal"
    )
    assert lab.run(first, "getent", "hosts", "example.org").returncode == 2

    # group rules as they change: a port that is open and not listened on refuses, a shut one is silent
    assert lab.connects(first, second, 29500) == "refused"
    assert lab.connects(first, second, 40000) == "dropped"
    server = subprocess.Popen(
        lab.command(second, "python3", "-u", "-c", SERVER), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "listening\n"
    client = subprocess.Popen(
        lab.command(first, "python3", "-u", "-c", CLIENT.format(second.address)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    assert client.stdout.readline() == "connected\n"
    lab.revoke(29500)
    wait_until(lambda: lab.connects(first, second, 29500) == "dropped", lab.logs)
    client.stdin.write("go\n")
    client.stdin.flush()
    assert client.stdout.readline() == "still echoed\n"
    lab.allow(29500)
    wait_until(lambda: lab.connects(first, second, 29500) != "dropped", lab.logs)
    for process in (client, server):
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    # termination
    lab.ec2.terminate_instances(InstanceIds=[first.instance_id])
    wait_until(lambda: [n.address for n in lab.state().nodes] == [second.address], lab.logs)
    assert not Path(f"/proc/{first.pid}").exists()

    # the end
    os.kill(lab.caller.pid, signal.SIGKILL)
    lab.caller.wait(timeout=20)
    wait_until(lambda: processes_of(lab.folder) == [], lambda: "\n".join(processes_of(lab.folder)))
    assert os.listdir(lab.options["state_dir"]) == []
    assert str(lab.folder) not in Path("/proc/self/mountinfo").read_text()


SERVER = """
import socket
server = socket.create_server(("", 29500))
print("listening")
held = []
connection = server.accept()[0]
while data := connection.recv(100):
    connection.sendall(data)
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("{}", 29500), 10)
print("connected")
sys.stdin.readline()
connection.sendall(b"x")
print("still echoed" if connection.recv(1) == b"x" else "lost")
"""

BOTO = """
import boto3, json, sys
key = sys.argv[1]
s3 = boto3.client("s3")
s3.put_object(Bucket="rows", Key=key, Body=key.encode())
arn = boto3.client("sts").get_caller_identity()["Arn"]
print(json.dumps([arn, boto3.session.Session().get_credentials().method]))
"""


def test_unchanged_clients_work_inside_a_node(lab: Lab) -> None:
    """boto3 finds the role's credentials in the metadata service and the services through the relay."""
    (node,) = lab.launch(1)
    lab.client("s3").create_bucket(Bucket="rows")
    done = lab.run(node, "/opt/pytorch/bin/python", "-c", BOTO, "k")
    assert done.returncode == 0, done.stderr
    arn = f"arn:aws:sts::000000000000:assumed-role/node/{node.instance_id}"
    assert json.loads(done.stdout) == [arn, "iam-role"]
    assert lab.client("s3").get_object(Bucket="rows", Key="k")["Body"].read() == b"k"


def test_nothing_of_the_host_is_writable_or_shown(lab: Lab) -> None:
    """Programs, certificates and kernel settings are read-only, and the host's files are not there."""
    (node,) = lab.launch(1)
    script = (
        "for p in /usr /usr/bin /etc/ssl /proc/sys/kernel /sys /opt/pytorch;"
        "do test -w $p && echo $p; done;"
        "test -w /proc/sys/kernel/panic && echo panic;"
        "mount -t tmpfs x /mnt 2>/dev/null && echo mount;"
        "nft list ruleset; ls /home /srv; cat /etc/hosts; ls /sys/class/net;"
        "sysctl -qw net.ipv4.ip_local_port_range='50000 50999' && cat /proc/sys/net/ipv4/ip_local_port_range;"
        "ps -e -o comm= | grep -c sleep"
    )
    done = lab.run(node, "bash", "-c", script)
    assert done.stdout.split("\n") == [
        "/home:", "", "/srv:",
        "127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback",
        "ens5", "lo",
        "50000\t50999",
        "1", "",
    ]  # fmt: skip


def test_second_lab_with_the_same_folder_is_refused(lab: Lab) -> None:
    """It is told which lab has the folder and how to end that one."""
    done = lab.who.run("-c", RUN, json.dumps(lab.options))
    found = lab.state()
    assert done.stdout == (
        f"error: a lab is running already with this folder ({found.state_dir}, process {found.pid}, "
        f"since {found.started_at}); end it with: fullmesh lab down --state-dir {found.state_dir}\n"
    )


def test_port_that_is_taken_is_told(lab: Lab) -> None:
    """A port somebody else listens on is named, before anything is started."""
    port = int(lab.url.rpartition(":")[2])
    options = {**lab.options, "state_dir": str(lab.who.folder() / "state"), "port": port}
    done = lab.who.run("-c", RUN, json.dumps(options))
    assert done.stdout == (
        f"error: port {port} on 127.0.0.1 cannot be used (Address already in use); "
        "choose another one, or 0 for any that is free\n"
    )


def test_stop_ends_it_in_order(lab: Lab) -> None:
    """`stop` returns when the lab is gone; its caller returns without an error; the folder is free again."""
    found = lab.state()
    stop = (
        "import json, sys; from cluster.serial import decode; from lab import state, supervisor; "
        "supervisor.stop(decode(state.LabState, json.loads(sys.argv[1])))"
    )
    done = lab.who.run("-c", stop, json.dumps(dataclasses.asdict(found)))
    assert (done.returncode, done.stdout) == (0, "")
    assert lab.caller.wait(timeout=20) == 0
    assert state.read(Path(lab.options["state_dir"])) is None
    assert processes_of(lab.folder) == []


def test_death_of_the_control_plane_ends_the_lab(lab: Lab) -> None:
    """The lab does not go on half: its caller is told which part ended."""
    (child,) = [
        int(item.name)
        for item in Path("/proc").iterdir()
        if item.name.isdigit() and _is_control_plane(item, lab.url)
    ]
    os.kill(child, signal.SIGKILL)
    assert lab.caller.stdout is not None
    assert lab.caller.stdout.readline() == (
        f"error: the control plane ended with status -9; its log is {lab.folder}/logs/control-plane.log\n"
    )
    lab.caller.wait(timeout=20)
    assert processes_of(lab.folder) == []


def _is_control_plane(item: Path, url: str) -> bool:
    try:
        words = (item / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"lab.control_plane" in words and url.rpartition(":")[2].encode() in words
