"""Where a fault happens: a running lab with one deployed cluster, and what an injection is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab import deploy, enter, state
from lab.state import LabState

FIREWALL_TIMEOUT_S = 10.0  # the lab promises a second; a loaded machine takes several times that
# A change of several API calls reaches the firewall in several steps, one a look of the lab (0.3 s and more).
_FIREWALL_QUIET_S = 0.8


class FaultError(RuntimeError):
    """A fault could not be injected, or not be undone; says at which step."""


@dataclass(frozen=True)
class Scene:
    """A running lab and the name of the cluster deployed in it."""

    lab: LabState
    cluster: str = "fullmesh"

    def client(self, service: str) -> Any:
        """A boto3 client of the lab's control plane."""
        return deploy.client(self.lab, service)

    def output(self, name: str) -> str:
        """An output of the cluster's stack.

        Raises:
            FaultError: the stack has none of that name.
        """
        return self._output(self.cluster, name)

    def evidence(self, name: str) -> str:
        """An output of the cluster's evidence stack.

        Raises:
            FaultError: the stack has none of that name.
        """
        return self._output(f"{self.cluster}-evidence", name)

    def _output(self, stack: str, name: str) -> str:
        found = deploy.outputs(self.lab, stack)
        if name not in found:
            raise FaultError(
                f"stack {stack} has no output {name}, it has {', '.join(found) or 'none'}; deploy it"
            )
        return found[name]

    def on_node(self, rank: int, script: str) -> str:
        """Run a script on a node as its root; what it printed.

        Raises:
            FaultError: it failed; holds what it said.
        """
        return self._run(
            enter.command(self.lab, self.lab.node(rank), ["bash", "-ec", script]), f"node {rank}"
        )

    def set_host_name(self, rank: int, name: str) -> None:
        """Give a node another host name, until the next one.

        Raises:
            FaultError: the kernel refused.
        """
        work = "import socket, sys; socket.sethostname(sys.argv[1])"
        argv = [sys.executable, "-c", work, name]
        self._run(enter.uts_command(self.lab, self.lab.node(rank), argv), f"node {rank}")

    def on_network(self, argv: Sequence[str], text: str = "") -> str:
        """Run a command between the nodes, in the VPC's namespace; what it printed.

        Raises:
            FaultError: it failed; holds what it said.
        """
        return self._run(enter.network_command(self.lab, argv), "the VPC", text)

    def _run(self, command: Sequence[str], where: str, text: str = "") -> str:
        done = subprocess.run(list(command), input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise FaultError(f"on {where}: {command[-1]!r} ended with {done.returncode}: {said}")
        return done.stdout

    @contextmanager
    def firewall_follows(self) -> Iterator[None]:
        """API calls inside that change rules are in the kernel's firewall after it.

        Raises:
            FaultError: the firewall did not change.
        """
        before = self._firewall_loads()
        yield
        give_up_at = time.monotonic() + FIREWALL_TIMEOUT_S
        seen, changed_at = before, time.monotonic()
        while seen == before or time.monotonic() - changed_at < _FIREWALL_QUIET_S:
            if time.monotonic() > give_up_at:
                raise FaultError(f"the lab's firewall did not follow within {FIREWALL_TIMEOUT_S:g} s")
            time.sleep(0.05)
            now = self._firewall_loads()
            if now != seen:
                seen, changed_at = now, time.monotonic()

    def _firewall_loads(self) -> int:
        found = state.read(Path(self.lab.state_dir))
        if found is None:
            raise FaultError(f"the lab with {self.lab.state_dir} has ended")
        return found.firewall_loads


class Injection(Protocol):
    """How a fault gets into a running cluster."""

    def inject(self, scene: Scene) -> AbstractContextManager[None]:
        """In force inside the context; afterwards all is as before, also where somebody mended it."""
