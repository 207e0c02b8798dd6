"""The stack against what stands: every difference, each with its meaning for the mesh."""

from __future__ import annotations

from dataclasses import dataclass

from audit.compare import fleet, groups, members, network, nodes, paths
from audit.compare.fleet import GROUP
from audit.compare.scene import Scene
from audit.difference import Difference
from audit.documents import Documents
from audit.meaning import Judge
from audit.members import Members
from audit.template import DeployedStack, deployed_stack
from cluster.keys import CLUSTER_TAG
from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange, PortSet
from cluster.snapshot import ClusterSnapshot


@dataclass(frozen=True)
class Drift:
    """differences: the gravest first. unread: what could not be compared, and why."""

    differences: tuple[Difference, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class OurStack:
    """A stack of ours with what it says of its members.

    stack None: it was not read; problem says why.
    """

    name: str
    stack: DeployedStack | None
    problem: str = ""

    @property
    def master_port(self) -> int:
        config = self.stack.config if self.stack else None
        return config.master_port if config else 29500

    @property
    def ephemeral_ports(self) -> PortRange:
        config = self.stack.config if self.stack else None
        return config.ephemeral_ports or DEFAULT_EPHEMERAL_PORTS if config else DEFAULT_EPHEMERAL_PORTS


def our_stack(documents: Documents, name: str = "") -> OurStack:
    """The stack that the documents hold. name: blank = whichever it is."""
    stack = deployed_stack(documents, name)
    if stack is not None:
        return OurStack(name=stack.name, stack=stack)
    for document in ("stacks", "stack-template", "stack-resources"):
        problem = documents.problem(document)
        if problem:
            return OurStack(name=name, stack=None, problem=problem)
    return OurStack(name=name, stack=None, problem="the stack's template cannot be read")


def members_of(documents: Documents, ours: OurStack, snapshot: ClusterSnapshot) -> Members:
    """The running instances of the stack's fleet; by their tag where the fleet could not be read."""
    problem = snapshot.instances.problem
    unread = (f"who is a member cannot be told: {problem}",) if problem else ()
    if ours.stack is None and not ours.name:
        return Members(ids=(), unread=(f"who is a member cannot be told: {ours.problem}",))
    fleets = set(ours.stack.ids(GROUP)) if ours.stack else set()
    if ours.stack is None or documents.problem("auto-scaling-groups"):
        name = ours.stack.config.cluster if ours.stack and ours.stack.config else ours.name
        return Members(ids=snapshot.running_with_tag(CLUSTER_TAG, name), unread=unread)
    listed = [
        str(item.get("InstanceId"))
        for entry in documents.entries("auto-scaling-groups")
        if entry.get("AutoScalingGroupName") in fleets
        for item in entry.get("Instances") or ()
    ]
    states = {item.id: item.state for item in snapshot.instances}
    running = tuple(item for item in listed if states.get(item) == "running")
    return Members(ids=running, unread=unread, fellows=tuple(i for i in listed if i not in running))


def find_drift(documents: Documents, ours: OurStack, snapshot: ClusterSnapshot, found: Members) -> Drift:
    """Compare, and judge every difference.

    A stack that is being changed right now is not compared: what differs may be the change.
    """
    stack = ours.stack
    if stack is None:
        return Drift((), (f"drift cannot be told: {ours.problem}",))
    if stack.status.endswith("_IN_PROGRESS"):
        return Drift(
            (), (f"drift cannot be told: the stack is in {stack.status}, look again when it is done",)
        )
    scene = Scene(documents, stack, snapshot)
    groups.compare(scene)
    network.compare(scene)
    paths.compare(scene)
    fleet.compare(scene)
    members.compare(scene, found.ids)
    nodes.compare(scene, found.ids)
    source_ports = PortSet((ours.ephemeral_ports,))
    need = source_ports.union(PortSet((PortRange(ours.master_port, ours.master_port),)))
    judge = Judge(snapshot, found.ids, need, source_ports, found.fellows)
    return Drift(judge.differences(scene.deviations), tuple(scene.unread))
