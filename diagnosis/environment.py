"""Which variables Gloo and torch read, which nothing reads, and what works in their place.

From the sources of Gloo and of torch 2.13 and from the strings of the 2.13 wheel: a name of
`READ` occurs there, a name of `UNREAD` (and any other GLOO_ name) does not.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping, Tuple

# The rendezvous env:// needs all four (torch/distributed/rendezvous.py).
RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# Variables of launchers from which a rank or a size is taken in place of RANK, WORLD_SIZE.
RANK_NAMES = ("NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
SIZE_NAMES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

READ: Dict[str, str] = {
    "GLOO_SOCKET_IFNAME": "interfaces for Gloo, exact names between commas; one listener and context each",
    "GLOO_DEVICE_TRANSPORT": "TCP, TCP_TLS, UV or IBVERBS; the official Linux wheel has TCP only",
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY": "key of the TLS transport, in builds that have it",
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT": "certificate of the TLS transport, in builds that have it",
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE": "authorities of the TLS transport, in builds that have it",
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_PATH": "authorities of the TLS transport, in builds that have it",
    "GLOO_LOG_LEVEL": "DEBUG, INFO, WARN or ERROR (torch 2.11 and later)",
    "GLOO_DISABLE_CONNECTION_RETRIES": "1 turns the three retries off and hides the error (torch 2.8)",
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER": "1 makes store records smaller; equal on all ranks (torch 2.8)",
    "GLOO_ENABLE_STORE_V2_API": "1 reads the store in batches (torch 2.8 and later)",
    "TORCH_GLOO_LAZY_INIT": "1 connects pairs on first use (torch 2.8 and later)",
    "TORCH_GLOO_IBV_NAME": "device of the IBVERBS transport, in builds that have it",
    "TORCH_GLOO_IBV_PORT": "port of the IBVERBS transport, in builds that have it",
    "TORCH_GLOO_IBV_INDEX": "index of the IBVERBS transport, in builds that have it",
    "TORCH_DISTRIBUTED_DEBUG": "OFF, INFO or DETAIL; DETAIL adds a second mesh a group",
    "TORCH_CPP_LOG_LEVEL": "INFO, WARNING, ERROR or FATAL",
    "TORCH_DIST_INIT_BARRIER": "1 adds a store barrier after init (torch 2.1 and later)",
    "USE_LIBUV": "1 (default since torch 2.4) or 0: the store's back end",
    "MASTER_ADDR": "where rank 0 serves the store",
    "MASTER_PORT": "the store's port",
    "RANK": "rank of this process",
    "WORLD_SIZE": "number of processes of the job",
}

_CHANNELS = (
    "GLOO_SOCKET_IFNAME=ens5,ens5 (one context each) with several collectives in flight, or several groups"
)
_HIERARCHY = (
    'init_device_mesh("cpu", (nodes, local)) with reduce_scatter, all_reduce and all_gather; or '
    "fully_shard on a 2-D mesh"
)
_COMPRESSION = "ddp.register_comm_hook(None, default_hooks.fp16_compress_hook), or a PowerSGD hook"
_FAMILY = "an interface in GLOO_SOCKET_IFNAME whose first address has the wanted family"

# name -> the mechanism that does work.
UNREAD: Dict[str, str] = {
    "GLOO_TIMEOUT_SECONDS": "init_process_group(timeout=timedelta(...)) or new_group(timeout=...)",
    "GLOO_MAX_NUM_CHANNELS": _CHANNELS,
    "GLOO_SOCKET_NTHREADS": _CHANNELS,
    "GLOO_NSOCKS_PERTHREAD": _CHANNELS,
    "GLOO_NSOCKS": _CHANNELS,
    "GLOO_ENABLE_RELIABLE_TRANSPORT": "nothing: TCP is reliable; restarts come from torchrun --max-restarts",
    "GLOO_TCP_BUFFER_SIZE": "sysctl net.ipv4.tcp_rmem and net.ipv4.tcp_wmem",
    "GLOO_SOCKET_BUFSIZE": "sysctl net.ipv4.tcp_rmem and net.ipv4.tcp_wmem",
    "GLOO_HIERARCHICAL_ALLREDUCE": _HIERARCHY,
    "GLOO_HIERARCHY_LEVELS": _HIERARCHY,
    "GLOO_COMPRESSION": _COMPRESSION,
    "GLOO_COMPRESSION_LEVEL": _COMPRESSION,
    "GLOO_SOCKET_FAMILY": _FAMILY,
    "GLOO_USE_IPV6": _FAMILY,
    "GLOO_SOCKET_IFADDR": _FAMILY,
    "GLOO_DEBUG": "GLOO_LOG_LEVEL=DEBUG (torch 2.11 and later)",
}

_TRANSPORTS = ("TCP", "TCP_TLS", "UV", "IBVERBS", "LINUX", "APPLE", "WIN32")
# A host name or an address, and nothing else: no blank, scheme, port, path, quote or bracket.
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")


def without_effect(environment: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    """(name, what works in its place) of every set GLOO_ variable that nothing reads."""
    return tuple(
        (name, UNREAD.get(name, "nothing of that name: see fullmesh causes env-no-effect"))
        for name in sorted(environment)
        if name.startswith("GLOO_") and name not in READ
    )


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
