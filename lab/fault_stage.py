"""Where every fault of the table can be provoked: one lab, one deployed cluster, others beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diagnosis.report import Diagnosis
from lab import demo, deploy, supervisor
from lab.fault_scene import FaultError, Scene
from lab.faults import FAULTS, Fault
from lab.progress import Progress

DEPLOYED_WITH = FAULTS["nacl-deny"]  # two subnets, which the other faults do not mind
# Each on a node of another cluster in the same lab, which has its name.
BOOT_ONLY = {f"boot-{place}": fault for place, fault in enumerate(f for f in FAULTS.values() if f.boot_only)}
LIVE = tuple(fault for fault in FAULTS.values() if not fault.boot_only)
# Clusters that run beside each other have addresses of their own.
_BESIDE = {"cluster.nodes": "4", "cluster.vpc_cidr": "10.30.0.0/16"}


@dataclass(frozen=True)
class Stage:
    """The running lab, and what deploying the first cluster came to. log: of further deployments."""

    scene: Scene
    deployed: demo.DemoResult
    log: Path

    def deploy_beside(self, name: str, fault: Fault) -> tuple[deploy.Deployment, Diagnosis]:
        """Deploy another cluster with a fault that comes with the stack, or at a node's boot.

        Raises:
            FaultError: neither a node nor the referee left a verdict; holds the end of the output.
        """
        context = {**_BESIDE, "cluster.name": name, **fault.deploy_context}
        deployment = deploy.deploy(self.scene.lab, self.log, context)
        verdict = deploy.newest_verdict(self.scene.lab, name)
        if verdict is None:
            raise FaultError(f"deploying {name} left no verdict: {deployment.output[-3000:]}")
        return deployment, verdict[0]


@contextmanager
def running(folder: Path) -> Iterator[Stage]:
    """A lab with a deployed cluster in two subnets, which DEPLOYED_WITH has visited already.

    folder: of its state and logs.
    Raises:
        DemoError: it did not start, or the cluster was not deployed.
    """
    changes = tuple(change for name, fault in BOOT_ONLY.items() for change in fault.boot_changes(name))
    options = demo.DemoOptions(fault=DEPLOYED_WITH.id, state_dir=folder, boot_changes=changes)
    progress = Progress(quiet=True)
    with demo.running_lab(options, progress) as started:
        deployed = demo.run(options, started, progress)
        state = supervisor.read_state(folder)
        if state is None:
            raise demo.DemoError(f"the lab ended by itself; its log is {options.logs}")
        yield Stage(scene=Scene(lab=state), deployed=deployed, log=folder / "beside.log")
