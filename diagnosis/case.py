"""Everything the judge knows about one run, with the words to speak of it."""

from __future__ import annotations

import functools
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from cluster.flows import Reachability, reachability
from cluster.keys import CLUSTER_TAG
from cluster.lookup import Lookup
from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange, PortSet
from cluster.snapshot import ClusterSnapshot, Instance
from diagnosis.clocks import Clocks
from diagnosis.detours import Detours
from diagnosis.firewall.members import HostFirewalls
from diagnosis.matrix import Flow, Pair, ReachabilityMatrix
from diagnosis.membership import Expectation, Member, Roster, pair_subject
from diagnosis.report import PortKind
from diagnosis.static import StaticFindings, judge_rules

# As many pairs, nodes or ports as a sentence names one by one.
NAMED_AT_MOST = 4


class Case:
    """Roster, matrix, firewalls and (where the account's rules were read) reachability.

    clocks: of the members against each other; all times of the roster are on one line by them.
    """

    def __init__(
        self, roster: Roster, expectation: Expectation, snapshot: Optional[ClusterSnapshot] = None
    ) -> None:
        self.clocks = Clocks(roster.members)
        roster = self.clocks.aligned(roster)
        self.roster = roster
        self.members = roster.members
        self.expectation = expectation
        self.matrix = ReachabilityMatrix(roster)
        self.firewalls = HostFirewalls(roster)
        self.detours = Detours(roster)
        self.snapshot = snapshot
        self.ephemeral = expectation.ephemeral or self._common_range()
        self.lookup = Lookup(snapshot) if snapshot is not None else None
        self._reach = self._reachability()

    @functools.cached_property
    def static(self) -> Optional[StaticFindings]:
        """What the account's rules alone say; None when they were not read."""
        if self.snapshot is None or not self.members:
            return None
        ids = [member.member_id for member in self.members]
        return judge_rules(
            self.snapshot,
            ids,
            self.expectation.master_port,
            self.ephemeral,
            fellows=[instance.id for instance in self.unregistered()],
        )

    def unregistered(self) -> Tuple[Instance, ...]:
        """Running instances of this cluster that are no members, as far as the account tells."""
        if self.snapshot is None or not self.expectation.cluster:
            return ()
        tagged = self.snapshot.running_with_tag(CLUSTER_TAG, self.expectation.cluster)
        ids = set(tagged) - {member.member_id for member in self.members}
        return tuple(instance for instance in self.snapshot.instances if instance.id in ids)

    def rules_block(self, flow: Flow) -> Optional[bool]:
        """Whether the account's rules stop the flow; None when they were not read or do not tell."""
        if self._reach is None:
            return None
        way = self._reach.between(
            self.members[flow.source].member_id, self.members[flow.destination].member_id
        )
        if flow.port in way.blocked:
            return True
        return None if flow.port in way.unknown else False

    def group_id(self, places: Iterable[int]) -> Optional[str]:
        """The one security group that all these members' interfaces carry, where that is told."""
        common: Optional[set[str]] = None
        for place in places:
            interface = self.lookup.primary(self.members[place].member_id) if self.lookup else None
            if interface is None or interface.group_ids is None:
                return None
            own = set(interface.group_ids)
            common = own if common is None else common & own
        return next(iter(common)) if common is not None and len(common) == 1 else None

    def fields(self, place: Optional[int] = None, peer: Optional[int] = None) -> Dict[str, object]:
        """Values for the commands of a finding at a member (and its peer)."""
        master = self.roster.master()
        values: Dict[str, object] = {
            "nodes": self.expectation.nodes,
            "world_size": self.expectation.nodes,
            "master_port": self.expectation.master_port,
            "master_address": master.address if master else None,
            "cluster": self.expectation.cluster,
            "first_port": self.ephemeral.first,
            "last_port": self.ephemeral.last,
        }
        if place is not None:
            values.update(self._of_member(self.members[place]))
        elif self.members:
            values["instance_id"] = _instance(self.members[0])
        if peer is not None:
            other = self.members[peer]
            values.update(peer_address=other.address, peer_instance_id=_instance(other))
            values["peer_cidr"] = f"{other.address}/32"
        return {key: value for key, value in values.items() if value not in (None, "")}

    def _of_member(self, member: Member) -> Dict[str, object]:
        host = member.report.host if member.report else None
        interface = self.lookup.primary(member.member_id) if self.lookup else None
        return {
            "rank": member.rank,
            "address": member.address,
            "instance_id": _instance(member),
            "name": (host.hostname if host else None) or member.name,
            "interface": host.interface if host else None,
            "interface_id": interface.id if interface else None,
            "subnet_id": interface.subnet_id if interface else None,
        }

    @property
    def on_ec2(self) -> bool:
        return any(_instance(member) for member in self.members)

    def at_s(self, flows: Iterable[Flow]) -> Optional[float]:
        """The earliest probe of these flows."""
        times = [self.matrix.probes[flow].started_at for flow in flows if flow in self.matrix.probes]
        return min((time for time in times if time is not None), default=None)

    def name(self, place: int) -> str:
        """A member for a sentence: rank, name and address."""
        member = self.members[place]
        return f"node {member.rank} ({member.name}, {member.address})"

    def subject(self, place: int) -> str:
        return self.members[place].subject

    def pair_subject(self, pair: Pair) -> str:
        return pair_subject(self.members[pair[0]], self.members[pair[1]])

    def ports(self, flows: Iterable[Flow]) -> str:
        """The ports of these flows for a sentence; the ephemeral range for many."""
        kinds = {flow.kind for flow in flows}
        numbers = sorted({flow.port for flow in flows})
        if kinds == {PortKind.EPHEMERAL} and len(numbers) > NAMED_AT_MOST:
            return f"{len(numbers)} ports of {self.ephemeral}"
        masters = sorted({flow.port for flow in flows if flow.kind is PortKind.MASTER})
        others = [number for number in numbers if number not in masters]
        words = [str(number) for number in masters]
        words += [str(self.ephemeral)] if len(others) > NAMED_AT_MOST else [str(number) for number in others]
        return ", ".join(words)

    def evidence(self, flows: Iterable[Flow]) -> Tuple[str, ...]:
        """Probes as lines: one a pair and outcome, the first few pairs named."""
        by_pair: Dict[Tuple[Pair, str], List[Flow]] = {}
        for flow in sorted(flows, key=lambda f: (f.source, f.destination, f.port)):
            by_pair.setdefault((flow.pair, self.matrix.probes[flow].outcome.value), []).append(flow)
        lines = [
            f"{self.pair_subject(pair)} {self.members[pair[0]].address} -> {self.members[pair[1]].address} "
            f"ports {','.join(str(flow.port) for flow in found)}: {outcome}"
            for (pair, outcome), found in by_pair.items()
        ]
        more = len(lines) - NAMED_AT_MOST
        return (*lines[:NAMED_AT_MOST], f"and {more} more") if more > 0 else tuple(lines)

    def _common_range(self) -> PortRange:
        ranges = [
            member.report.host.local_port_range
            for member in self.members
            if member.report and member.report.host and member.report.host.local_port_range
        ]
        if not ranges:
            return DEFAULT_EPHEMERAL_PORTS
        return PortRange(min(item.first for item in ranges), max(item.last for item in ranges))

    def _reachability(self) -> Optional[Reachability]:
        """The rules' answer for the probed ports; sources use the nodes' ephemeral range."""
        if self.snapshot is None or len(self.members) < 2:
            return None
        probed = [PortRange(flow.port, flow.port) for flow in self.matrix.probes]
        master = PortRange(self.expectation.master_port, self.expectation.master_port)
        need = PortSet.of([*probed, master, self.ephemeral])
        ids: Sequence[str] = [member.member_id for member in self.members]
        return reachability(self.lookup or self.snapshot, ids, need, PortSet.of([self.ephemeral]))


def _instance(member: Member) -> Optional[str]:
    """The EC2 instance id; None away from EC2."""
    return member.member_id if member.member_id.startswith("i-") else None
