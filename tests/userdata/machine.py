"""A machine to boot user data on: run by test_boot.py inside namespaces of its own.

Reads one boot as JSON from each line of stdin and answers with what came of it, as JSON, on a
line of stdout. The control plane is the lab's, the metadata service is real HTTP on
169.254.169.254, the root is a fresh tmpfs with the host's programs bound read-only, and every
boot runs exactly what `stacks.user_data` renders, with an archive of the repository's own files.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

from cluster.node_config import NodeConfig
from cluster.serial import decode, encode
from stacks.user_data import render_user_data
from tests.probe.imds_server import Instance, serving
from tools.build_pyz import build

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ENDPOINT = "http://localhost:4566"
REGION = "eu-central-1"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ssl", "/etc/alternatives")
PATH = "/opt/aws-cli/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PEER_METADATA = "169.254.169.253"
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
NAME, PEER_NAME = "ip-10-9-0-5", "ip-10-9-0-6"
ENTER = ("unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec chroot "$@"', "sh")
ROLE_ID = "AROATEST"


def run(*command: str) -> None:
    """Run a set-up command; its words come with the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")


def aws(service: str) -> Any:
    """A boto3 client of the control plane, for setting up and looking."""
    return boto3.client(
        service,
        endpoint_url=ENDPOINT,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - the emulator's
    )


def network() -> None:
    """Two addresses for two members, and two for their metadata services."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
    for address, device in (("10.9.0.5/24", "v0"), ("10.9.0.6/24", "v1")):
        run("ip", "addr", "add", address, "dev", device)
        run("ip", "link", "set", device, "up")
    for address in ("169.254.169.254/32", f"{PEER_METADATA}/32"):
        run("ip", "addr", "add", address, "dev", "lo")


@contextlib.contextmanager
def control_plane(folder: Path) -> Iterator[None]:
    """The lab's control plane, until the machine is switched off."""
    where = ["--port", "4566", "--public-host", "localhost", "--public-port", "4566"]
    with (folder / "control-plane.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "lab.control_plane", *where, "--scratch", str(folder / "control-plane")],
            env={**os.environ, "HOME": str(folder)},
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
        )
    try:
        for _ in range(150):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{ENDPOINT}/_ministack/health", timeout=1).close()  # noqa: S310 - http, a constant
                break
            time.sleep(0.2)
        yield
    finally:
        server.kill()  # it would wait for its wait conditions
        server.wait()


def archive(texts: dict[str, str], files: dict[str, str]) -> bytes:
    """What a node fetches: userdata/, fullmesh.pyz, and what a boot changes (texts) or adds (files)."""
    body = io.BytesIO()
    with tempfile.TemporaryDirectory() as staging, zipfile.ZipFile(body, "w") as archived:
        build(Path(staging) / "fullmesh.pyz")
        for path in (*sorted((REPOSITORY / "userdata").glob("*.*")), Path(staging) / "fullmesh.pyz"):
            if path.name not in texts:
                archived.write(path, path.name)
        for name, text in texts.items():
            archived.writestr(name, text)
        for name, source in files.items():
            archived.write(source, name)
    return body.getvalue()


@contextlib.contextmanager
def root(folder: Path, hidden: list[str], mounts: dict[str, str], full: list[str]) -> Iterator[Path]:
    """An image's root. hidden: programs that this image lacks; mounts: place -> what it has beside /usr.

    full: folders on a disk of their own that has no byte left.
    """
    folder.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "root", str(folder))
    try:
        binds = [(path, path) for path in SYSTEM if os.path.exists(path)]
        binds.append((sys.base_prefix, sys.base_prefix))
        binds += [(source, target) for target, source in mounts.items()]
        for source, target in binds:
            place = folder / target.lstrip("/")
            if os.path.isfile(source):
                run("mount", "--bind", source, str(place))
                continue
            if os.path.islink(source) and source in SYSTEM:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(os.readlink(source))
                continue
            place.mkdir(parents=True, exist_ok=True)
            run("mount", "--rbind", source, str(place))
        for name in ("dev", "proc", "sys"):
            (folder / name).mkdir()
            run("mount", "--rbind", f"/{name}", str(folder / name))
        for name in ("etc/fullmesh", "run", "tmp", "var/tmp", "root", "empty"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n10.9.0.5 {NAME}\n10.9.0.6 {PEER_NAME}\n")
        (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        for program in hidden:
            run("mount", "--bind", "/dev/null", str(folder / program.lstrip("/")))
        for name in full:
            (folder / name).mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "-o", "size=64k", "full", str(folder / name))
            with contextlib.suppress(OSError), (folder / name / "everything").open("wb", 0) as file:
                while True:
                    file.write(bytes(4096))
        yield folder
    finally:
        run("umount", "--lazy", str(folder))


def handle(name: str) -> str:
    """The URL of a new wait condition's handle."""
    template = {
        "Resources": {
            "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
            "Wait": {
                "Type": "AWS::CloudFormation::WaitCondition",
                "DependsOn": "Handle",
                "Properties": {"Handle": {"Ref": "Handle"}, "Timeout": "120"},
            },
        }
    }
    aws("cloudformation").create_stack(StackName=name, TemplateBody=json.dumps(template))
    for _ in range(100):
        for resource in aws("cloudformation").describe_stack_resources(StackName=name)["StackResources"]:
            if resource["LogicalResourceId"] == "Handle" and resource.get("PhysicalResourceId"):
                return str(resource["PhysicalResourceId"])
        time.sleep(0.1)
    raise RuntimeError("the handle did not come up")


def signalled(name: str) -> str:
    """What the wait condition was told: "SUCCESS", the reason of its failure, or "" for nothing."""
    for _ in range(20):
        stack = aws("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        if stack["StackStatus"] == "CREATE_COMPLETE":
            return "SUCCESS"
        for event in aws("cloudformation").describe_stack_events(StackName=name)["StackEvents"]:
            if event["LogicalResourceId"] == "Wait" and event["ResourceStatus"] == "CREATE_FAILED":
                return str(event["ResourceStatusReason"])
        time.sleep(0.1)
    return ""


def rows(bucket: str) -> dict[str, Any]:
    """Every object below rows/, JSON parsed."""
    found: dict[str, Any] = {}
    for item in aws("s3").list_objects_v2(Bucket=bucket, Prefix="rows/").get("Contents", []):
        body = aws("s3").get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
        found[item["Key"]] = json.loads(body) if item["Key"].endswith(".json") else body.decode()
    return found


@functools.cache
def subnet() -> tuple[str, str]:
    """(subnet, group) of a VPC whose members reach each other and nobody else."""
    ec2 = aws("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="mesh", Description="members", VpcId=vpc)["GroupId"]
    everything = {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535}
    ec2.authorize_security_group_ingress(
        GroupId=group, IpPermissions=[{**everything, "UserIdGroupPairs": [{"GroupId": group}]}]
    )
    return ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"], group


def launch(address: str) -> str:
    """An instance at the address, for the account's own account of it; gives its id."""
    place, group = subnet()
    started = aws("ec2").run_instances(
        ImageId="ami-12345678",
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=place,
        SecurityGroupIds=[group],
        PrivateIpAddress=address,
    )
    return str(started["Instances"][0]["InstanceId"])


@contextlib.contextmanager
def package_index(folder: str) -> Iterator[None]:
    """Serve a folder as pip's index, as any web server could."""
    if not folder:
        yield
        return
    command = [sys.executable, "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", folder]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.kill()
        server.wait()


def environment(metadata: str = "") -> dict[str, str]:
    """What cloud-init gives to user data, and the control plane's address."""
    given = {"PATH": PATH, "LANG": "C.UTF-8", "AWS_ENDPOINT_URL": ENDPOINT}
    return {**given, "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata} if metadata else given


def start(folder: Path, script: str, name: str = NAME, metadata: str = "") -> subprocess.Popen[bytes]:
    """Run a script in the root, as first boot does: without HOME, without a terminal."""
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            [*ENTER, name, str(folder), "/bin/bash", "-c", script],
            env=environment(metadata),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes] | None, status: int) -> None:
    """Let the second member end as the first did; one whose companion failed would wait in vain."""
    if process is None:
        return
    try:
        process.wait(timeout=30 if status == 0 else 0.5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


PEER = """
until [[ -e /opt/fullmesh/fullmesh.pyz && -e /etc/fullmesh/config.json ]]; do sleep 0.1; done
sleep 0.5
python3 /opt/fullmesh/fullmesh.pyz node mesh &&
  exec /opt/pytorch/bin/python /opt/fullmesh/fullmesh.pyz node collective
"""


def boot(number: int, wanted: dict[str, Any], folder: Path, member_id: str) -> dict[str, Any]:
    """Boot once (or twice) and tell all that can be seen of it.

    wanted: name -> value: config (fields that differ), asset (texts that differ; None = no asset),
    files (added to it), full (folders without a byte left), hidden (programs the image lacks),
    mounts (place -> source), torch, peer (whether a second member runs), peer_runs (its script),
    stop_at (a step to be ended by SIGTERM),
    objects (key -> local file, put into the asset bucket), standing (key -> text, put into the
    rows' bucket), index (a folder to serve as a pip index at http://localhost:8000), again (run
    bootstrap.sh once more).
    """
    name = f"boot-{number}"
    s3 = aws("s3")
    for bucket in (f"rows-{number}", f"assets-{number}"):
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    if wanted.get("asset", {}) is not None:
        body = archive(wanted.get("asset", {}), wanted.get("files", {}))
        s3.put_object(Bucket=f"assets-{number}", Key="asset.zip", Body=body)
    for key, text in wanted.get("standing", {}).items():
        s3.put_object(Bucket=f"rows-{number}", Key=key, Body=text.encode())
    for key, path in wanted.get("objects", {}).items():
        s3.upload_file(path, f"assets-{number}", key)
    config = NodeConfig(
        cluster="demo",
        run="r1",
        nodes=2,
        master_port=29500,
        region=REGION,
        bucket=f"rows-{number}",
        role_id=ROLE_ID,
        handle_url=handle(name),
        deadline_s=60,
        collective_bytes=65536,
        torch_source="image",
        asset_bucket=f"assets-{number}",
    )
    config = decode(NodeConfig, {**encode(config), **wanted.get("config", {})})
    mounts = {"/opt/pytorch": sys.prefix} if wanted.get("torch", True) else {}
    with (
        root(
            folder / "root",
            wanted.get("hidden", []),
            {**mounts, **wanted.get("mounts", {})},
            wanted.get("full", []),
        ) as place,
        package_index(wanted.get("index", "")),
    ):
        (place / "user-data").write_text(
            render_user_data(config, asset_bucket=f"assets-{number}", asset_key="asset.zip")
        )
        PORT_RANGE.write_text("32768 60999")
        began = time.monotonic()
        peer = (
            start(place, wanted.get("peer_runs", PEER), PEER_NAME, f"http://{PEER_METADATA}")
            if wanted.get("peer")
            else None
        )
        node = start(place, "exec /bin/bash /user-data")
        if "stop_at" in wanted:
            log = place / "var/log/fullmesh/bootstrap.log"
            while not (log.exists() and f"{wanted['stop_at']}: begins" in log.read_text()):
                time.sleep(0.05)
            time.sleep(1)
            os.killpg(node.pid, signal.SIGTERM)
        statuses = [node.wait(timeout=150)]
        took_s = time.monotonic() - began
        end(peer, statuses[-1])
        if wanted.get("again"):
            peer = start(place, wanted.get("peer_runs", PEER), PEER_NAME, f"http://{PEER_METADATA}")
            statuses.append(start(place, "exec /bin/bash /opt/fullmesh/bootstrap.sh").wait(timeout=150))
            end(peer, statuses[-1])
        logs = {
            path.name: path.read_text(errors="replace") for path in (place / "var/log/fullmesh").glob("*")
        }
        return {
            "statuses": statuses,
            "took_s": took_s,
            "output": (place / "output").read_text(errors="replace"),
            "logs": logs,
            "member": member_id,
            "signal": signalled(name),
            "rows": rows(f"rows-{number}"),
            "files": {
                str(path.relative_to(place)): path.read_text(errors="replace")
                for path in (place / "etc").rglob("*")
                if path.is_file() and "ssl" not in path.parts and "alternatives" not in path.parts
            },
            "port_range": PORT_RANGE.read_text().split(),
        }


def main() -> None:
    folder = Path(sys.argv[1])
    network()
    member, peer = Instance(), Instance(address="10.9.0.6")
    with (
        serving(member, "169.254.169.254", 80),
        serving(peer, PEER_METADATA, 80),
        control_plane(folder),
    ):
        for instance in (member, peer):
            instance.instance_id = launch(instance.address)
        for number, line in enumerate(sys.stdin):
            answer = boot(number, json.loads(line), folder, member.instance_id)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    shutil.rmtree(folder / "root", ignore_errors=True)


if __name__ == "__main__":
    main()
