"""`check` under the variables of Slurm and MPI launchers, as real processes on hosts of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.cluster_in_namespace import address_of, run_cluster
from tests.probe.test_check import causes

pytestmark = pytest.mark.lab

MESH_ONLY = ["check", "--json", "--no-collective", "--timeout-s", "30"]


def open_mpi(rank: int, size: int, local_rank: int, local_size: int) -> dict[str, str]:
    """What mpirun of Open MPI sets for one rank."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "PMIX_RANK": str(rank),
    }


def hydra(rank: int, size: int) -> dict[str, str]:
    """What mpiexec of MPICH and of Intel MPI sets for one rank, one a host."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": "0",
        "MPI_LOCALNRANKS": "1",
    }


def srun(task: int, tasks: int) -> dict[str, str]:
    """What srun sets for one task, one a host."""
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(task),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NODELIST": f"node-[0-{tasks - 1}]",
    }


def test_tasks_of_slurm_take_their_rank_and_run_the_collective(tmp_path: Path) -> None:
    """Slurm's variables alone are enough, for torch too: its first host is the master."""
    environments = [
        {
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": "2",
            "SLURM_NODELIST": "node-[0-1]",
        }
        for rank in range(2)
    ]
    ended = run_cluster(tmp_path, [["check", "--json"]] * 2, environments=environments)
    assert [item.status for item in ended] == [0, 0]
    assert ended[1].answer == ""
    assert ended[0].answer["collective"]["outcome"] == "PASS"
    assert [(node["rank"], node["name"]) for node in ended[0].answer["nodes"]] == [
        (0, "node-0"),
        (1, "node-1"),
    ]


def test_several_tasks_of_slurm_on_a_host_are_one_member(tmp_path: Path) -> None:
    """Four tasks on two hosts: the mesh is between the hosts, the all_reduce between all four."""
    environments = [
        {
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": str(task),
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
            "SLURM_LOCALID": str(task % 2),
            "SLURM_NODEID": str(task // 2),
            "SLURM_STEP_NODELIST": "node-[0-1]",
        }
        for task in range(4)
    ]
    ended = run_cluster(tmp_path, [["check", "--json"]] * 4, environments=environments, hosts=[0, 0, 1, 1])
    assert [item.status for item in ended] == [0, 0, 0, 0], [item.log for item in ended]
    assert [item.answer for item in ended[1:]] == ["", "", ""]
    answer = ended[0].answer
    assert [node["name"] for node in answer["nodes"]] == ["node-0", "node-1"]
    assert (answer["collective"]["outcome"], answer["collective"]["world_size"]) == ("PASS", 4)


def test_ranks_of_mpirun_in_any_order_are_members_each(tmp_path: Path) -> None:
    """mpirun --map-by node puts ranks 0 and 2 on one host: four members, and an all_reduce of four."""
    master = {"MASTER_ADDR": address_of(0)}
    environments = [open_mpi(rank, 4, place, 2) | master for rank, place in ((0, 0), (2, 1), (1, 0), (3, 1))]
    ended = run_cluster(tmp_path, [["check", "--json"]] * 4, environments=environments, hosts=[0, 0, 1, 1])
    assert [item.status for item in ended] == [0, 0, 0, 0], [item.log for item in ended]
    answer = ended[0].answer
    assert [(node["rank"], node["name"]) for node in answer["nodes"]] == [
        (0, "node-0"),
        (1, "node-1"),
        (2, "node-0"),
        (3, "node-1"),
    ]
    assert len(answer["pairs"]) == 12
    assert (answer["collective"]["outcome"], answer["collective"]["world_size"]) == ("PASS", 4)


def test_mpi_without_a_master_meets_in_a_directory(tmp_path: Path) -> None:
    """MPI tells no address; the members find rank 0 at the meeting place, for torch's store, too."""
    check = ["check", "--json", "--meet", str(tmp_path / "meet")]
    environments = [hydra(1, 2), hydra(0, 2)]  # rank 0 has the higher address
    ended = run_cluster(tmp_path, [check] * 2, environments=environments)
    assert [item.status for item in ended] == [0, 0], [item.log for item in ended]
    answer = ended[1].answer
    assert [(node["rank"], node["name"]) for node in answer["nodes"]] == [(0, "node-1"), (1, "node-0")]
    assert answer["collective"]["outcome"] == "PASS"


def test_mpi_in_a_slurm_job_meets_on_the_jobs_first_host(tmp_path: Path) -> None:
    """The allocation's list tells every rank one host to meet on, wherever rank 0 runs."""
    job = {"SLURM_JOB_NODELIST": "node-[0-2]", "SLURM_PROCID": "0", "SLURM_NTASKS": "24"}
    environments = [{**job, **hydra(rank, 3)} for rank in (2, 0, 1)]
    ended = run_cluster(tmp_path, [MESH_ONLY] * 3, environments=environments)
    assert [item.status for item in ended] == [0, 0, 0], [item.log for item in ended]
    assert [node["name"] for node in ended[1].answer["nodes"]] == ["node-1", "node-2", "node-0"]


def test_mpi_on_one_host_needs_nothing_else(tmp_path: Path) -> None:
    """Where all ranks share a host, its own address is where they meet."""
    environments = [open_mpi(rank, 3, rank, 3) for rank in range(3)]
    ended = run_cluster(tmp_path, [MESH_ONLY] * 3, environments=environments, hosts=[0, 0, 0])
    assert [item.status for item in ended] == [0, 0, 0], [item.log for item in ended]
    assert len(ended[0].answer["pairs"]) == 6


def test_variables_left_over_are_named_where_they_are(tmp_path: Path) -> None:
    """One of three tasks has another job's RANK: srun is seen above it, so that is what is wrong."""
    environments = [srun(task, 3) for task in range(3)]
    environments[1] |= {"RANK": "0", "WORLD_SIZE": "1"}
    ended = run_cluster(tmp_path, [MESH_ONLY] * 3, environments=environments, above="slurmstepd")
    assert [item.status for item in ended] == [1, 1, 1], [item.log for item in ended]
    assert causes(ended[0]) == causes(ended[1]) == [("env-leftover", "node:1")]
    assert ended[0].answer["causes"][0]["commands"] == ["unset RANK WORLD_SIZE"]
    assert max(item.seconds for item in ended) < 30


def test_launchers_that_disagree_unseen_are_undetermined(tmp_path: Path) -> None:
    """In a container no launcher is seen above: both claims are shown, and no cause is named."""
    environments = [srun(task, 2) | {"RANK": "0", "WORLD_SIZE": "1"} for task in range(2)]
    ended = run_cluster(tmp_path, [MESH_ONLY] * 2, environments=environments)
    assert [item.status for item in ended] == [3, 3], [item.log for item in ended]
    assert max(item.seconds for item in ended) < 10
    answer = ended[1].answer
    assert (answer["verdict"], answer["causes"]) == ("UNKNOWN", [])
    assert [item["id"] for item in answer["candidates"]] == ["env-leftover"]
    assert answer["candidates"][0]["evidence"] == [
        "env://: RANK=0 WORLD_SIZE=1",
        "Slurm: SLURM_PROCID=1 SLURM_NTASKS=2",
    ]


def test_mpirun_below_srun_is_no_fault(tmp_path: Path) -> None:
    """orted is a task of Slurm itself, and its ranks inherit a SLURM_PROCID that nobody reads."""
    environments = [
        {**srun(0, 3), **open_mpi(rank, 2, 0, 1), "MASTER_ADDR": address_of(0)} for rank in range(2)
    ]
    ended = run_cluster(tmp_path, [MESH_ONLY] * 2, environments=environments, above="orted")
    assert [item.status for item in ended] == [0, 0], [item.log for item in ended]
    assert causes(ended[0]) == []
