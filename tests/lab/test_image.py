"""lab.image: what a node has to start programs with."""

from __future__ import annotations

import json

import pytest

from lab import image
from tests.lab.identities import IDENTITIES, Identity

CAP_NET_ADMIN = 12
BUILD = """
import dataclasses, json, os, subprocess, sys
from pathlib import Path
from lab import image, sandbox, syscalls
init = sandbox.contain()
if init:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))
syscalls.unshare(syscalls.CLONE_NEWNET | syscalls.CLONE_NEWUTS)
system = dataclasses.replace(image.Image.of_this_machine(), needs_python3=True)
identity = image.Identity(host_name="n", domain="ec2.internal", resolver="10.42.0.2", environment={"A": "b"})
folder = Path(sys.argv[1]) / "root"
folder.mkdir()
image.build(system, identity, folder)
def output(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": system.search_path})
    return done.stdout + done.stderr
image.drop_capabilities()
print(json.dumps({
    "capabilities": output("sed", "-n", "s/^CapEff:\\t//p", "/proc/self/status"),
    "search_path": system.search_path,
    "fallback": output("/opt/python/bin/python3", "-c", "import boto3, sys; print(sys.prefix)"),
    "torch": output("/opt/pytorch/bin/python", "-c", "import boto3, sys; print(sys.prefix)"),
    "environment": Path("/etc/environment").read_text(),
    "pid": output("sh", "-c", "exec readlink /proc/1/ns/pid") == output("readlink", "/proc/self/ns/pid"),
    "devices": sorted(os.listdir("/dev")),
    "old_root": [line.split()[4] for line in open("/proc/self/mountinfo") if sys.argv[1] in line],
}))
"""


@pytest.mark.lab
@pytest.mark.parametrize("who", IDENTITIES, ids=str)
def test_root_file_system(who: Identity) -> None:
    """Python is found also where no system Python is; torch's environment stands where the AMI has it."""
    folder = who.folder()
    done = who.run("-c", BUILD, str(folder))
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    mask = int(found.pop("capabilities"), 16)
    assert [name for name, number in image._DROPPED_CAPABILITIES.items() if mask & 1 << number] == []
    assert mask & 1 << CAP_NET_ADMIN
    assert found == {
        "search_path": f"{image.SEARCH_PATH}:/opt/python/bin",
        "fallback": "/opt/pytorch\n",
        "torch": "/opt/pytorch\n",
        "environment": 'A="b"\n',
        "pid": True,
        "devices": [
            "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
            "urandom", "zero",
        ],
        "old_root": [],
    }  # fmt: skip
    assert list((folder / "root").iterdir()) == []


def test_capabilities_that_nodes_lose_have_their_kernel_names() -> None:
    """setpriv knows every name, so that a command run in a node has no more rights than its boot had."""
    assert image.bounding_set_argument().startswith("-dac_read_search,-sys_module,-sys_rawio,-sys_admin,")
    assert "net_admin" not in image.bounding_set_argument()
