"""A lab of a test's own, started in a process of its own and spoken to as AWS."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from lab import enter, supervisor
from lab.state import LabState, NodeState
from tests.lab.identities import Identity

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
