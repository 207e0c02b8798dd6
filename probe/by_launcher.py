"""The place of a member that a launcher, Slurm or a host file has given a rank."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from typing import Dict, Iterator, Mapping, Optional

from probe.board import BoardError
from probe.hosts import HostsError, hostfile_variables, own_address_among, read_hostfile, slurm_variables
from probe.place import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MASTER_PORT,
    DiscoverError,
    EnvironmentIncomplete,
    Place,
    Wish,
    left_out,
    own_address,
    own_range,
)
from probe.tcp_board import BoardServer, TcpBoard

# How long a member that cannot take part tries to tell the others why: a launcher starts all at once.
UNFINISHED_PATIENCE_S = 10.0
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# With one of these a launcher has told the rank; without, Slurm's own variables tell it.
DECIDING_VARIABLES = ("RANK", "WORLD_SIZE")


@contextlib.contextmanager
def by_hosts(wish: Wish, environ: Mapping[str, str]) -> Iterator[Place]:
    """The place that a host file or Slurm tells: as under a launcher with those variables."""
    master_port = wish.master_port or DEFAULT_MASTER_PORT
    address = wish.address
    try:
        if wish.hostfile is not None:
            hosts = read_hostfile(wish.hostfile)
            variables: Dict[str, str] = hostfile_variables(hosts, master_port)
            address = address or own_address_among(hosts)
        else:
            variables = slurm_variables(environ, master_port)
    except HostsError as error:
        raise DiscoverError(str(error)) from error
    count = variables["GROUP_WORLD_SIZE"]
    if wish.nodes is not None and str(wish.nodes) != count:
        raise DiscoverError(
            f"--nodes {wish.nodes}, but {wish.hostfile or 'the node list'} names {count} hosts; "
            "leave --nodes out"
        )
    with by_environment(dataclasses.replace(wish, address=address), {**environ, **variables}) as place:
        yield dataclasses.replace(place, variables=variables)


def unfinished_place(wish: Wish, environ: Mapping[str, str]) -> Optional[Place]:
    """Where a member whose launcher variables are incomplete can tell the others; None: nowhere.

    Its rank and size are claimed as far as they are set; rank 0 is where the others would meet.
    """
    try:
        rank, world_size = (
            _number(environ, name) if environ.get(name) else None for name in ("RANK", "WORLD_SIZE")
        )
        master_port = _number(environ, "MASTER_PORT", DEFAULT_MASTER_PORT)
        master = environ.get("MASTER_ADDR")
        if rank == 0 or _number(environ, "LOCAL_RANK", 0) or (master is None and wish.meet is None):
            return None
        meet_host, meet_port = _meeting_point(wish.meet, master or "", master_port)
        address = wish.address or own_address(meet_host, environ.get("GLOO_SOCKET_IFNAME", ""))
    except DiscoverError:
        return None
    member_id = f"{address}-{os.getpid()}"
    return Place(
        run=wish.run or environ.get("TORCHELASTIC_RUN_ID") or "check",
        member_id=member_id,
        address=address,
        name=socket.gethostname(),
        nodes=world_size or 0,
        board=TcpBoard(meet_host, meet_port, member_id, patience_s=UNFINISHED_PATIENCE_S),
        master_port=None,
        rank=rank,
        world_size=world_size,
        master_address=master,
    )


@contextlib.contextmanager
def by_environment(wish: Wish, environ: Mapping[str, str]) -> Iterator[Place]:
    missing = [name for name in LAUNCHER_VARIABLES if not environ.get(name)]
    if missing:
        raise EnvironmentIncomplete(f"{' and '.join(missing)} not set, though other launcher variables are")
    rank, world_size, master_port = (_number(environ, name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    local_rank = _number(environ, "LOCAL_RANK", 0)
    per_node = _number(environ, "LOCAL_WORLD_SIZE", 1)
    if per_node > 1:  # the mesh is between nodes: one process of each takes part
        rank = _number(environ, "GROUP_RANK", rank // per_node)
        world_size = _number(environ, "GROUP_WORLD_SIZE", max(1, world_size // per_node))
    agent_store = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    master = environ["MASTER_ADDR"]
    meet_host, meet_port = _meeting_point(wish.meet, master, master_port)
    address = wish.address or own_address(meet_host, environ.get("GLOO_SOCKET_IFNAME", ""))
    deadline_s = wish.deadline_s or DEFAULT_DEADLINE_S
    run = wish.run or environ.get("TORCHELASTIC_RUN_ID") or "check"
    member_id = f"{address}-{os.getpid()}"
    serves = False
    with contextlib.ExitStack() as stack:
        if rank == 0 and local_rank == 0:
            serves = _serve(stack, meet_host, meet_port)
        yield Place(
            run=run,
            member_id=member_id,
            address=address,
            name=socket.gethostname(),
            nodes=world_size,
            board=TcpBoard(meet_host, meet_port, member_id, patience_s=deadline_s / 2),
            master_port=None if agent_store else master_port,
            ephemeral_ports=own_range(None),
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            master_address=master,
            deadline_s=deadline_s,
            serves=serves,
            launcher=True,
            listens_on_master=wish.listens_on_master,
            skipped=left_out(wish, master_port),
        )


def _serve(stack: contextlib.ExitStack, host: str, port: int) -> bool:
    """Serve the meeting place; False where another process that claims rank 0 serves it already.

    That one is a fault to be judged (duplicate-rank) from both rows, so this one joins it.
    """
    try:
        stack.enter_context(BoardServer(host, port))
        return True
    except BoardError as refused:
        try:
            TcpBoard(host, port, "").names()
            return False
        except BoardError:
            raise refused from None


def _meeting_point(meet: Optional[str], master: str, master_port: int) -> tuple[str, int]:
    if meet is None:
        return master, master_port + 1
    host, _, port = meet[len("tcp://") :].rpartition(":")
    if not host or not port.isdigit():
        raise DiscoverError(f"--meet {meet} is not tcp://HOST:PORT")
    return host.strip("[]"), int(port)


def _number(environ: Mapping[str, str], name: str, default: Optional[int] = None) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdigit():
        raise DiscoverError(f"{name}={text!r} is not a number of 0 or more")
    return int(text)
