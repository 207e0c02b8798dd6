"""Several members as real processes, each with a name, an address and a network namespace of its own.

A namespace above them routes, and filters what it forwards. Everything lives below one
`unshare --kill-child`, so nothing outlives a test. Run as a script (inside that
namespace) it starts the members that standard input describes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
INSIDE = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"),
    *("--kill-child", "--mount-proc"),
)
MEMBER = ("unshare", "--uts", "--mount", "--net")
JOIN = ("nsenter", "--uts", "--mount", "--net", "--wd=.")
ABOVE = "FULLMESH_TEST_ABOVE"
TORCHRUN = "FULLMESH_TEST_TORCHRUN"
"""A member's variable: options of the torchrun that is to start its probe."""
COMMAND = "FULLMESH_TEST_COMMAND"
"""A member's variable: the shell command that it runs in place of a probe."""
GATEWAY = "10.77.255.1"


@dataclass(frozen=True)
class Ended:
    """One member's end. answer: its stdout, parsed where it is JSON."""

    status: int
    answer: Any
    log: str
    seconds: float


def address_of(rank: int) -> str:
    return f"10.77.0.{rank + 4}"


def run_cluster(
    folder: Path,
    members: list[list[str]],
    *,
    environments: list[dict[str, str]] | None = None,
    rules: str = "",
    kill: dict[int, str] | None = None,
    holding: int = 0,
    hosts: list[int] | None = None,
    above: str = "",
    timeout_s: float = 90,
) -> list[Ended]:
    """Run `python -m probe ARGUMENTS` for each member; wait for all.

    Args:
        rules: nft commands of the routing namespace.
        kill: member -> it is ended by SIGKILL once this text stands in its log.
        holding: a port that a job of each member listens on meanwhile; 0 = none.
        above: the name of a process that starts each probe, as a launcher's would; "" = none.
        hosts: each member's host, the first member of every host first; None = one host a member.
    """
    description = {
        "members": members,
        "environments": environments or [{} for _ in members],
        "rules": rules,
        "kill": kill or {},
        "holding": holding,
        "hosts": hosts or list(range(len(members))),
        "folder": str(folder),
        "above": above,
    }
    subprocess.run(
        [*INSIDE, sys.executable, __file__],
        input=json.dumps(description),
        text=True,
        check=True,
        timeout=timeout_s,
        cwd=CHECKOUT,
    )
    ended = []
    for rank in range(len(members)):
        status, seconds = json.loads((folder / f"end{rank}").read_text())
        text = (folder / f"out{rank}").read_text()
        answer = json.loads(text) if text.startswith("{") else text
        ended.append(
            Ended(status=status, answer=answer, log=(folder / f"log{rank}").read_text(), seconds=seconds)
        )
    return ended


def main() -> None:
    description = json.load(sys.stdin)
    folder = Path(description["folder"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    if description["rules"]:
        run("nft", description["rules"])
    count = len(description["members"])
    holding = str(description["holding"])
    with tempfile.NamedTemporaryFile("w", suffix="-hosts") as hosts:
        hosts.write("127.0.0.1 localhost\n" + "".join(f"{address_of(r)} node-{r}\n" for r in range(count)))
        hosts.flush()
        running: dict[int, subprocess.Popen[bytes]] = {}
        hosts_kept: list[int] = []  # held open, so that a host outlives its probe as real ones do
        for rank, arguments in enumerate(description["members"]):
            host = description["hosts"][rank]
            first = description["hosts"].index(host)
            where = MEMBER if first == rank else (*JOIN, "--target", str(running[first].pid))
            what = [hosts.name, str(host), holding] if first == rank else ["--joined", address_of(host)]
            running[rank] = subprocess.Popen(
                [*where, sys.executable, __file__, *what, *arguments],
                stdin=subprocess.PIPE,
                stdout=(folder / f"out{rank}").open("wb"),
                stderr=(folder / f"log{rank}").open("wb"),
                env={
                    **os.environ,
                    ABOVE: starter(folder, description["above"]),
                    **description["environments"][rank],
                },
            )
            if first == rank:
                hosts_kept.append(connect(host, running[rank].pid))
        for process in running.values():
            if process.stdin is not None:
                process.stdin.close()  # they all begin now
        watch(running, folder, description["kill"])
        for kept in hosts_kept:
            os.close(kept)


def starter(folder: Path, name: str) -> str:
    """A shell under that name; "" for none."""
    if not name:
        return ""
    path = folder / name
    if not path.exists():
        path.symlink_to("/bin/bash")
    return str(path)


def become_probe(arguments: list[str]) -> None:
    """Be the probe, or its parent under the name of a launcher's process."""
    command = [sys.executable, "-m", "probe", *arguments]
    options = os.environ.pop(TORCHRUN, "")
    if options:
        command[1:2] = ["-m", "torch.distributed.run", *options.split(), "-m"]
    typed = os.environ.pop(COMMAND, "")
    if typed:
        command = ["/bin/bash", "-c", typed]
    shell = os.environ.pop(ABOVE, "")
    if shell:
        command = [shell, "-c", '"$@"; exit $?', "sh", *command]
    os.execv(command[0], command)  # noqa: S606 - a member is one process


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def connect(rank: int, pid: int) -> int:
    """A veth from this namespace, which routes, to the member's; a descriptor that keeps the latter."""
    while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        time.sleep(0.005)
    run("ip", "link", "add", f"veth{rank}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "address", "add", f"{GATEWAY}/32", "dev", f"veth{rank}")
    run("ip", "link", "set", f"veth{rank}", "up")
    run("ip", "route", "add", address_of(rank), "dev", f"veth{rank}")
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)


def watch(running: dict[int, subprocess.Popen[bytes]], folder: Path, kill: dict[str, str]) -> None:
    """Write down each member's end; kill those whose log shows their marker."""
    started = time.monotonic()
    while running:
        for rank, process in tuple(running.items()):
            marker = kill.get(str(rank))
            if marker and marker in (folder / f"log{rank}").read_text():
                process.send_signal(signal.SIGKILL)
            if process.poll() is not None:
                end = [process.returncode, time.monotonic() - started]
                (folder / f"end{rank}").write_text(json.dumps(end))
                del running[rank]
        time.sleep(0.02)


def become_member(hosts: str, rank: int, holding: int, arguments: list[str]) -> None:
    """Take the member's name, host file and address, then be the probe."""
    sys.stdin.read()  # until the network is there
    socket.sethostname(f"node-{rank}")
    run("mount", "--bind", hosts, "/etc/hosts")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "address", "add", f"{address_of(rank)}/32", "dev", "eth0")
    run("ip", "route", "add", GATEWAY, "dev", "eth0")
    run("ip", "route", "add", "default", "via", GATEWAY)
    if holding:
        job = socket.create_server(("0.0.0.0", holding))
        job.set_inheritable(True)
    become_probe(arguments)


def join_host(address: str, arguments: list[str]) -> None:
    """Be another probe of a host, once its first one has made it."""
    sys.stdin.read()
    give_up_at = time.monotonic() + 30
    while address not in subprocess.check_output(["ip", "-o", "address"], text=True):
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{address} did not come up")
        time.sleep(0.01)
    become_probe(arguments)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--joined":
        join_host(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) > 1:
        become_member(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    else:
        main()
