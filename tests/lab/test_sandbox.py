"""lab.sandbox: what is told when the kernel refuses, and that nothing outlives a lab."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import sandbox
from tests.lab.identities import IDENTITIES, Identity

DENIED = OSError(errno.EPERM, os.strerror(errno.EPERM))

TREE = """
import os, signal, subprocess, sys, time
from lab import sandbox
sandbox.die_with_parent(signal.SIGTERM, os.getppid())
init = sandbox.contain()
if init:
    print("guard", os.getpid(), flush=True)
    os.waitpid(init, 0)
    sys.exit(0)
held = sandbox.new_network_namespace()
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        print("daemon", sandbox.host_pid(), flush=True)
        signal.pause()
print("init", sandbox.host_pid(), flush=True)
signal.pause()
"""
CALLER = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {TREE!r}]).wait()
"""


def test_limit_of_zero_is_named_with_its_way_out() -> None:
    """user.max_user_namespaces=0 is what is told, and how to change it."""
    text = sandbox.explain_refusal(
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), apparmor=None, limit="0\n", debian=None
    )
    assert text == (
        "the kernel refused to make a namespace (No space left on device): user.max_user_namespaces is 0; "
        "either run the lab as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (sudo), "
        "or allow it: sudo sysctl user.max_user_namespaces=15000"
    )


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ({"apparmor": "1\n"}, "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
        ({"debian": "0\n"}, "sudo sysctl kernel.unprivileged_userns_clone=1"),
        ({"apparmor": "0\n", "debian": "1\n", "limit": "96365\n"}, "start the container with --privileged"),
    ],
)
def test_each_setting_has_its_own_way_out(settings: dict[str, str], way: str) -> None:
    """The setting that forbids is the one whose change is advised; with none it is the container."""
    text = sandbox.explain_refusal(DENIED, **{"apparmor": None, "limit": None, "debian": None, **settings})
    assert text.endswith(f"or allow it: {way}")


@pytest.mark.lab
@pytest.mark.parametrize("who", IDENTITIES, ids=str)
def test_machine_check_passes(who: Identity) -> None:
    """What the lab needs of the kernel is granted to root and to an ordinary user."""
    done = who.run("-m", "lab.sandbox")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.lab
@pytest.mark.parametrize("victim", ["caller", "guard", "init"])
@pytest.mark.parametrize("who", IDENTITIES, ids=str)
def test_sigkill_leaves_nothing(who: Identity, victim: str) -> None:
    """Whichever of the three is killed, the other two and daemons with a session of their own end too."""
    caller = who.start("-c", CALLER)
    pids = {"caller": [caller.pid]}
    assert caller.stdout is not None
    for _ in range(4):
        name, pid = caller.stdout.readline().split()
        pids.setdefault(name, []).append(int(pid))
    assert {name: len(found) for name, found in pids.items()} == {
        "caller": 1, "guard": 1, "init": 1, "daemon": 2,
    }  # fmt: skip
    assert all(_alive(pid) for found in pids.values() for pid in found)
    os.kill(pids[victim][0], signal.SIGKILL)
    caller.wait(timeout=10)
    everyone = [pid for found in pids.values() for pid in found]
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in everyone) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in everyone if _alive(pid)] == []


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status != "Z"


@pytest.mark.lab
def test_new_namespace_is_empty_and_has_no_name() -> None:
    """A network namespace holds only a loopback that is down, and /run/netns knows nothing of it."""
    before = sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []
    script = (
        "import os\nfrom lab import sandbox\n"
        "if (init := sandbox.contain()):\n    os._exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))\n"
        "fd = sandbox.new_network_namespace()\n"
        "names = sandbox.in_namespace(fd, lambda: [n for _, n in __import__('socket').if_nameindex()])\n"
        "print(names)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=sandbox.__file__[:-15],
    )
    after = sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []
    assert (done.stdout, done.stderr, after) == ("['lo']\n", "", before)


@pytest.mark.lab
def test_refusal_of_a_real_kernel_is_told() -> None:
    """Where no further user namespace is allowed, the machine check names the setting, in one line."""
    inside = (
        "echo 0 > /proc/sys/user/max_user_namespaces && "
        'exec setpriv --bounding-set -sys_admin --inh-caps -all "$0" -m lab.sandbox'
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", inside, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "the kernel refused to make a namespace (unshare(0x10000000): No space left on device): "
        "user.max_user_namespaces is 0; "
        "either run the lab as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (sudo), "
        "or allow it: sudo sysctl user.max_user_namespaces=15000\n",
    )
