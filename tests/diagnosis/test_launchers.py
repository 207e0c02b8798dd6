"""Who gave a process its rank, and what is said where two launchers tell different ones."""

from __future__ import annotations

import pytest

from diagnosis.launchers import ClaimError, batch_script, conflict_words, launched, without_launchers

TORCH = {"RANK": "3", "WORLD_SIZE": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "3",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
MVAPICH2 = {
    "MV2_COMM_WORLD_RANK": "3",
    "MV2_COMM_WORLD_SIZE": "4",
    "MV2_COMM_WORLD_LOCAL_RANK": "1",
    "MV2_COMM_WORLD_LOCAL_SIZE": "2",
}
SLURM = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("environment", "name", "local"),
    [
        (TORCH, "env://", (None, None)),
        (OPEN_MPI, "Open MPI", (1, 2)),
        (HYDRA, "Hydra", (1, 2)),
        (MVAPICH2, "MVAPICH2", (1, 2)),
        (SLURM, "Slurm", (1, None)),
        ({**SLURM, "PMIX_RANK": "3"}, "PMIx", (None, None)),
    ],
)
def test_each_launcher_is_read(
    environment: dict[str, str], name: str, local: tuple[int | None, int | None]
) -> None:
    """Rank and size come from the launcher's own variables, the place on the host where it tells it."""
    claim = launched(environment, None).claim
    assert claim is not None
    assert (claim.launcher.name, claim.rank, claim.size) == (name, 3, 4)
    assert (claim.local_rank, claim.local_size) == local


def test_nobody_started_a_bare_process() -> None:
    """A rank without a size is no launch, nor is a batch script's own rank."""
    assert launched({}, None).claim is None
    assert launched({"PMIX_RANK": "1"}, None).claim is None
    assert launched(BATCH, "slurmstepd").claim is None
    assert batch_script(BATCH)
    assert not batch_script(SLURM)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({**TORCH, **SLURM}, "env://"),  # a script that exports RANK=$SLURM_PROCID
        ({**SLURM, "PMI_RANK": "3", "PMI_SIZE": "4"}, "Hydra"),  # srun --mpi=pmi2
        ({**SLURM, "RANK": "7", "WORLD_SIZE": "8"}, "env://"),  # two processes a task
        ({**SLURM, "WORLD_SIZE": "16"}, "Slurm"),  # a script that starts four in each task
        ({**SLURM, "WORLD_SIZE": "4"}, "Slurm"),
        ({**TORCH, **BATCH}, "env://"),
        ({**SLURM, "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}, "env://"),
    ],
)
def test_launchers_inside_each_other_agree(environment: dict[str, str], name: str) -> None:
    """Equal ranks, and finer ones inside of coarser ones, are no conflict."""
    found = launched(environment, None)
    assert found.conflict is None
    assert found.claim is not None
    assert found.claim.launcher.name == name


@pytest.mark.parametrize(
    ("leftover", "words", "unset"),
    [
        ({"RANK": "0", "WORLD_SIZE": "1"}, "RANK=0 WORLD_SIZE=1", "unset RANK WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "8"}, "RANK=0 WORLD_SIZE=8", "unset RANK WORLD_SIZE"),
        ({"RANK": "0"}, "RANK=0", "unset RANK"),
        ({"WORLD_SIZE": "6"}, "WORLD_SIZE=6", "unset WORLD_SIZE"),
    ],
)
def test_what_torch_would_read_wrongly_is_left_over(leftover: dict[str, str], words: str, unset: str) -> None:
    """The process above tells who started this one; torch's variables that contradict it are named."""
    found = launched({**SLURM, **leftover}, "slurmstepd")
    assert found.claim is None
    assert found.conflict is not None
    assert found.conflict.torch_misled
    assert found.conflict.unset == unset
    summary, evidence = conflict_words(found.conflict)
    assert summary == f"{words} are left over: Slurm started this process (SLURM_PROCID=3 SLURM_NTASKS=4)"
    assert evidence == ("Slurm: SLURM_PROCID=3 SLURM_NTASKS=4", f"env://: {words}")


def test_without_a_process_above_nothing_is_decided() -> None:
    """In a container the launcher is not seen: both claims stand side by side, and none is chosen."""
    found = launched({**SLURM, "RANK": "0", "WORLD_SIZE": "1"}, None)
    assert found.claim is None
    assert found.conflict is not None
    assert found.conflict.right is None
    summary, evidence = conflict_words(found.conflict)
    assert "which of them started it is not seen" in summary
    assert evidence == ("env://: RANK=0 WORLD_SIZE=1", "Slurm: SLURM_PROCID=3 SLURM_NTASKS=4")


def test_mpirun_in_a_slurm_job_is_no_fault() -> None:
    """orted is a task of Slurm with a rank of its own; nobody reads that, so Open MPI's counts."""
    found = launched({**OPEN_MPI, **SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, "orted")
    assert found.claim is not None
    assert found.claim.launcher.name == "Open MPI"
    assert found.conflict is not None
    assert not found.conflict.torch_misled
    assert [claim.words for claim in found.conflict.leftover] == ["SLURM_PROCID=0 SLURM_NTASKS=3"]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "\u0661"])
def test_a_rank_that_is_none_is_told(value: str) -> None:
    """The error names the variable and its value."""
    with pytest.raises(ClaimError, match=r"PMI_RANK=.* is not a number of 0 or more"):
        launched({"PMI_RANK": value, "PMI_SIZE": "2"}, None)


def test_the_launchers_variables_can_be_taken_away() -> None:
    """What is left has nothing of any launcher, and everything else."""
    own = {"GLOO_SOCKET_IFNAME": "eth0", "PATH": "/bin", "OMP_NUM_THREADS": "1"}
    assert without_launchers({**own, **TORCH, **OPEN_MPI, **HYDRA, **MVAPICH2, **SLURM}) == own
