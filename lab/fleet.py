"""Boots what DescribeInstances lists, follows every change, and enforces the groups around it.

`Fleet.follow` does one round: read the control plane; end the nodes of instances that are gone,
boot those that are new, swap the firewall if its text changed, tell the services. A round that
finds nothing new touches nothing.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from cluster.keys import CLUSTER_TAG
from cluster.snapshot import ClusterSnapshot
from lab import fabric, firewall, image, node, observe, state
from lab.boot_change import BootChange
from lab.directory import Credentials, Directory
from lab.facts import (
    Document,
    FactsError,
    facts_of,
    host_name_of,
    ipv4,
    link_of,
    primary_interface,
    resolver_of,
)
from lab.resolver import SERVICES_NAME
from lab.services import Services

_RENEW_CREDENTIALS_S = 900
ENDPOINT_URL = f"http://{SERVICES_NAME}:{fabric.RELAY_PORT}"


def node_environment(region: str) -> Dict[str, str]:
    """/etc/environment of the lab's machine image: where AWS is, which is all that differs from EC2."""
    return {"AWS_ENDPOINT_URL": ENDPOINT_URL, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}


@dataclass(frozen=True)
class RunningNode:
    """A node that is up. pid: as the lab's init sees it."""

    instance_id: str
    interface_id: str
    link: fabric.Link
    name: str
    pid: int
    host_pid: int
    log: Path


class Fleet:
    """All nodes of a lab.

    workspace: an empty folder nodes mount their root on; log_dir: gets one folder a node;
    boot_changes: what certain nodes find different; say: takes a line for the supervisor's log;
    changed: called with the nodes, and how often the firewall was loaded, after each change.
    """

    def __init__(
        self,
        *,
        observer: observe.Observer,
        network: fabric.Fabric,
        services: Services,
        system: image.Image,
        region: str,
        workspace: Path,
        log_dir: Path,
        boot_changes: Sequence[BootChange] = (),
        say: Callable[[str], None],
        changed: Callable[[Tuple[state.NodeState, ...], int], None],
    ) -> None:
        self._observer = observer
        self._fabric = network
        self._services = services
        self._system = system
        self._directory = Directory(region=region)
        self._workspace = workspace
        self._log_dir = log_dir
        self._boot_changes = tuple(boot_changes)
        self._say = say
        self._changed = changed
        self._nodes: Dict[str, RunningNode] = {}
        self._failed: Dict[str, str] = {}
        self._user_data: Dict[str, bytes] = {}
        self._profiles: Dict[str, Optional[Document]] = {}
        self._credentials: Dict[str, Credentials] = {}
        self._seen: Optional[Mapping[str, Any]] = None
        self._ruleset = ""
        self._loads = 0

    def follow(self) -> None:
        """One round.

        Raises:
            BotoCoreError, ClientError: the control plane did not answer; nothing was changed.
            ServicesError: the process that serves the nodes is gone.
        """
        documents = self._observer.documents()
        if documents == self._seen and not self._credentials_are_due():
            return
        instances = {item["InstanceId"]: item for item in observe.running_instances(documents)}
        snapshot = ClusterSnapshot.from_documents(documents)
        gone = [running for key, running in self._nodes.items() if key not in instances]
        for running in gone:
            self._end(running)
            self._say(f"{running.instance_id} is terminated")
        fresh = [key for key in instances if key not in self._nodes and key not in self._failed]
        for instance_id in fresh:
            self._user_data[instance_id] = self._observer.user_data(instance_id)
            self._profiles[instance_id] = self._profile(instances[instance_id])
        self._renew_credentials(fresh)
        self._fabric.set_vpc(self._routed_ranges(snapshot, instances))
        started = self._start(fresh, instances, snapshot)
        loads = self._loads
        self._load_firewall(snapshot, documents)
        self._publish(snapshot, instances)
        for running, waiting in started:
            waiting.boot()
            self._say(f"{running.instance_id} boots as {running.name} ({running.link.address})")
        for running, waiting in started:
            try:
                waiting.wait_ready()
            except node.NodeError as error:
                self._end(running)
                self._fail(running.instance_id, str(error))
        self._seen = documents
        if gone or started or loads != self._loads:
            self._changed(self.states(), self._loads)

    def reaped(self, pid: int) -> None:
        """Take note that process `pid`, as the lab's init sees it, has ended."""
        for running in list(self._nodes.values()):
            if running.pid == pid:
                self._forget(running)
                self._failed[running.instance_id] = "its init ended"
                self._say(f"{running.instance_id} ended by itself: its init is gone")
                self._changed(self.states(), self._loads)

    def states(self) -> Tuple[state.NodeState, ...]:
        """The nodes, numbered by the order of their private addresses."""
        ordered = sorted(self._nodes.values(), key=lambda n: ipaddress.IPv4Address(n.link.address))
        return tuple(
            state.NodeState(
                rank=rank,
                instance_id=item.instance_id,
                address=item.link.address,
                name=item.name,
                pid=item.host_pid,
                log=str(item.log),
            )
            for rank, item in enumerate(ordered)
        )

    # -- nodes ------------------------------------------------------------------------------

    def _start(
        self, fresh: Sequence[str], instances: Mapping[str, Document], snapshot: ClusterSnapshot
    ) -> List[Tuple[RunningNode, node.StartedNode]]:
        started: List[Tuple[RunningNode, node.StartedNode]] = []
        for instance_id in fresh:
            try:
                plan = self._plan(instances[instance_id], snapshot, instances)
                waiting = node.start(plan, self._system)
            except (FactsError, node.NodeError, OSError) as error:
                self._fail(instance_id, str(error))
                continue
            running = RunningNode(
                instance_id=instance_id,
                interface_id=primary_interface(instances[instance_id], snapshot).id,
                link=plan.link,
                name=plan.identity.host_name,
                pid=waiting.pid,
                host_pid=waiting.host_pid,
                log=plan.log,
            )
            started.append((running, waiting))
            self._nodes[instance_id] = running
        self._fabric.plug([(running.link, running.pid) for running, _ in started])
        return started

    def _plan(
        self, instance: Document, snapshot: ClusterSnapshot, instances: Mapping[str, Document]
    ) -> node.NodePlan:
        instance_id = instance["InstanceId"]
        interface = primary_interface(instance, snapshot)
        link = link_of(instance, snapshot)
        log = self._log_dir / instance_id / "cloud-init-output.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        short, domain = host_name_of(instance, link.address, self._directory.region)
        change = self._boot_change(instance, instances)
        return node.NodePlan(
            instance_id=instance_id,
            link=link,
            identity=image.Identity(
                host_name=change.host_name or short,
                domain=domain,
                resolver=resolver_of(interface.vpc_id, snapshot),
                environment={**node_environment(self._directory.region), **change.environment},
            ),
            user_data=self._user_data[instance_id],
            log=log,
            workspace=self._workspace,
            before=change.script,
        )

    def _boot_change(self, instance: Document, instances: Mapping[str, Document]) -> BootChange:
        """What this node finds different; addresses are given in order, so its rank stands already."""
        around = [
            ipaddress.IPv4Address(item["PrivateIpAddress"])
            for item in instances.values()
            if item.get("VpcId") == instance.get("VpcId")
        ]
        rank = sorted(around).index(ipaddress.IPv4Address(instance["PrivateIpAddress"]))
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
        cluster = tags.get(CLUSTER_TAG, "")
        fitting = (c for c in self._boot_changes if c.rank == rank and c.cluster in ("", cluster))
        return next(fitting, BootChange(rank=rank))

    def _end(self, running: RunningNode) -> None:
        os.kill(running.pid, signal.SIGKILL)
        os.waitpid(running.pid, 0)
        self._forget(running)

    def _forget(self, running: RunningNode) -> None:
        del self._nodes[running.instance_id]
        self._fabric.unplug(running.link.veth)
        for kept in (self._user_data, self._profiles, self._credentials):
            kept.pop(running.instance_id, None)

    def _fail(self, instance_id: str, reason: str) -> None:
        self._failed[instance_id] = reason
        self._say(f"{instance_id} did not come up: {reason}")

    # -- what surrounds them ----------------------------------------------------------------

    def _routed_ranges(self, snapshot: ClusterSnapshot, instances: Mapping[str, Document]) -> List[str]:
        vpcs = {item.get("VpcId") for item in instances.values()}
        return sorted({cidr for vpc in snapshot.vpcs if vpc.id in vpcs for cidr in ipv4(vpc.cidrs)})

    def _load_firewall(self, snapshot: ClusterSnapshot, documents: Mapping[str, Any]) -> None:
        endpoints = documents.get("vpc-endpoints", {}).get("VpcEndpoints", ())
        ruleset = firewall.compile_ruleset(
            snapshot,
            {running.interface_id: running.link.veth for running in self._nodes.values()},
            documents.get("prefix-list-entries", {}),
            frozenset(item["VpcId"] for item in endpoints),
        )
        if ruleset != self._ruleset:
            self._fabric.load_ruleset(ruleset)
            self._ruleset = ruleset
            self._loads += 1
            self._say("the firewall follows a change")

    def _publish(self, snapshot: ClusterSnapshot, instances: Mapping[str, Document]) -> None:
        known = {item.instance_id: item for item in self._directory.instances}
        facts = []
        for key in sorted(self._nodes):
            try:
                found = facts_of(
                    instances[key],
                    snapshot,
                    region=self._directory.region,
                    user_data=self._user_data[key],
                    profile=self._profiles.get(key),
                    credentials=self._credentials.get(key),
                )
            except FactsError as error:
                # Documents are read one after another: while a stack is deleted, a node's subnet may
                # be gone from one although the node was still in the one before. A later round ends it.
                self._say(f"{key}: {error}")
                found = known[key]
            facts.append(found)
        directory = replace(
            self._directory,
            vpc_cidrs=tuple(self._routed_ranges(snapshot, instances)),
            instances=tuple(facts),
        )
        if directory != self._directory:
            self._services.publish(directory)
            self._directory = directory

    def _profile(self, instance: Document) -> Optional[Document]:
        arn = (instance.get("IamInstanceProfile") or {}).get("Arn", "")
        if not arn:
            return None
        try:
            return self._observer.profile(arn)
        except observe.REFUSED as error:
            # as on EC2: the instance runs, and its metadata has no credentials
            self._say(f"{instance['InstanceId']} has no role: {error}")
            return None

    def _credentials_are_due(self) -> bool:
        soon = observe.utc_text(time.time() + _RENEW_CREDENTIALS_S)
        return any(held.expiration < soon for held in self._credentials.values())

    def _renew_credentials(self, fresh: Sequence[str]) -> None:
        soon = observe.utc_text(time.time() + _RENEW_CREDENTIALS_S)
        due = [key for key, held in self._credentials.items() if held.expiration < soon]
        for instance_id in (*fresh, *due):
            roles = (self._profiles.get(instance_id) or {}).get("Roles") or ()
            for role in roles[:1]:
                try:
                    self._credentials[instance_id] = self._observer.credentials(role["Arn"], instance_id)
                except observe.REFUSED as error:
                    self._credentials.pop(instance_id, None)
                    self._say(f"{instance_id} has no credentials: {error}")
