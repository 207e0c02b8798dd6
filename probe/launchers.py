"""The variables by which launchers tell a process its rank, and what is left of them elsewhere."""

from __future__ import annotations

from typing import Dict, Mapping

_TORCH = frozenset(
    (
        *("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES"),
        *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    )
)
_PREFIXES = ("TORCHELASTIC_", "PET_", "SLURM_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "MV2_COMM_WORLD_")


def without_launchers(environ: Mapping[str, str]) -> Dict[str, str]:
    """The environment of a process that no launcher has started."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _TORCH and not name.startswith(_PREFIXES)
    }
