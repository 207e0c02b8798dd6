"""What launchers tell a process of its rank, and what to think where two of them disagree. Pure.

Names: torch/distributed/run.py; Open MPI, "Environment variables set for MPI applications"
(docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html); MVAPICH2's mpispawn.c; Hydra (MPICH
and Intel MPI) sets PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS; srun(1), "OUTPUT
ENVIRONMENT VARIABLES".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple


@dataclass(frozen=True)
class Launcher:
    """A family of launchers.

    rank, size, local_rank, local_size: variables; of several names the first that is set counts.
    processes: the names (/proc/PID/comm) of its processes that start ranks.
    proof: one of these is set by it and by nothing else around it; () = none is needed.
    """

    name: str
    rank: str
    size: Tuple[str, ...]
    local_rank: str = ""
    local_size: str = ""
    processes: Tuple[str, ...] = ()
    proof: Tuple[str, ...] = ()


TORCH = Launcher("env://", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", "LOCAL_WORLD_SIZE")
SLURM = Launcher(
    "Slurm",
    "SLURM_PROCID",
    ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
    "SLURM_LOCALID",
    processes=("slurmstepd",),
    # A batch script has SLURM_PROCID=0 and the job's SLURM_NTASKS, too: only srun makes a step.
    proof=("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"),
)
LAUNCHERS = (
    TORCH,
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("orted", "prted", "prterun", "mpirun", "mpiexec"),
    ),
    Launcher(
        "MVAPICH2",
        "MV2_COMM_WORLD_RANK",
        ("MV2_COMM_WORLD_SIZE",),
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        ("mpispawn", "mpirun_rsh"),
    ),
    Launcher(
        "Hydra",
        "PMI_RANK",
        ("PMI_SIZE",),
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        ("hydra_pmi_proxy", "hydra_bstrap_pr", "mpiexec.hydra", "mpiexec", "mpirun"),
    ),
    # PMIx tells the rank alone; the size is the launcher's that speaks it (srun --mpi=pmix, prterun).
    Launcher("PMIx", "PMIX_RANK", ("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
    SLURM,
)
STARTERS = tuple(dict.fromkeys(name for launcher in LAUNCHERS for name in launcher.processes))
"""Every process name that tells which launcher started a process."""

_BESIDE = frozenset(
    (
        *("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES"),
        *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    )
)
_PREFIXES = ("TORCHELASTIC_", "PET_", "SLURM_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "MV2_COMM_WORLD_")


class ClaimError(ValueError):
    """A launcher's variable does not hold what it should; the text names it and its value."""


@dataclass(frozen=True)
class Claim:
    """What one launcher tells.

    names: the variables that tell it: two, or the one that torch would read.
    local_rank, local_size: None where it does not tell.
    """

    launcher: Launcher
    rank: int
    size: int
    names: Tuple[str, ...]
    local_rank: Optional[int] = None
    local_size: Optional[int] = None

    @property
    def words(self) -> str:
        """The variables with their values."""
        values = {self.launcher.rank: self.rank}
        return " ".join(f"{name}={values.get(name, self.size)}" for name in self.names)


@dataclass(frozen=True)
class Conflict:
    """Launchers that cannot all be right.

    right: the one that started this process, where that is known.
    leftover: the claims that are not its; all of them where that is not known.
    torch_misled: whether torch itself would read a leftover (it reads RANK and WORLD_SIZE only).
    """

    right: Optional[Claim]
    leftover: Tuple[Claim, ...]
    torch_misled: bool = True

    @property
    def unset(self) -> str:
        """The command that takes the leftovers away."""
        names = [name for claim in self.leftover for name in claim.names]
        return f"unset {' '.join(dict.fromkeys(names))}"


@dataclass(frozen=True)
class Launch:
    """Who started a process. claim None: nobody, or it is not known (then `conflict` says why)."""

    claim: Optional[Claim] = None
    conflict: Optional[Conflict] = None


def claims_of(environment: Mapping[str, str]) -> Tuple[Claim, ...]:
    """What every launcher tells whose variables are there, torch's own first.

    Raises:
        ClaimError: a rank or a size that is none.
    """
    found = (_claim(launcher, environment) for launcher in LAUNCHERS)
    return tuple(claim for claim in found if claim is not None)


def batch_script(environment: Mapping[str, str]) -> bool:
    """Whether Slurm's variables are those of a batch script or a shell, and not of a task of srun."""
    return bool(environment.get(SLURM.rank)) and not any(environment.get(name) for name in SLURM.proof)


def launched(environment: Mapping[str, str], started_by: Optional[str]) -> Launch:
    """Who gave this process its rank.

    started_by: the nearest process above it that is a launcher's, as /proc names it; None = none
        is seen (a container hides it).

    Raises:
        ClaimError: as `claims_of`.
    """
    claims = claims_of(environment)
    if not claims:
        return Launch()
    first = claims[0]
    if first.launcher is TORCH and "TORCHELASTIC_RUN_ID" in environment:
        return Launch(claim=first)  # torchrun sets it for its workers, which it starts itself
    others = [claim for claim in claims[1:] if not _agree(first, claim)]
    others += _misleading_part(environment, first)
    if not others:
        return Launch(claim=first)
    right = next((claim for claim in claims if started_by in claim.launcher.processes), None)
    if right is None:
        return Launch(conflict=Conflict(right=None, leftover=(first, *others)))
    wrong = [claim for claim in claims if claim is not right and not _agree(claim, right)]
    wrong += _misleading_part(environment, right)
    misled = any(claim.launcher is TORCH for claim in wrong)
    return Launch(
        claim=None if misled else right,
        conflict=Conflict(right=right, leftover=tuple(wrong), torch_misled=misled) if wrong else None,
    )


def _misleading_part(environment: Mapping[str, str], told: Claim) -> List[Claim]:
    """RANK or WORLD_SIZE, where only one of them is set and it contradicts a launcher.

    A WORLD_SIZE of several times the tasks is right where each task starts as many processes.
    """
    part = [name for name in (TORCH.rank, *TORCH.size) if environment.get(name)]
    if told.launcher is TORCH or len(part) != 1:
        return []
    value = number(environment, part[0])
    if part[0] == TORCH.rank:
        return [] if value == told.rank else [Claim(TORCH, value, told.size, tuple(part))]
    return [] if value and value % told.size == 0 else [Claim(TORCH, told.rank, value, tuple(part))]


def without_launchers(environ: Mapping[str, str]) -> Dict[str, str]:
    """The environment of a process that no launcher has started."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _BESIDE and not name.startswith(_PREFIXES)
    }


def _claim(launcher: Launcher, environment: Mapping[str, str]) -> Optional[Claim]:
    size_name = next((name for name in launcher.size if environment.get(name)), None)
    if not environment.get(launcher.rank) or size_name is None:
        return None
    if launcher.proof and not any(environment.get(name) for name in launcher.proof):
        return None
    rank, size = (number(environment, name) for name in (launcher.rank, size_name))
    if size == 0:
        raise ClaimError(f"{size_name}=0 is not a number of 1 or more")
    local_rank, local_size = (
        number(environment, name) if name and environment.get(name) else None
        for name in (launcher.local_rank, launcher.local_size)
    )
    return Claim(launcher, rank, size, (launcher.rank, size_name), local_rank, local_size)


def number(environment: Mapping[str, str], name: str) -> int:
    """A variable's value as a number of 0 or more.

    Raises:
        ClaimError: it is none.
    """
    text = environment.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ClaimError(f"{name}={text!r} is not a number of 0 or more")
    return int(text)


def _agree(fine: Claim, coarse: Claim) -> bool:
    """Whether both tell the same, or `fine` counts the processes that each of `coarse`'s has started."""
    each, left = divmod(fine.size, coarse.size) if coarse.size else (0, 1)
    return left == 0 and each > 0 and fine.rank // each == coarse.rank


def conflict_words(conflict: Conflict) -> Tuple[str, Tuple[str, ...]]:
    """(summary, evidence) of a conflict."""
    told: List[str] = [f"{claim.launcher.name}: {claim.words}" for claim in conflict.leftover]
    if conflict.right is None:
        return "launchers disagree on this process's rank, and which of them started it is not seen", tuple(
            told
        )
    right = conflict.right
    left = " and ".join(claim.words for claim in conflict.leftover)
    return (
        f"{left} are left over: {right.launcher.name} started this process ({right.words})",
        (f"{right.launcher.name}: {right.words}", *told),
    )
