"""The mesh stage of every node of an arena at once, from a start barrier."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.arena import MASTER_PORT, SCRIPTS, Arena
from bench.ranks import Ranks
from bench.record import BenchError
from cluster.serial import decode
from diagnosis.report import ConnectOutcome, NodeReport, PairProbe

LISTEN_TIMEOUT_S = 60.0  # 64 fresh processes on 2 cores are up within 3 s
STAGE_TIMEOUT_S = 120.0
# All ranks have read the order and sleep until the same moment: 64 lines are read within 0.2 s on 2 cores.
LEAD_S = 1.0


@dataclass(frozen=True)
class MeshRun:
    """Every node's row. stage_s: from the barrier to the last node's last outcome."""

    reports: tuple[NodeReport, ...]
    stage_s: float

    @property
    def probes(self) -> int:
        return sum(len(report.probes or ()) for report in self.reports)

    @property
    def connected(self) -> int:
        return sum(probe.outcome is ConnectOutcome.CONNECTED for _, probe in self.outcomes())

    @property
    def peak_memory_bytes(self) -> int:
        """Of the node that needed most."""
        return max(report.peak_memory_bytes or 0 for report in self.reports)

    @property
    def slowest_connect_s(self) -> float:
        return max((probe.connect_s or 0.0 for _, probe in self.outcomes()), default=0.0)

    def outcomes(self) -> Iterator[tuple[str, PairProbe]]:
        """Every probe of the cluster beside its source's address."""
        return ((report.address, probe) for report in self.reports for probe in report.probes or ())


def commands(arena: Arena) -> list[list[str]]:
    """One process per node; the Python that a node has without torch."""
    ports = str(arena.ephemeral_ports())
    script = f"{SCRIPTS}/mesh_rank.py"
    return [
        arena.command(rank, ["python3", script, f"i-{rank:017x}", name, address, str(MASTER_PORT), ports])
        for rank, (name, address) in enumerate(zip(arena.names, arena.addresses, strict=True))
    ]


def run(ranks: Ranks) -> MeshRun:
    """Release the barrier once every node's listeners are proven; the listeners stay open.

    Raises:
        BenchError: a node did not come up or did not answer.
    """
    registrations: Sequence[str] = ranks.gather(LISTEN_TIMEOUT_S, "registration")
    start_at = time.time() + LEAD_S
    members = {f"i-{rank:017x}": text for rank, text in enumerate(registrations)}
    ranks.tell({"members": members, "start_at": start_at})
    documents = ranks.gather(STAGE_TIMEOUT_S, "row")
    reports = tuple(decode(NodeReport, document) for document in documents)
    late_s = max((report.started_at or 0.0) for report in reports) - start_at
    if late_s > LEAD_S:
        raise BenchError(
            f"a node passed the start barrier {late_s:.1f} s late: this machine is too busy to measure"
        )
    return MeshRun(reports=reports, stage_s=max((report.finished_at or 0.0) for report in reports) - start_at)
