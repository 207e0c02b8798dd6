"""Which member of how many a process is, by a launcher's variables, and where the others run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping

from diagnosis.launchers import number
from probe.hosts import HostsError, job_hosts, read_hostfile
from probe.place import Wish


@dataclass(frozen=True)
class Seat:
    """The mesh is between nodes, one process of each.

    processes: the launcher's own count, of all processes.
    """

    rank: int
    count: int
    local_rank: int
    processes: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Seat:
        """
        Raises:
            ClaimError: a variable is no number.
        """
        rank, size = number(environ, "RANK"), number(environ, "WORLD_SIZE")
        processes = size
        per_node = number(environ, "LOCAL_WORLD_SIZE") if environ.get("LOCAL_WORLD_SIZE") else 1
        local_rank = number(environ, "LOCAL_RANK") if environ.get("LOCAL_RANK") else 0
        if environ.get("GROUP_RANK") and environ.get("GROUP_WORLD_SIZE"):
            rank, size = number(environ, "GROUP_RANK"), number(environ, "GROUP_WORLD_SIZE")
        elif per_node > 1:
            rank, size = rank // per_node, max(1, size // per_node)
        return cls(rank, size, local_rank, processes)


def known_hosts(
    wish: Wish, environ: Mapping[str, str], variables: Mapping[str, str], seat: Seat
) -> Dict[int, str]:
    """Rank -> host of the members whose host is told: by a host file, Slurm's step, or MASTER_ADDR.

    variables: what the launcher's own variables lack; only Slurm's and a host file's name every host.
    """
    try:
        if wish.hostfile is not None:
            return dict(enumerate(read_hostfile(wish.hostfile)))
        hosts = job_hosts(environ)
    except HostsError:
        hosts = ()
    if environ.get("SLURM_STEP_NODELIST") and variables and len(hosts) == seat.count:
        return dict(enumerate(hosts))
    master = environ.get("MASTER_ADDR")
    return {0: master} if master else {}
