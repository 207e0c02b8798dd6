"""Who runs where, as Slurm or a host file tells it, in a launcher's variables.

Both become RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, so that the rest of the probe (and
torch, when it runs the collective) knows one way only.
"""

from __future__ import annotations

import re
import socket
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from diagnosis.launchers import SLURM
from probe.interfaces import read_interfaces

_NODE_LISTS = ("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST")
MAX_HOSTS = 65536  # a typing error in a range must not fill the memory


class HostsError(ValueError):
    """Hosts that cannot be read, or among which this one is not; the text says what is allowed."""


def expand_nodelist(text: str) -> Tuple[str, ...]:
    """Slurm's short form of host names: `gpu[01-03,7],login` is gpu01, gpu02, gpu03, gpu7, login.

    Raises:
        HostsError: what is no such list.
    """
    found: List[str] = []
    for item in _split(text):
        found += _expand(item, text)
        if len(found) > MAX_HOSTS:
            raise HostsError(f"node list {text!r} names more than {MAX_HOSTS} hosts")
    if not found:
        raise HostsError(f"node list {text!r} names no host")
    return tuple(found)


def _split(text: str) -> List[str]:
    """The items between commas that stand outside brackets."""
    return [item for item in re.split(r",(?![^\[]*\])", text.strip()) if item]


def _expand(item: str, text: str) -> List[str]:
    """One item, its first range first; a name may hold several."""
    matched = re.fullmatch(r"([^\[\]]*)\[([^\[\]]+)\](.*)", item)
    if matched is None:
        if re.search(r"[\[\]\s]", item):
            raise HostsError(f"node list {text!r}: {item!r} is not a name such as node[01-04,7]")
        return [item]
    head, ranges, rest = matched.groups()
    tails = _expand(rest, text) if rest else [""]
    return [f"{head}{number}{tail}" for number in _numbers(ranges, text) for tail in tails]


def _numbers(ranges: str, text: str) -> List[str]:
    """`01-03,7` as 01, 02, 03, 7: as many digits as the range's first number has."""
    found: List[str] = []
    for part in ranges.split(","):
        matched = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (int(matched[1]), int(matched[2] or matched[1])) if matched else (1, 0)
        if matched is None or not first <= last < first + MAX_HOSTS:
            raise HostsError(f"node list {text!r}: {part!r} is not a number or a range such as 01-04")
        found += [f"{number:0{len(matched[1])}d}" for number in range(first, last + 1)]
    return found


def slurm_variables(environ: Mapping[str, str], master_port: int) -> Dict[str, str]:
    """A launcher's variables for a task of Slurm; MASTER_ADDR is the first host of the step.

    Raises:
        HostsError: no node list, or one that cannot be read.
    """
    name = next((name for name in _NODE_LISTS if environ.get(name)), None)
    if name is None:
        raise HostsError(f"{SLURM.rank} is set, but none of {', '.join(_NODE_LISTS)}; start it with srun")
    hosts = expand_nodelist(environ[name])
    rank = environ[SLURM.rank]
    if not rank.isdigit():
        raise HostsError(f"{SLURM.rank}={rank!r} is not a number of 0 or more")
    tasks = next((environ[name] for name in SLURM.size if environ.get(name)), str(len(hosts)))
    if not tasks.isdigit() or int(tasks) < len(hosts):
        raise HostsError(f"SLURM_NTASKS={tasks!r} is not a number of at least the step's {len(hosts)} hosts")
    node = environ.get("SLURM_NODEID") or str(int(rank) * len(hosts) // int(tasks))
    return {
        "RANK": rank,
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": environ.get("SLURM_LOCALID", "0"),
        "LOCAL_WORLD_SIZE": str(_tasks_on(node, int(tasks), len(hosts), environ)),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": environ.get("MASTER_ADDR") or hosts[0],
        "MASTER_PORT": environ.get("MASTER_PORT") or str(master_port),
    }


def job_hosts(environ: Mapping[str, str]) -> Tuple[str, ...]:
    """The hosts of the scheduler's job, the same on every one of them; () where none tells.

    Slurm's lists; LSF's LSB_MCPU_HOSTS ("host slots host slots"). PBS's and SGE's files lie on the
    first host only, so they tell nothing to the others.
    """
    name = next((name for name in _NODE_LISTS if environ.get(name)), None)
    if name is not None:
        return expand_nodelist(environ[name])
    return tuple(dict.fromkeys(environ.get("LSB_MCPU_HOSTS", "").split()[::2]))


def _tasks_on(node: str, tasks: int, hosts: int, environ: Mapping[str, str]) -> int:
    """How many tasks of the step run on a node of it.

    Raises:
        HostsError: Slurm does not tell, and they do not spread evenly.
    """
    text = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or ""
    counts: List[int] = []
    for item in text.split(",") if text else ():
        matched = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if matched is None or int(matched[2] or 1) > MAX_HOSTS:
            raise HostsError(f"SLURM_STEP_TASKS_PER_NODE={text!r} is not a list such as 2(x3),1")
        counts += [int(matched[1])] * int(matched[2] or 1)
    if len(counts) == hosts and sum(counts) == tasks and node.isdigit() and int(node) < hosts:
        return counts[int(node)]
    if tasks % hosts:
        raise HostsError(
            f"{tasks} tasks do not spread evenly over {hosts} hosts; start one a host: "
            "srun --ntasks-per-node=1"
        )
    return tasks // hosts


def read_hostfile(path: str) -> Tuple[str, ...]:
    """One host a line, its first word; what follows (`slots=8`), comments and blank lines are ignored.

    Raises:
        HostsError: it cannot be read, names fewer than two hosts, or one of them twice.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise HostsError(f"cannot read host file {path}: {reason}; it has one host a line") from error
    hosts = [words[0] for words in lines if words]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise HostsError(f"host file {path} names {', '.join(twice)} more than once; one line a host")
    if len(hosts) < 2:
        raise HostsError(f"host file {path} names {len(hosts)} hosts; a mesh has at least 2, one a line")
    return tuple(hosts)


def hostfile_variables(hosts: Sequence[str], master_port: int) -> Dict[str, str]:
    """A launcher's variables for this host; its rank is its line.

    Raises:
        HostsError: no line, or more than one, is this host.
    """
    lines = own_lines(hosts)
    if len(lines) != 1:
        own = ", ".join(sorted(_own_names() | _own_addresses()))
        which = "none of" if not lines else f"{len(lines)} of"
        raise HostsError(
            f"{which} the host file's {len(hosts)} lines are this host ({own}); write one line for each "
            "host, with its name or an address of it"
        )
    return {
        "RANK": str(lines[0]),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(lines[0]),
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(master_port),
    }


def own_lines(hosts: Sequence[str]) -> List[int]:
    """The lines that are this host: by address, by name, else by what a name resolves to."""
    names, addresses = _own_names(), _own_addresses()
    plain = [place for place, host in enumerate(hosts) if host in addresses or host.lower() in names]
    return plain or [place for place, host in enumerate(hosts) if _resolved(host) & addresses]


def own_address_among(hosts: Sequence[str]) -> Optional[str]:
    """The address that a line gives for this host; None where it gives a name."""
    return next((host for host in hosts if host in _own_addresses()), None)


def _own_names() -> FrozenSet[str]:
    name = socket.gethostname().lower()
    return frozenset((name, name.partition(".")[0]))


def _own_addresses() -> FrozenSet[str]:
    found = (address for addresses in read_interfaces().values() for address in addresses)
    return frozenset(address for address in found if not address.startswith("127.") and address != "::1")


def _resolved(host: str) -> FrozenSet[str]:
    try:
        return frozenset(str(item[4][0]) for item in socket.getaddrinfo(host, None))
    except OSError:
        return frozenset()
