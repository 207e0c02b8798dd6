"""A node's root file system: what an instance of a machine image would find on its disk.

Built fresh in the node's own mount namespace: a tmpfs with the host's programs and libraries
bound read-only into it, and an /etc that knows this node only. Nothing of the host is writable,
no file of the host's /etc, /home, /var or /run shows, and all of it goes with the node.

The image has torch where the AWS Deep Learning AMI has it (/opt/pytorch), so a node's bootstrap
takes the same branch here as it does on that image.
"""

from __future__ import annotations

import os
import site
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from lab import syscalls

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TORCH_ENVIRONMENT = "/opt/pytorch"
_FALLBACK_BIN = "/opt/python/bin"
DISK_BYTES = 2 * 1024**3  # of memory, when a node fills it

_SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_HOST_FILES = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/debian_version",
    "/etc/system-release",
    "/etc/redhat-release",
    "/etc/protocols",
    "/etc/services",
    "/etc/mime.types",
)
_HOST_DIRECTORIES = (
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/alternatives",
)
_OWN_DIRECTORIES = (
    "dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "var",
    "run/lock", "etc/fullmesh", "etc/systemd/system", "var/cache", "var/lib/cloud/instance/scripts",
    "var/log", "var/tmp", "dev/pts", "dev/shm",
)  # fmt: skip
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_READ_ONLY_PROC = ("sys", "sysrq-trigger", "irq", "bus", "fs")
# What could reach past the namespaces when the lab runs as root. NET_ADMIN stays: a node is the
# root of its own network and may have a firewall of its own. With dac_read_search a handle of any file
# of a bound file system opens (open_by_handle_at(2)), also of those that are not bound.
_DROPPED_CAPABILITIES = {
    "dac_read_search": 2,
    "sys_module": 16,
    "sys_rawio": 17,
    "sys_admin": 21,
    "sys_boot": 22,
    "sys_time": 25,
    "mknod": 27,
    "mac_override": 32,
    "mac_admin": 33,
    "syslog": 34,
    "wake_alarm": 35,
    "block_suspend": 36,
    "perfmon": 38,
    "bpf": 39,
}


@dataclass(frozen=True)
class Identity:
    """What is the node's own in /etc.

    host_name: the short name, e.g. "ip-10-42-0-14"; domain: "ec2.internal" or
    "REGION.compute.internal"; resolver: address of the VPC's DNS server.
    """

    host_name: str
    domain: str
    resolver: str
    environment: Dict[str, str]


@dataclass(frozen=True)
class Image:
    """The host's directories that a node gets, read-only: (source on the host, target in the node)."""

    binds: Tuple[Tuple[str, str], ...]
    links: Tuple[Tuple[str, str], ...]
    torch_python: str
    needs_python3: bool

    @classmethod
    def of_this_machine(cls) -> Image:
        """The image made of this machine's programs and of the Python that runs this process."""
        binds: List[Tuple[str, str]] = []
        links: List[Tuple[str, str]] = []
        for name in _SYSTEM_DIRECTORIES:
            if os.path.islink(name):
                links.append((os.readlink(name), name))
            elif os.path.isdir(name):
                binds.append((name, name))
        for directory in _python_directories():
            if not any(_is_below(directory, source) for source, _ in binds):
                binds.append((directory, directory))
        if sys.prefix != sys.base_prefix:
            binds.append((sys.prefix, TORCH_ENVIRONMENT))
        binds += [
            (name, name) for name in _HOST_DIRECTORIES if os.path.isdir(name) and not os.path.islink(name)
        ]
        torch_python = sys.executable
        if sys.prefix != sys.base_prefix:
            torch_python = f"{TORCH_ENVIRONMENT}/bin/python"
        return cls(
            binds=tuple(binds),
            links=tuple(links),
            torch_python=torch_python,
            needs_python3=not any(os.access(f"{d}/python3", os.X_OK) for d in SEARCH_PATH.split(":")),
        )

    @property
    def search_path(self) -> str:
        """PATH of a process on the node."""
        return f"{SEARCH_PATH}:{_FALLBACK_BIN}" if self.needs_python3 else SEARCH_PATH


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _python_directories() -> Iterator[str]:
    """The running Python: its installation, its virtual environment, and what that one imports from."""
    yield os.path.realpath(sys.base_prefix)
    if sys.prefix != sys.base_prefix:
        yield sys.prefix
        base = os.path.realpath(os.path.join(sys.prefix, "bin", "python"))
        yield os.path.dirname(os.path.dirname(base))
    known = {os.path.realpath(path) for path in site.getsitepackages()}
    for path in sys.path:
        if (
            os.path.basename(path) in ("site-packages", "dist-packages")
            and os.path.realpath(path) not in known
        ):
            yield os.path.realpath(path)


def build(image: Image, identity: Identity, where: Path) -> None:
    """Make the root file system on the empty directory `where` and move this process into it.

    Call as PID 1 of the node's PID namespace, inside its mount and network namespaces.

    Raises:
        OSError: the kernel refused a mount; says which.
    """
    root = str(where)
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("node", root, "tmpfs", syscalls.MS_NOSUID, f"mode=755,size={DISK_BYTES}")
    for name in _OWN_DIRECTORIES:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for name in ("tmp", "var/tmp", "dev/shm"):
        os.chmod(f"{root}/{name}", 0o1777)  # noqa: S103 - as on any machine
    os.chmod(f"{root}/root", 0o700)
    os.symlink("/run", f"{root}/var/run")
    for target, name in image.links:
        os.symlink(target, root + name)
    for source, target in image.binds:
        _bind_read_only(source, root + target)
    _write_etc(image, identity, root)
    _make_devices(root)
    _mount_kernel_views(root)
    os.chdir(root)
    syscalls.pivot_root(".", ".")
    syscalls.unmount(".", syscalls.MNT_DETACH)
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up, for every program started from here, what could reach past the node's namespaces."""
    for number in _DROPPED_CAPABILITIES.values():
        syscalls.drop_from_bounding_set(number)


def bounding_set_argument() -> str:
    """The same as `setpriv --bounding-set` takes it."""
    return ",".join(f"-{name}" for name in _DROPPED_CAPABILITIES)


def _bind_read_only(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    syscalls.mount(source, target, flags=syscalls.MS_BIND | syscalls.MS_REC)
    syscalls.mount_setattr(target, syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID)


def _make_devices(root: str) -> None:
    for name in _DEVICES:
        Path(f"{root}/dev/{name}").touch()
        syscalls.mount(f"/dev/{name}", f"{root}/dev/{name}", flags=syscalls.MS_BIND)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    options = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("devpts", f"{root}/dev/pts", "devpts", options, "newinstance,ptmxmode=0666,mode=620")


def _mount_kernel_views(root: str) -> None:
    """A /proc of this PID namespace and a /sys of this network namespace, writable below net only."""
    options = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", f"{root}/proc", "proc", options)
    for name in _READ_ONLY_PROC:
        path = f"{root}/proc/{name}"
        if not os.path.exists(path):
            continue
        syscalls.mount(path, path, flags=syscalls.MS_BIND | syscalls.MS_REC)
        if name == "sys":
            syscalls.mount(f"{root}/proc/sys/net", f"{root}/proc/sys/net", flags=syscalls.MS_BIND)
        syscalls.mount(
            path, path, flags=syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | options
        )
    try:
        syscalls.mount("sysfs", f"{root}/sys", "sysfs", options | syscalls.MS_RDONLY)
    except PermissionError:
        # a container masks parts of the host's /sys, so a user namespace may only bind it
        _bind_read_only("/sys", f"{root}/sys")


def _write_etc(image: Image, identity: Identity, root: str) -> None:
    for name in _HOST_FILES:
        if os.path.isfile(name):
            Path(root + name).write_bytes(Path(name).read_bytes())
    for name in ("/etc/os-release", "/etc/localtime"):
        if os.path.exists(name):
            Path(root + name).write_bytes(Path(name).read_bytes())
    fqdn = f"{identity.host_name}.{identity.domain}"
    files = {
        "hostname": f"{identity.host_name}\n",
        # as on EC2's own images: a node's name is the resolver's to tell
        "hosts": "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
        "resolv.conf": f"search {identity.domain}\nnameserver {identity.resolver}\n"
        "options timeout:2 attempts:2\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
        "protocols: files\nservices: files\n",
        "host.conf": "multi on\n",
        "passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": "root:x:0:\ndaemon:x:1:\ntty:x:5:\nnogroup:x:65534:\n",
        "shells": "/bin/sh\n/bin/bash\n",
        "environment": "".join(f'{key}="{value}"\n' for key, value in sorted(identity.environment.items())),
        "motd": f"{fqdn} is a node of the fullmesh lab: a network namespace, not an EC2 instance\n",
    }
    for name, text in files.items():
        Path(f"{root}/etc/{name}").write_text(text)
    os.symlink("/proc/self/mounts", f"{root}/etc/mtab")
    if image.needs_python3:
        wrapper = Path(f"{root}{_FALLBACK_BIN}/python3")
        wrapper.parent.mkdir(parents=True)
        # a symlink would lose the virtual environment, which Python finds beside the name it was started by
        wrapper.write_text(f'#!/bin/sh\nexec {image.torch_python} "$@"\n')
        wrapper.chmod(0o755)
