"""What a bundle holds of this host: commands and files, each read by itself.

What is missing or may not be read says so in its own place and hides nothing else.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Iterator, List, Tuple

COMMAND_TIMEOUT_S = 10.0
MOST_BYTES = 2 * 1024 * 1024
"""Of one source: the end of a longer one is kept, where a failure stands."""

_SBIN = ("/usr/sbin", "/sbin", "/usr/local/sbin")  # not on an ordinary user's PATH

COMMANDS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("ss.txt", ("ss", "-tanoieum")),
    ("addresses.txt", ("ip", "-details", "address")),
    ("links.txt", ("ip", "-statistics", "link")),
    ("routes.txt", ("ip", "route", "show", "table", "all")),
    ("routes6.txt", ("ip", "-6", "route", "show", "table", "all")),
    ("rules.txt", ("ip", "rule")),
    ("neighbours.txt", ("ip", "neighbour")),
    ("nft.txt", ("nft", "list", "ruleset")),
    ("iptables.txt", ("iptables-save",)),
    ("chrony.txt", ("chronyc", "tracking")),
    ("journal.txt", ("journalctl", "--no-pager", "--boot", "--lines", "2000", "--unit", "fullmesh-check")),
    ("kernel.txt", ("dmesg", "--ctime")),
    ("memory.txt", ("free", "-m")),
)
FILES: Tuple[Tuple[str, str], ...] = (
    ("hosts.txt", "/etc/hosts"),
    ("resolv.txt", "/etc/resolv.conf"),
    ("nsswitch.txt", "/etc/nsswitch.conf"),
    ("os-release.txt", "/etc/os-release"),
    ("cluster-env.txt", "/etc/fullmesh/cluster.env"),
    ("cloud-init.txt", "/var/log/cloud-init-output.log"),
    ("limits.txt", "/proc/self/limits"),
    ("netstat.txt", "/proc/net/netstat"),
    ("snmp.txt", "/proc/net/snmp"),
    ("sockstat.txt", "/proc/net/sockstat"),
)
LOGS = "/var/log/fullmesh/*.log"
SYSCTL_FOLDERS = ("/proc/sys/net/ipv4", "/proc/sys/net/core", "/proc/sys/net/netfilter")


@dataclass(frozen=True)
class Piece:
    """One file of the bundle. problem: why it is empty or cut; "" = whole."""

    name: str
    text: str
    problem: str = ""


def read_host() -> Iterator[Piece]:
    """Every piece, one after the other."""
    for name, command in COMMANDS:
        yield run(name, command)
    for name, path in FILES:
        yield read(name, path)
    for path in sorted(glob.glob(LOGS)):
        yield read(f"log-{os.path.basename(path)}", path)
    yield _sysctl()
    for interface in sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else ():
        if interface != "lo":
            # The ENA driver's allowance counters are among them.
            yield run(f"ethtool-{interface}.txt", ("ethtool", "-S", interface))


def run(name: str, command: Tuple[str, ...]) -> Piece:
    """What a command prints, its errors below."""
    search = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN))
    path = shutil.which(command[0], path=search)
    if path is None:
        return Piece(name, "", f"{command[0]} is not on this host")
    try:
        done = subprocess.run(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Piece(name, "", f"{' '.join(command)} gave no answer within {COMMAND_TIMEOUT_S:g} s")
    except OSError as error:
        return Piece(name, "", f"{command[0]} cannot be run: {error.strerror}")
    problem = f"exit status {done.returncode}" if done.returncode else ""
    return _piece(name, done.stdout + done.stderr, problem)


def read(name: str, path: str) -> Piece:
    """A file's end."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size  # 0 in /proc
            file.seek(max(0, size - MOST_BYTES))
            data = file.read(MOST_BYTES)
    except OSError as error:
        return Piece(name, "", f"{path}: {error.strerror}")
    return _piece(name, data, f"the last {MOST_BYTES} bytes of {size}" if size > MOST_BYTES else "")


def _piece(name: str, data: bytes, problem: str) -> Piece:
    if len(data) > MOST_BYTES:
        problem = f"the last {MOST_BYTES} bytes of {len(data)}"
    return Piece(name, data[-MOST_BYTES:].decode(errors="replace"), problem)


def _sysctl() -> Piece:
    """net.* as `sysctl` prints it, without the tool; settings that only root may read are left out."""
    lines: List[str] = []
    for folder in SYSCTL_FOLDERS:
        for path in sorted(glob.glob(f"{folder}/*")):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    value = " ".join(file.read().split())
            except OSError:  # a folder, a setting that is written only, or another user's
                continue
            lines.append(f"{path[len('/proc/sys/') :].replace('/', '.')} = {value}")
    return Piece("sysctl.txt", "\n".join(lines) + "\n")
