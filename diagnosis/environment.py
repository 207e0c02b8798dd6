"""The variables of the env:// rendezvous: which are missing, and which values can be right.

What Gloo and torch read at all is in `variables`.
"""

from __future__ import annotations

import re
from typing import Mapping, Tuple

# The rendezvous env:// needs all four (torch/distributed/rendezvous.py).
RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# Variables of launchers from which a rank or a size is taken in place of RANK, WORLD_SIZE.
RANK_NAMES = ("NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
SIZE_NAMES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

_TRANSPORTS = ("TCP", "TCP_TLS", "UV", "IBVERBS", "LINUX", "APPLE", "WIN32")
# A host name or an address, and nothing else: no blank, scheme, port, path, quote or bracket.
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")


def missing_rendezvous(environment: Mapping[str, str]) -> Tuple[str, ...]:
    """Names of the env:// rendezvous that are absent, where another launcher does not give them."""
    absent = [name for name in RENDEZVOUS if name not in environment]
    if any(name in environment for name in RANK_NAMES) and "RANK" in absent:
        absent.remove("RANK")
    if any(name in environment for name in SIZE_NAMES) and "WORLD_SIZE" in absent:
        absent.remove("WORLD_SIZE")
    return tuple(absent)


def transport_is_known(value: str) -> bool:
    """Whether any build has a transport of that name."""
    return value in _TRANSPORTS


def host_is_well_formed(value: str) -> bool:
    """Whether MASTER_ADDR's value can be a host name or an address."""
    return bool(_HOST.fullmatch(value) or _IPV6.fullmatch(value))
