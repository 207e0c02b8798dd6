"""Which variables Gloo and torch read, which nothing reads, and how to get what those promise.

From the sources of Gloo and of torch 2.13, the libraries of the Linux wheels 2.7.1, 2.8.0, 2.10.0
and 2.13.0, the strings of the macOS wheels 2.6 to 2.14, and runs of torch 2.13. What a newer or
another build reads is told by its own files (`probe/torch_files.py`).
Named tuples, because `explain` starts with this module.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

NEWEST_KNOWN = "2.14"
"""The newest release of torch that was looked through for the tables below."""


class Read(NamedTuple):
    """A variable that is read.

    since: the first torch release that reads it; "" = every one that matters.
    values: the only ones that have an effect; () = any.
    compiled: its name stands in torch's libraries (else Python reads it).
    some_builds: builds of one release differ; which it is, only the libraries tell.
    """

    meaning: str
    since: str = ""
    values: Tuple[str, ...] = ()
    compiled: bool = True
    some_builds: bool = False


class Instead(NamedTuple):
    """What works in a variable's place.

    python, command: how it is turned on. Fields: {value} of the variable, {interface} for Gloo,
        {interfaces} the same as often as the value says.
    """

    works: str
    python: str = ""
    command: str = ""


class NoEffect(NamedTuple):
    """A variable that is set in vain, and why."""

    name: str
    why: str
    instead: Optional[Instead]


_FLAG = ("1", "True")  # gloo/common/utils.cc compares with these two, exactly; "true" is no value
_OFF = ("0", "false", "no", "off", "n", "f", "")  # meant as "not at all", which it then is

READ: Dict[str, Read] = {
    "GLOO_SOCKET_IFNAME": Read("interfaces, exact names between commas; one listener and context each"),
    "GLOO_DEVICE_TRANSPORT": Read("TCP, TCP_TLS, UV or IBVERBS; the official CPU wheel has TCP only"),
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY": Read("key of the TLS transport", some_builds=True),
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT": Read("certificate of the TLS transport", some_builds=True),
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE": Read("authorities of the TLS transport", some_builds=True),
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_PATH": Read("authorities of the TLS transport", some_builds=True),
    # Any other value, "debug" too, counts as ERROR: that is an effect.
    "GLOO_LOG_LEVEL": Read("DEBUG, INFO, WARN or ERROR: how much Gloo logs", "2.11"),
    "GLOO_DISABLE_CONNECTION_RETRIES": Read(
        "1 turns the three retries off, and hides the error", "2.8", _FLAG
    ),
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER": Read("1 makes store records smaller", "2.8", _FLAG),
    "GLOO_ENABLE_STORE_V2_API": Read("1 reads the store in batches", "2.8", _FLAG),
    "TORCH_GLOO_LAZY_INIT": Read("1 connects pairs on first use", "2.8"),
    "TORCH_GLOO_IBV_NAME": Read("device of the IBVERBS transport", some_builds=True),
    "TORCH_GLOO_IBV_PORT": Read("port of the IBVERBS transport", some_builds=True),
    "TORCH_GLOO_IBV_INDEX": Read("index of the IBVERBS transport", some_builds=True),
    "TORCH_DISTRIBUTED_DEBUG": Read("OFF, INFO or DETAIL; DETAIL adds a second mesh a group"),
    "TORCH_CPP_LOG_LEVEL": Read("INFO, WARNING, ERROR or FATAL"),
    "TORCH_DIST_INIT_BARRIER": Read("1 adds a store barrier after init", "2.1", compiled=False),
    "USE_LIBUV": Read("1 (default since torch 2.4) or 0: the store's back end", compiled=False),
    "MASTER_ADDR": Read("where rank 0 serves the store", compiled=False),
    "MASTER_PORT": Read("the store's port", compiled=False),
    "RANK": Read("rank of this process", compiled=False),
    "WORLD_SIZE": Read("number of processes of the job", compiled=False),
}

_TIMEOUT = Instead(
    "a time-out of the process group",
    "init_process_group('gloo', timeout=datetime.timedelta(seconds={value})); also new_group(timeout=...)",
)
_CHANNELS = Instead(
    "several contexts (one connection a pair each), used by collectives that are in flight together",
    "work = [dist.all_reduce(t, async_op=True) for t in tensors]; [w.wait() for w in work]",
    "export GLOO_SOCKET_IFNAME={interfaces}",
)
_HIERARCHY = Instead(
    "a mesh of two dimensions, reduced inside the host first",
    "mesh = init_device_mesh('cpu', (nodes, ranks_per_node)), then all_reduce over mesh.get_group(1) and "
    "mesh.get_group(0); or fully_shard(model, mesh=mesh)",
)
_COMPRESSION = Instead(
    "a communication hook of DistributedDataParallel (fp16, or PowerSGD)",
    "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks; "
    "ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)",
)
_FAMILY = Instead(
    "an interface whose first address has the wanted family", command="export GLOO_SOCKET_IFNAME={interface}"
)
_INTERFACE = Instead(
    "the interface by its exact name, for Gloo", command="export GLOO_SOCKET_IFNAME={interface}"
)
_BUFFERS = Instead(
    "the kernel's own limits; it grows a connection's buffers by itself, up to the last number",
    command="sudo sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 65536 16777216'",
)

UNREAD: Dict[str, Instead] = {
    "GLOO_TIMEOUT_SECONDS": _TIMEOUT,
    "GLOO_TIMEOUT": _TIMEOUT,
    "GLOO_MAX_NUM_CHANNELS": _CHANNELS,
    "GLOO_SOCKET_NTHREADS": _CHANNELS,
    "GLOO_NSOCKS_PERTHREAD": _CHANNELS,
    "GLOO_NSOCKS": _CHANNELS,
    "GLOO_ENABLE_RELIABLE_TRANSPORT": Instead(
        "nothing is needed: TCP is reliable, and connecting is retried; a job that lost a rank is restarted",
        command="torchrun --max-restarts=3 --nnodes=NNODES --rdzv-backend=c10d "
        "--rdzv-endpoint=HOST:PORT SCRIPT",
    ),
    "GLOO_TCP_BUFFER_SIZE": _BUFFERS,
    "GLOO_SOCKET_BUFSIZE": _BUFFERS,
    "GLOO_HIERARCHICAL_ALLREDUCE": _HIERARCHY,
    "GLOO_HIERARCHY_LEVELS": _HIERARCHY,
    "GLOO_COMPRESSION": _COMPRESSION,
    "GLOO_COMPRESSION_LEVEL": _COMPRESSION,
    "GLOO_SOCKET_FAMILY": _FAMILY,
    "GLOO_USE_IPV6": _FAMILY,
    "GLOO_SOCKET_IFADDR": _INTERFACE,
    "GLOO_DEBUG": Instead("Gloo's log (torch 2.11 and later)", command="export GLOO_LOG_LEVEL=DEBUG"),
    "TORCH_GLOO_TIMEOUT": _TIMEOUT,
    "TORCH_DISTRIBUTED_TIMEOUT": _TIMEOUT,
}

# What Gloo has in place of NCCL's, whose variables do nothing in a torch that is built without NCCL. Only
# those are worth a word that seem to choose Gloo's way, too; torchrun itself sets others for every worker.
_NCCL_INSTEAD: Dict[str, Instead] = {"NCCL_SOCKET_IFNAME": _INTERFACE, "NCCL_SOCKET_FAMILY": _FAMILY}
_CPU_BUILD = re.compile(r"\+cpu\b")
_GLOO = ("GLOO_", "TORCH_GLOO_")


def compiled_names(environment: Mapping[str, str]) -> Tuple[str, ...]:
    """The set variables whose names torch's libraries would hold if they read them."""
    return tuple(
        name
        for name in sorted(environment)
        if name in UNREAD or (READ[name].compiled if name in READ else name.startswith(_GLOO))
    )


def without_effect(
    environment: Mapping[str, str], torch: str = "", held: Optional[Mapping[str, bool]] = None
) -> Tuple[NoEffect, ...]:
    """Every variable that is set in vain.

    Args:
        torch: the installed release, such as "2.13.0+cpu"; "" = not known.
        held: name -> whether the installed torch's libraries hold it; None = not looked at.
    """
    found: List[NoEffect] = []
    for name in sorted(environment):
        told = _told(name, environment, torch, held or {})
        if told is not None:
            found.append(told)
    return tuple(found)


def _told(
    name: str, environment: Mapping[str, str], torch: str, held: Mapping[str, bool]
) -> Optional[NoEffect]:
    if name in READ:
        why = _why_not(READ[name], environment[name], torch, held.get(name))
        return NoEffect(name, why, None) if why else None
    if name in UNREAD or name.startswith(_GLOO):
        if held.get(name) or (name not in held and torch and _release(torch) > _release(NEWEST_KNOWN)):
            return None  # a newer release, or another build, reads it or may do so
        why = f"no release of Gloo or torch up to {NEWEST_KNOWN} reads it"
        if name in held:
            why += f", and {_installed(torch)} does not hold its name"
        return NoEffect(name, why, UNREAD.get(name))
    if name in _NCCL_INSTEAD and not environment.get("GLOO_SOCKET_IFNAME") and _CPU_BUILD.search(torch):
        return NoEffect(name, f"torch {torch} is built without NCCL", _NCCL_INSTEAD[name])
    return None


def _why_not(read: Read, value: str, torch: str, held: Optional[bool]) -> str:
    """Why a variable that is read has no effect here; "" where it has, and where that is not known.

    The libraries' word stands alone only for what builds of one release differ in: a release that is
    known to read a name may keep it where nobody looks.
    """
    early = bool(read.since and torch and _release(torch) < _release(read.since))
    if held is False and (early or read.some_builds):
        later = f"; releases from {read.since} on read it" if read.since else "; other builds do"
        return f"{_installed(torch)} does not hold its name{later}"
    if early and held is None:
        return f"torch {torch} does not read it, releases from {read.since} on do"
    if read.values and value not in read.values and value.lower() not in _OFF:
        return f"{value!r} is none of the values that count, which are {', '.join(read.values)}"
    return ""


def _installed(torch: str) -> str:
    return f"torch {torch} as it is installed here" if torch else "the torch that is installed here"


def _release(text: str) -> Tuple[int, ...]:
    """The numbers at the beginning: "2.13.0+cpu" is (2, 13)."""
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:2])
