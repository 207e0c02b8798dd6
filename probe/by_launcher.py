"""The place of a member that a launcher, Slurm, MPI or a host file has given a rank."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from typing import Dict, Iterator, Mapping, Optional, Sequence, Tuple

from diagnosis.launchers import SLURM, TORCH, Claim, ClaimError, claims_of, launched, number
from probe.board import Board, BoardError, Nowhere
from probe.hosts import (
    HostsError,
    hostfile_variables,
    job_hosts,
    own_address_among,
    own_lines,
    read_hostfile,
    slurm_variables,
)
from probe.meeting import meeting_point, on_a_port, serve, shared_board
from probe.place import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MASTER_PORT,
    DiscoverError,
    EnvironmentIncomplete,
    LaunchConflicted,
    Place,
    Wish,
    left_out,
    own_address,
    own_range,
)
from probe.relay import Relay
from probe.seat import Seat, known_hosts
from probe.starter import started_by
from probe.store_board import StoreBoard
from probe.tcp_board import TcpBoard
from probe.torch_store import keys_in_store

# How long a member that cannot take part tries to tell the others why: a launcher starts all at once.
UNFINISHED_PATIENCE_S = 10.0
_NOWHERE = (
    "the launcher tells no address of rank 0; give it to every rank (Open MPI: mpirun -x MASTER_ADDR=HOST; "
    "MPICH, Intel MPI: mpiexec -genv MASTER_ADDR HOST), or check --meet DIRECTORY"
)
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Under MPI every rank is a member. More of them on shared hosts prove nothing more, and a matrix
# of this size is judged within seconds.
MOST_RANKS_OF_SHARED_HOSTS = 128


def launcher_variables(wish: Wish, environ: Mapping[str, str]) -> Optional[Dict[str, str]]:
    """What torch's launcher would set and this process lacks; None where nobody has given it a rank.

    Raises:
        LaunchConflicted: launchers disagree.
        DiscoverError: what they tell cannot be.
    """
    master_port = wish.master_port or DEFAULT_MASTER_PORT
    try:
        launch = launched(environ, started_by())
        if launch.claim is None:
            if launch.conflict is not None:
                raise LaunchConflicted(launch.conflict)
            return None
        claim = launch.claim
        if claim.launcher is TORCH:
            return {}
        steps = [told for told in claims_of(environ) if told.launcher is SLURM]
        if any((told.rank, told.size) == (claim.rank, claim.size) for told in steps):
            return slurm_variables(environ, master_port)
        return _mpi_variables(claim, environ, master_port)
    except (ClaimError, HostsError) as error:
        raise DiscoverError(str(error)) from error


def _mpi_variables(claim: Claim, environ: Mapping[str, str], master_port: int) -> Dict[str, str]:
    """As under a launcher with one process a node: mpirun may place ranks in any order, so each is a member.

    Without MASTER_ADDR in them where rank 0's host is not known.
    """
    shared = claim.local_size is None or claim.local_size > 1
    if shared and claim.size > MOST_RANKS_OF_SHARED_HOSTS:
        raise DiscoverError(
            f"{claim.words}: with several ranks a host at most {MOST_RANKS_OF_SHARED_HOSTS} can be checked; "
            "start one a host: mpirun --map-by ppr:1:node, or mpiexec -ppn 1"
        )
    master = environ.get("MASTER_ADDR")
    if not master and claim.local_size == claim.size:
        master = own_address(interface=environ.get("GLOO_SOCKET_IFNAME", ""))
    return {
        "RANK": str(claim.rank),
        "WORLD_SIZE": str(claim.size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(claim.rank),
        "GROUP_WORLD_SIZE": str(claim.size),
        "MASTER_PORT": environ.get("MASTER_PORT") or str(master_port),
        **({"MASTER_ADDR": master} if master else {}),
    }


def hostfile_place(wish: Wish) -> Tuple[Wish, Dict[str, str]]:
    """The wish with this host's address where the file gives it, and a launcher's variables.

    Raises:
        DiscoverError: the file does not tell this host's place.
    """
    try:
        hosts = read_hostfile(wish.hostfile or "")
        variables = hostfile_variables(hosts, wish.master_port or DEFAULT_MASTER_PORT)
        address = wish.address or own_address_among(hosts)
    except HostsError as error:
        raise DiscoverError(str(error)) from error
    return dataclasses.replace(wish, address=address), variables


def _check_count(wish: Wish, variables: Mapping[str, str], who: str) -> None:
    count = variables.get("GROUP_WORLD_SIZE")
    if wish.nodes is not None and count is not None and str(wish.nodes) != count:
        raise DiscoverError(f"--nodes {wish.nodes}, but {who} names {count} hosts; leave --nodes out")


@contextlib.contextmanager
def by_environment(wish: Wish, environ: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[Place]:
    """The place that a launcher's variables tell.

    variables: those of them that this process's environment lacks.

    Raises:
        EnvironmentIncomplete: some are not there.
        DiscoverError, BoardError: they cannot be right, or there is no place to meet.
    """
    known = {**environ, **variables}
    if not variables:
        _check_complete(wish, environ)
    _check_count(wish, variables, wish.hostfile or "the launcher")
    try:
        seat = Seat.of(known)
        master_port = number(known, "MASTER_PORT") if known.get("MASTER_PORT") else DEFAULT_MASTER_PORT
    except ClaimError as error:
        raise DiscoverError(str(error)) from error
    master = known.get("MASTER_ADDR") or None
    deadline_s = wish.deadline_s or DEFAULT_DEADLINE_S
    patience_s = deadline_s / 2
    run = wish.run or _run_of(known)
    point = _point(wish, known, seat, master_port) if on_a_port(wish.meet) else None
    towards = (point.host if point else "") or master or ""
    address = wish.address or _own_address(towards, known.get("GLOO_SOCKET_IFNAME", ""))
    # Ends in the rank, so that a listing alone tells the ranks.
    member_id = f"{address}-{os.getpid()}-rank-{seat.rank}"
    with contextlib.ExitStack() as stack:
        serves = False
        relay: Optional[Relay] = None
        board: Board = Nowhere(_NOWHERE)
        agent = known.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        if point is None:
            board = shared_board(wish.meet or "", run, member_id)
        elif agent and wish.meet is None and keys_in_store(point.host, master_port, patience_s) is not None:
            # Every restart of the workers finds the same store, and none may find the last one's verdict.
            board = StoreBoard(point.host, master_port, _attempt_of(run, known), member_id, patience_s)
            serves = point.is_here
        elif point.host:
            relay = Relay(point.host, point.port) if point.is_here else None
            carried_by = () if agent or wish.meet or not wish.listens_on_master else (master_port,)
            serves, board = _on_port(
                stack, point, member_id=member_id, patience_s=patience_s, relay=relay, carried_by=carried_by
            )
        yield Place(
            run=run,
            member_id=member_id,
            address=address,
            name=socket.gethostname(),
            nodes=seat.count,
            board=board,
            master_port=None if agent else master_port,
            ephemeral_ports=own_range(None),
            rank=seat.rank,
            world_size=seat.count,
            processes=seat.processes if seat.processes != seat.count else None,
            local_rank=seat.local_rank,
            master_address=master,
            deadline_s=deadline_s,
            on_a_port=point is not None and bool(point.host),
            serves=serves,
            relay=relay if serves else None,
            launcher=master is not None,
            listens_on_master=wish.listens_on_master,
            variables=variables,
            skipped=left_out(wish, master_port),
            known=known_hosts(wish, known, variables, seat),
        )


def _own_address(towards: str, interface: str) -> str:
    """As `own_address`; by the default route where the name of the other end has no address."""
    try:
        return own_address(towards, interface)
    except DiscoverError:
        return own_address("", interface)


def _on_port(
    stack: contextlib.ExitStack,
    point: _Point,
    *,
    member_id: str,
    patience_s: float,
    relay: Optional[Relay],
    carried_by: Sequence[int],
) -> Tuple[bool, Board]:
    """Whether this process serves the meeting place, and the board; one that says why there is none."""
    try:
        serves = point.is_here and serve(stack, point.host, point.port, relay)
    except BoardError as error:
        return False, Nowhere(str(error), error.__cause__)
    others = () if serves else carried_by
    return serves, TcpBoard(point.host, point.port, member_id, patience_s, others)


def _check_complete(wish: Wish, environ: Mapping[str, str]) -> None:
    """
    Raises:
        EnvironmentIncomplete: a variable of env:// that is needed to meet is not set.
    """
    needed = LAUNCHER_VARIABLES if on_a_port(wish.meet) else LAUNCHER_VARIABLES[:2]
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        raise EnvironmentIncomplete(f"{' and '.join(missing)} not set, though other launcher variables are")


def _attempt_of(run: str, environ: Mapping[str, str]) -> str:
    """The run with the number of torchrun's restart."""
    return f"{run}.{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _run_of(environ: Mapping[str, str]) -> str:
    """A name that every rank of this start knows and no other start has, where there is one."""
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    if environ.get("TORCHELASTIC_RUN_ID"):
        return environ["TORCHELASTIC_RUN_ID"]
    return f"slurm-{job}.{step}" if job and step else "check"


@dataclasses.dataclass(frozen=True)
class _Point:
    """Host and port of the meeting place, and whether this process is to serve it."""

    host: str
    port: int
    is_here: bool


def _point(wish: Wish, environ: Mapping[str, str], seat: Seat, master_port: int) -> _Point:
    """Where to meet; a host without a name where nothing tells it."""
    first = seat.rank == 0 and seat.local_rank == 0
    if wish.meet or environ.get("MASTER_ADDR"):
        host, port = meeting_point(wish.meet, environ.get("MASTER_ADDR", ""), master_port + 1)
        return _Point(host, port, first)
    hosts = job_hosts(environ)
    if not hosts:
        return _Point("", 0, False)
    # Whichever rank runs there: where rank 0 is need not be known to meet.
    return _Point(hosts[0], master_port + 1, seat.local_rank == 0 and own_lines(hosts[:1]) == [0])


def unfinished_place(
    wish: Wish, environ: Mapping[str, str], claim: Optional[Claim] = None
) -> Optional[Place]:
    """Where a member that cannot take part can tell the others; None: nowhere.

    Its rank and size are claimed as far as they are set; rank 0 is where the others would meet.

    claim: of the launcher that started it, where torch's own variables are another's.
    """
    try:
        rank, size = (number(environ, name) if environ.get(name) else None for name in ("RANK", "WORLD_SIZE"))
        if claim is not None:
            rank, size = claim.rank, claim.size
        master_port = number(environ, "MASTER_PORT") if environ.get("MASTER_PORT") else DEFAULT_MASTER_PORT
        hosts = job_hosts(environ)
        master = environ.get("MASTER_ADDR") or (hosts[0] if hosts else None)
        on_port = on_a_port(wish.meet)
        if (rank == 0 and on_port) or environ.get("LOCAL_RANK", "0") != "0":
            return None
        if master is None and wish.meet is None:
            return None
        run = wish.run or _run_of(environ)
        host, port = meeting_point(wish.meet, master or "", master_port + 1) if on_port else ("", 0)
        address = wish.address or own_address(host, environ.get("GLOO_SOCKET_IFNAME", ""))
        member_id = f"{address}-{os.getpid()}" + (f"-rank-{rank}" if rank is not None else "")
        board: Board
        if on_port:
            board = TcpBoard(host, port, member_id, patience_s=UNFINISHED_PATIENCE_S)
        else:
            board = shared_board(wish.meet or "", run, member_id)
    except (ClaimError, HostsError, DiscoverError, BoardError):
        return None
    return Place(
        run=run,
        member_id=member_id,
        address=address,
        name=socket.gethostname(),
        nodes=size or 0,
        board=board,
        master_port=None,
        rank=rank,
        world_size=size,
        master_address=environ.get("MASTER_ADDR") or None,
    )
