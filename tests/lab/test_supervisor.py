"""lab.supervisor and all it holds: a whole lab, spoken to as AWS, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import state
from tests.lab.identities import IDENTITIES
from tests.lab.running import RUN, Lab, wait_until

pytestmark = pytest.mark.lab


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

    # a look that falls between two steps of a deletion: the subnet is gone, and its instance not yet
    (subnet,) = lab.ec2.describe_subnets(Filters=[{"Name": "cidr-block", "Values": ["10.42.0.0/20"]}])[
        "Subnets"
    ]
    lab.ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    wait_until(lambda: f"{second.instance_id}: its subnet {subnet['SubnetId']}" in lab.logs(), lab.logs)
    assert [n.address for n in lab.state().nodes] == [second.address]
    lab.ec2.terminate_instances(InstanceIds=[second.instance_id])
    wait_until(lambda: lab.state().nodes == (), lab.logs)

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
    stop = "import sys; from lab import supervisor; supervisor.stop(int(sys.argv[1]))"
    done = lab.who.run("-c", stop, str(found.pid))
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
