"""What one fault is: how it gets in, and exactly the causes it must raise, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from cluster.keys import UNSAFE_RULES_KEY
from diagnosis.causes import cause
from diagnosis.report import Diagnosis, Verdict
from lab.boot_change import BootChange
from lab.check import PROBE_DEADLINE_S, run_check
from lab.fault_host import OnNode, launch_of
from lab.fault_scene import Injection, Scene


class Way(str, Enum):
    """When a demonstration lets the fault in."""

    STACK = "in the stack"
    BOOT = "at a node's boot"
    LIVE = "into a running cluster"
    LAUNCH = "at a job's start"


@dataclass(frozen=True)
class Fault:
    """One fault.

    expected: (cause, subject) of every finding it must raise, and no others.
    injection: how it gets into a running cluster.
    in_stack: app.py can deploy it, too; at_boot: a node can also come up with it, or (boot_only) only so.
    context: what the deployment needs for it (`-c`); least_nodes: how many nodes it speaks of.
    commands_mend: the commands of the finding repair it as they are.
    deadline_s: of the check, where somebody is waited for in vain.
    start_after_s: rank -> how much later than the others its check is started.
    collective: it shows in the all_reduce only; options: more of the check's own.
    """

    id: str
    title: str
    expected: tuple[tuple[str, str], ...]
    injection: Injection
    in_stack: bool = False
    at_boot: bool = False
    boot_only: bool = False
    context: Mapping[str, str] = field(default_factory=dict)
    least_nodes: int = 4
    commands_mend: bool = False
    deadline_s: float = PROBE_DEADLINE_S
    start_after_s: Mapping[int, float] = field(default_factory=dict)
    collective: bool = False
    options: tuple[str, ...] = ()

    @property
    def way(self) -> Way:
        if self.in_stack:
            return Way.STACK
        if self.at_boot:
            return Way.BOOT
        return Way.LIVE if launch_of(self.injection) is None else Way.LAUNCH

    @property
    def verdict(self) -> Verdict:
        """PASS where all that it raises never decides a verdict."""
        return (
            Verdict.FAIL if any(cause(found).decides_verdict for found, _ in self.expected) else Verdict.PASS
        )

    @property
    def deploy_context(self) -> dict[str, str]:
        """`-c` values of a deployment for this fault."""
        return {**self.context, **({UNSAFE_RULES_KEY: self.id} if self.in_stack else {})}

    def boot_changes(self, cluster: str = "") -> tuple[BootChange, ...]:
        """What the lab changes on nodes of that cluster (tag; "" = any) before their user data."""
        if not self.at_boot or not isinstance(self.injection, OnNode):
            return ()
        return (BootChange(rank=self.injection.rank, cluster=cluster, script=self.injection.script),)

    @contextmanager
    def provoked(self, scene: Scene) -> Iterator[None]:
        """In force inside the context."""
        with self.injection.inject(scene):
            yield

    def check(self, scene: Scene, collective: bool = False) -> Diagnosis:
        """`lab check` as this fault wants it: as the deployed nodes, or as a job under a launcher."""
        launch = launch_of(self.injection)
        return run_check(
            scene.lab,
            collective or self.collective,
            environments=launch.environments(scene.lab) if launch is not None else None,
            deadline_s=self.deadline_s,
            start_after_s=self.start_after_s,
            options=self.options,
            shells=launch.shells if launch is not None else None,
        )
