"""Tries connections between a few addresses behind the lab's wall: what the kernel makes of a ruleset.

`Kernel` is the near end. The far end is a process of its own (`python -m bench.rule_kernel`) that
holds the namespaces and speaks JSON, a line a question; it dies with the near end.

A dropped packet shows only by waiting. So the caller says which connections it expects, those get
all the time they need, and the others a moment more: a packet crosses these namespaces within
the system call that sends it, so one that nothing stops has arrived by then.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.rule_world import NODES, SUBNETS, VPC_CIDR, Flow, interface_id
from lab import fabric, sandbox, syscalls

PATIENCE_S = 10.0  # for a connection that is expected: outlasts the third time that a lost packet is sent
MOMENT_S = 0.05
BACKLOG = 1024
CHECKOUT = Path(__file__).resolve().parent.parent


def ports() -> dict[str, str]:
    """Interface -> its veth, as the lab's compiler takes them."""
    return {interface_id(address): fabric.veth_name(interface_id(address)) for address in NODES}


class Kernel:
    """The nodes of `rule_world`, each a network namespace behind the VPC's."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.rule_kernel"],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": sandbox.search_path()},
        )

    def __enter__(self) -> Kernel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def connected(
        self,
        ruleset: str,
        flows: Sequence[Flow],
        expected: Collection[Flow],
        patience_s: float = PATIENCE_S,
    ) -> set[Flow]:
        """The flows that connect under an nft ruleset; any other outcome than silence is an error.

        patience_s: how long an expected connection may take before it counts as stopped.

        Raises:
            RuntimeError: the far end failed; it says how.
        """
        question = {
            "ruleset": ruleset,
            "flows": [astuple(flow) for flow in flows],
            "patience_s": patience_s,
            "expected": [number for number, flow in enumerate(flows) if flow in expected],
        }
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process that holds the namespaces has no pipes")
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        line = stdout.readline()
        answer = json.loads(line) if line else {"error": "the process that holds the namespaces has ended"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return {flows[number] for number in answer["connected"]}


class _Wall:
    """Nodes and the VPC's namespace for one ruleset, in the init of the sandbox.

    New for each: tracked connections and half-open ones of another ruleset must not be met.
    """

    def __init__(self) -> None:
        links = [_link(address, number) for number, address in enumerate(NODES)]
        self._opened: list[socket.socket] = []
        self._held = [_held_namespace() for _ in links]
        self._nodes = {link.address: namespace for link, (_, namespace) in zip(links, self._held)}
        self._fabric = fabric.Fabric()
        self._fabric.set_vpc([VPC_CIDR])
        self._fabric.plug([(link, pid) for link, (pid, _) in zip(links, self._held)])
        for link in links:
            commands = "\n".join(fabric.node_commands(link)) + "\n"
            sandbox.run_in(self._nodes[link.address], ["ip", "-batch", "-"], commands)

    def answer(self, ruleset: str, flows: list[Flow], expected: set[int], patience_s: float) -> list[int]:
        """The numbers of the flows that connected."""
        self._fabric.load_ruleset(ruleset)
        return self._try(flows, expected, patience_s)

    def close(self) -> None:
        for each in self._opened:
            each.close()
        for pid, namespace in self._held:
            os.close(namespace)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(self._fabric.namespace)

    def _try(self, flows: list[Flow], expected: set[int], patience_s: float) -> list[int]:
        wanted = {(flow.target, flow.port) for flow in flows}
        for address, namespace in self._nodes.items():
            own = sorted(port for target, port in wanted if target == address)
            self._opened += sandbox.in_namespace(namespace, lambda a=address, p=own: _listeners(a, p))  # type: ignore[misc]
        waiting: dict[int, tuple[int, socket.socket]] = {}
        poll = select.epoll()
        for address, namespace in self._nodes.items():
            own = [number for number, flow in enumerate(flows) if flow.source == address]
            sockets = sandbox.in_namespace(namespace, lambda o=own: [_dial(flows[n]) for n in o])  # type: ignore[misc]
            self._opened += sockets
            for number, each in zip(own, sockets):
                waiting[each.fileno()] = (number, each)
                poll.register(each, select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP)
        connected: list[int] = []
        missing = set(expected)
        deadline = time.monotonic() + patience_s
        while True:
            ready = poll.poll(MOMENT_S)
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                number, each = waiting[descriptor]
                error = each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise RuntimeError(f"{flows[number]}: {os.strerror(error)}")
                connected.append(number)
                missing.discard(number)
            if not ready and (not missing or time.monotonic() > deadline):
                return connected


def _link(address: str, number: int) -> fabric.Link:
    return fabric.Link(
        veth=fabric.veth_name(interface_id(address)),
        address=address,
        network=SUBNETS[NODES[address]],
        mac=f"0a:00:00:00:00:{number + 1:02x}",
    )


def _held_namespace() -> tuple[int, int]:
    """The pid of a process that holds a network namespace of its own, and that namespace's descriptor."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        os.write(told, str(sandbox.host_pid()).encode())  # /proc is the host's
        signal.pause()
        os._exit(0)
    os.close(told)
    namespace = os.open(f"/proc/{int(os.read(ready, 32))}/ns/net", os.O_RDONLY)
    os.close(ready)
    return child, namespace


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # many connections come from one port, and some ports are listened on besides
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return made


def _listeners(address: str, wanted: Sequence[int]) -> list[socket.socket]:
    made = []
    for port in wanted:
        listener = _socket()
        listener.bind((address, port))
        listener.listen(BACKLOG)
        made.append(listener)
    return made


def _dial(flow: Flow) -> socket.socket:
    caller = _socket()
    caller.setblocking(False)
    caller.bind((flow.source, flow.source_port))
    error = caller.connect_ex((flow.target, flow.port))
    if error not in (0, errno.EINPROGRESS):
        raise OSError(error, f"{flow}: {os.strerror(error)}")
    return caller


def main() -> int:
    sandbox.die_with_parent(signal.SIGKILL, os.getppid())
    child = sandbox.contain()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for line in sys.stdin:
        question = json.loads(line)
        flows = [Flow(*flow) for flow in question["flows"]]
        wall = _Wall()
        try:
            found = wall.answer(question["ruleset"], flows, set(question["expected"]), question["patience_s"])
            answer: dict[str, Any] = {"connected": found}
        except (RuntimeError, OSError) as error:
            answer = {"error": str(error)}
        finally:
            wall.close()
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
