"""The README's commands for other clusters, run as they stand on two hosts of their own.

torchrun is the real one. Slurm and MPI are no part of the project: in their place stand scripts that
set what srun(1) and mpirun(1) set for one process on each host, and start the rest of the line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.test_readme import blocks
from tests.probe.cluster_in_namespace import COMMAND, Ended, address_of, run_cluster

pytestmark = pytest.mark.lab

CHECKOUT = Path(__file__).resolve().parents[2]
_, LAUNCHED, PLACES, ROWS = blocks()["Anywhere"]
SCRIPTS = {
    # Without site-packages: a Python that has no torch, as on most hosts before a job is there.
    "python3": f'exec {sys.executable} -S "$@"',
    "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
    "srun": "shift; export SLURM_STEP_ID=0 SLURM_PROCID=$R SLURM_NTASKS=2 SLURM_STEP_NODELIST=node-[0-1]; "
    'exec "$@"',
    "mpirun": 'export "$2" OMPI_COMM_WORLD_RANK=$R OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 '
    'OMPI_COMM_WORLD_LOCAL_SIZE=1; shift 2; exec "$@"',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What is on every host: the one file, a host file, a folder for rows, and the programs."""
    build = [sys.executable, "tools/build_pyz.py", str(tmp_path / "fullmesh.pyz")]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (tmp_path / "hosts").write_text("node-0\nnode-1\n")
    (tmp_path / "rows").mkdir()
    (tmp_path / "bin").mkdir()
    for name, line in SCRIPTS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def typed(folder: Path, command: str, hosts: int = 2) -> list[Ended]:
    """The command as it is typed on each host, all at once."""
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    line = command.replace("/shared/check", str(folder / "shared"))
    environments = [
        {COMMAND: f"cd {folder} && {line}", "PATH": path, "R": str(rank), "HOST": address_of(0)}
        for rank in range(hosts)
    ]
    return run_cluster(folder, [[]] * hosts, environments=environments, timeout_s=240)


@pytest.mark.parametrize("command", [*LAUNCHED, *PLACES])
def test_a_command_proves_the_mesh_of_two_hosts(folder: Path, command: str) -> None:
    """Every way to start it ends with PASS on both, and with the answer of rank 0."""
    ended = typed(folder, command)
    assert [item.status for item in ended] == [0, 0], [item.log for item in ended]
    assert "PASS  every pair was proven" in ended[0].answer
    assert "2 of 2 ordered pairs work" in ended[0].answer
    assert "\n1. " not in ended[0].answer  # nothing is named, such as torchrun's store on MASTER_PORT


def test_rows_are_kept_and_judged_together(folder: Path) -> None:
    """The last two commands, in the README's order."""
    keep, merge = ROWS
    assert [item.status for item in typed(folder, keep)] == [0, 0]
    (merged,) = typed(folder, merge, hosts=1)
    assert merged.status == 0, merged.log
    assert "2 of 2 ordered pairs work" in merged.answer
