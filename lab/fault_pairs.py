"""Two faults at once: both must be named, and nothing more.

Most pairs are independent: neither hides what the other one shows. In the last ones the first explains
all that the second would show, so that one is named and the other can be once the first is mended.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.fault import Fault
from lab.fault_host import Launch, Together, launch_of
from lab.fault_scene import Injection
from lab.faults import FAULTS


@dataclass(frozen=True)
class Pair:
    """Two ids of the table. why: what keeps them apart, or how the first explains the second.

    explained: of the second, what the first explains already, so that it is no other cause.
    """

    first: str
    second: str
    why: str
    explained: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        return f"{self.first}+{self.second}"

    @property
    def fault(self) -> Fault:
        """Both as one fault."""
        first, second = FAULTS[self.first], FAULTS[self.second]
        named = (*first.expected, *second.expected)
        return Fault(
            id=self.id,
            title=f"{first.title}; and {second.title}",
            expected=tuple(item for item in named if item not in self.explained),
            injection=_together(first.injection, second.injection),
            deadline_s=min(first.deadline_s, second.deadline_s),
            collective=first.collective or second.collective,
        )


PAIRS: tuple[Pair, ...] = (
    Pair(
        first="sg-only-master-port",
        second="hostname-loopback",
        why="a rule between all nodes, and a name on one of them",
    ),
    Pair(
        first="nacl-deny",
        second="port-in-use",
        why="between two subnets, and a process on node 0",
    ),
    Pair(
        first="os-firewall-drop-one-peer",
        second="mtu-black-hole-pair",
        why="what node 3 opens to node 1 never connects; what node 1 opens to node 3 loses its large packets",
    ),
    Pair(
        first="pair-blocked",
        second="wrong-interface",
        why="nodes 1 and 3, and what node 2 publishes",
    ),
    Pair(
        first="one-way-block",
        second="packet-loss-pair",
        why="from node 1 to node 2, and between nodes 0 and 3",
    ),
    Pair(
        first="address-overlap",
        second="pair-blocked",
        why="node 2 towards nodes 0 and 1, and nodes 1 and 3 between them",
    ),
    Pair(
        first="packet-loss-pair",
        second="clock-skew",
        why="a lossy way still tells clocks",
    ),
    Pair(
        first="os-firewall-reject",
        second="env-no-effect",
        why="node 2's firewall, and a variable that nothing reads",
    ),
    Pair(
        first="ifname-missing",
        second="version-mismatch",
        why="both on node 2: a variable, and another torch",
    ),
    Pair(
        first="world-size-mismatch",
        second="one-way-block",
        why="a variable on node 2, and a filter from node 1 to node 2",
    ),
    Pair(
        first="hostname-unresolvable",
        second="os-firewall-drop",
        why="both on node 2: its name, and its firewall",
    ),
    Pair(
        first="master-addr-malformed-one-node",
        second="duplicate-address",
        why="a variable on node 3, and the names of nodes 1 and 2",
    ),
    Pair(
        first="stale-store",
        second="master-unreachable",
        why="the store on node 0 stands where nobody is sent to: every node is given another MASTER_ADDR",
    ),
    Pair(
        first="address-overlap",
        second="one-way-block",
        why="what node 1 opens to node 2 is answered into node 2's bridge, whether it is filtered or not",
        explained=(("one-way-block", "pair:1>2"),),
    ),
    Pair(
        first="sg-no-self-ingress",
        second="os-firewall-drop",
        why="the group stops all packets before node 2's firewall sees any: it cannot be named yet",
        explained=(("os-firewall-drop", "node:2"),),
    ),
)


def _together(first: Injection, second: Injection) -> Injection:
    """Both; of two jobs that are started wrongly one that is wrong in both ways."""
    jobs = [job for job in (launch_of(first), launch_of(second)) if job is not None]
    others = [part for injection in (first, second) for part in _without_job(injection)]
    return Together(parts=(*others, *([_merged(jobs)] if jobs else [])))


def _without_job(injection: Injection) -> list[Injection]:
    if isinstance(injection, Together):
        return [part for item in injection.parts for part in _without_job(item)]
    return [] if isinstance(injection, Launch) else [injection]


def _merged(jobs: list[Launch]) -> Launch:
    ranks = {rank for job in jobs for rank in job.changes}
    return Launch(
        changes={
            rank: {name: value for job in jobs for name, value in job.changes.get(rank, {}).items()}
            for rank in ranks
        },
        absent=frozenset().union(*(job.absent for job in jobs)),
        clocks={rank: ahead_s for job in jobs for rank, ahead_s in job.clocks.items()},
        shells={rank: shell for job in jobs for rank, shell in job.shells.items()},
    )
