"""What this host alone can tell: names, interface, firewall, limits, environment, versions.

Every field is read by itself: one that cannot be read is None and never hides the others.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
from typing import Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from cluster.ports import PortRange
from diagnosis.report import HostFacts
from diagnosis.variables import compiled_names
from probe.interfaces import interface_of, read_interfaces, read_mtu
from probe.limits import started_with
from probe.netfilter import Firewall, read_firewall
from probe.netlink import read_links
from probe.redact import SECRET_NAME
from probe.sockets import tcp_sockets
from probe.starter import started_by
from probe.torch_files import held_by_torch
from probe.versions import read_versions

T = TypeVar("T")

# A resolver that does not answer must not hold up the mesh. glibc's own default is 5 s a try.
RESOLVE_TIMEOUT_S = 6.0
_CHRONYC_TIMEOUT_S = 1.0
_SOCKETS = "/proc/net/tcp"

_NAMES = frozenset(
    (
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "NNODES"),
        *("ROLE_NAME", "USE_LIBUV", "INIT_METHOD", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
        "NCCL_SOCKET_FAMILY",
    )
)
_PREFIXES = (
    *("GLOO_", "TORCH_", "TORCHELASTIC_", "TORCHCOMM_", "MASTER_", "PET_", "HOROVOD_"),
    *("OMPI_COMM_WORLD_", "PMI_", "PMIX_RANK", "MPI_LOCAL", "MV2_COMM_WORLD_"),
    *("SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID", "SLURM_STEP", "SLURM_NPROCS", "SLURM_NTASKS"),
    *("SLURM_NNODES", "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
)
_USERINFO = re.compile(r"//[^/@\s]+@")
HIDDEN = "(set, not shown)"


def read_host_facts(address: Optional[str], environ: Mapping[str, str]) -> HostFacts:
    """Fill HostFacts for the node whose member address is `address` (None: not known)."""
    environment = distributed_environment(environ)
    hostname = _or_none(socket.gethostname)
    addresses, error = resolve(hostname) if hostname else (None, None)
    interfaces = _or_none(read_interfaces)
    links = _or_none(read_links)
    interface = interface_of(address, interfaces) if address and interfaces else None
    firewall = _or_none(read_firewall) or Firewall(rules=None, error="the firewall could not be read")
    return HostFacts(
        hostname=hostname,
        hostname_addresses=addresses,
        hostname_error=error,
        interface=interface,
        interfaces=interfaces,
        networks=links.networks if links else None,
        kinds=links.kinds if links else None,
        mtu=_or_none(lambda: read_mtu(interface)) if interface else None,
        local_port_range=read_local_port_range(),
        local_ports_held=_or_none(_local_ports_held),
        nofile_limit=started_with()[0],
        somaxconn=_or_none(lambda: int(_text("/proc/sys/net/core/somaxconn"))),
        firewall_rules=firewall.rules,
        firewall_error=firewall.error,
        environment=environment,
        versions=read_versions(),
        clock_offset_s=_or_none(read_clock_offset_s),
        started_by=started_by(),
        held_by_torch=_or_none(lambda: held_by_torch(compiled_names(environment))),
    )


def resolve(
    name: str, timeout_s: float = RESOLVE_TIMEOUT_S
) -> Tuple[Optional[Tuple[str, ...]], Optional[str]]:
    """(addresses in the resolver's order, None); ((), gai error); (None, why) without any answer in time.

    The order is kept because Gloo takes the first address that it can bind.
    """
    answer: List[Tuple[Tuple[str, ...], Optional[str]]] = []

    def ask() -> None:
        try:
            rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            answer.append((tuple(dict.fromkeys(str(row[4][0]) for row in rows)), None))
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that IDNA refuses
            answer.append(((), str(error)))

    thread = threading.Thread(target=ask, name="resolve", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answer[0] if answer else (None, f"no answer for {name!r} within {timeout_s:g} s")


def read_local_port_range() -> Optional[PortRange]:
    """net.ipv4.ip_local_port_range of this network namespace."""
    return _or_none(lambda: PortRange(*map(int, _text("/proc/sys/net/ipv4/ip_local_port_range").split())))


def _local_ports_held() -> Optional[int]:
    """How many ports of that range a socket has: none of these is left for a listener on any port.

    None where the range or the sockets cannot be read.
    """
    ports = read_local_port_range()
    if ports is None or not os.access(_SOCKETS, os.R_OK):
        return None
    return len({item.local[1] for item in tcp_sockets() if item.local[1] in ports})


def distributed_environment(environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables that decide ranks, addresses and Gloo's behaviour; never a secret's value."""
    found = {}
    for name in sorted(environ):
        if name in _NAMES or name.startswith(_PREFIXES):
            found[name] = HIDDEN if SECRET_NAME.search(name) else _USERINFO.sub("//***@", environ[name])
    return found


def read_clock_offset_s() -> Optional[float]:
    """This clock minus true time in seconds, as chrony knows it; None without a synchronised chrony."""
    path = shutil.which("chronyc")
    if path is None:
        return None
    done = subprocess.run(
        [path, "-c", "tracking"], capture_output=True, timeout=_CHRONYC_TIMEOUT_S, check=False
    )
    fields = done.stdout.decode(errors="replace").strip().split(",")
    if done.returncode != 0 or len(fields) < 14 or fields[-1] == "Not synchronised":
        return None
    return -float(fields[4])  # chrony gives the correction still to be made: positive = slow


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _or_none(read: Callable[[], T]) -> Optional[T]:
    try:
        return read()
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return None
