"""This node's place in a cluster: who it is, how many must meet, and where they meet.

Five ways: EC2 (the configuration that user data wrote, and the metadata service), the
environment of torchrun or another launcher, Slurm's, a host file, and a meeting place given by hand.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Dict, Iterator, Mapping, Optional, Tuple

from cluster.node_config import CONFIG_PATH, NodeConfig
from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange
from cluster.serial import DecodeError, decode
from probe.board import Board, BoardError, DirectoryBoard
from probe.hosts import (
    HostsError,
    by_slurm,
    hostfile_variables,
    own_address_among,
    read_hostfile,
    slurm_variables,
)
from probe.interfaces import read_interfaces
from probe.preflight import read_local_port_range
from probe.tcp_board import BoardServer, TcpBoard

if TYPE_CHECKING:
    from probe.aws import CredentialChain

DEFAULT_MASTER_PORT = 29500
# Of a check by hand: long enough for someone to start it on every node.
DEFAULT_DEADLINE_S = 120.0
# How long a member that cannot take part tries to tell the others why: a launcher starts all at once.
UNFINISHED_PATIENCE_S = 10.0
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# With one of these a launcher has told the rank; without, Slurm's own variables tell it.
DECIDING_VARIABLES = ("RANK", "WORLD_SIZE")


class DiscoverError(Exception):
    """This node's place cannot be told; the text says what to give."""


class EnvironmentIncomplete(DiscoverError):
    """Some launcher variables are set and others are not."""


@dataclass(frozen=True)
class Place:
    """What one node knows before it has met the others.

    master_port: the port to listen on and to start torch's store on; None = a launcher's own
        store holds it, so it is reached already and cannot be listened on.
    listens_on_master: False = this check leaves MASTER_PORT to a job that may run or start.
    rank, world_size: as claimed by a launcher, in nodes; None = by address, by configuration.
    local_rank: 0 for the one process of a node that takes part in the mesh.
    deadline_s: seconds from the start to the judgement with whatever rows stand by then.
    variables: a launcher's variables that torch needs and this process's environment lacks.
    """

    run: str
    member_id: str
    address: str
    name: str
    nodes: int
    board: Board
    master_port: Optional[int] = DEFAULT_MASTER_PORT
    ephemeral_ports: PortRange = DEFAULT_EPHEMERAL_PORTS
    rank: Optional[int] = None
    world_size: Optional[int] = None
    local_rank: int = 0
    master_address: Optional[str] = None
    deadline_s: float = DEFAULT_DEADLINE_S
    collective_bytes: int = 64 * 1024 * 1024
    serves: bool = False  # this process serves the meeting place
    launcher: bool = False  # torch is to use the environment (with `variables`)
    listens_on_master: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    config: Optional[NodeConfig] = None
    credentials: Optional[CredentialChain] = None

    @property
    def skipped(self) -> Tuple[str, ...]:
        """The questions that this run leaves out on purpose."""
        if self.listens_on_master:
            return ()
        return (
            f"cluster: no member listened on MASTER_PORT {self.master_port or DEFAULT_MASTER_PORT}, which "
            "belongs to the job; the mesh was proven on ephemeral ports",
        )


@dataclass(frozen=True)
class Wish:
    """What the command line asked for; None = not said."""

    run: Optional[str] = None
    nodes: Optional[int] = None
    meet: Optional[str] = None
    address: Optional[str] = None
    master_port: Optional[int] = None
    deadline_s: Optional[float] = None
    hostfile: Optional[str] = None
    listens_on_master: bool = True
    config_path: str = CONFIG_PATH


@contextlib.contextmanager
def take_place(wish: Wish, environ: Mapping[str, str]) -> Iterator[Place]:
    """This node's place by the first way that applies: `--meet`, `--hostfile`, Slurm, the environment, EC2.

    Raises:
        DiscoverError, BoardError: what is missing or wrong.
    """
    if wish.meet and not wish.meet.startswith("tcp://"):
        yield _by_directory(wish)
    elif wish.hostfile is not None or by_slurm(environ, DECIDING_VARIABLES):
        with _by_hosts(wish, environ) as place:
            yield place
    elif any(environ.get(name) for name in LAUNCHER_VARIABLES):
        with _by_environment(wish, environ) as place:
            yield place
    elif wish.meet:
        raise DiscoverError(
            f"--meet {wish.meet} needs each member's rank; set {', '.join(LAUNCHER_VARIABLES)}, "
            "give --hostfile FILE, or start it with torchrun or srun"
        )
    elif os.path.exists(wish.config_path):
        yield by_ec2(wish)
    else:
        raise DiscoverError(
            f"nothing tells who else is in the cluster: no {wish.config_path}, no RANK and WORLD_SIZE, "
            "no --meet; run it under torchrun or srun, or on every node: check --hostfile FILE, or "
            "check --meet SHARED_DIRECTORY --nodes N"
        )


def is_deployed(wish: Wish, environ: Mapping[str, str]) -> bool:
    """Whether `take_place` will take the place of an EC2 instance."""
    told = wish.meet or wish.hostfile or any(environ.get(name) for name in LAUNCHER_VARIABLES)
    return not told and not by_slurm(environ, DECIDING_VARIABLES) and os.path.exists(wish.config_path)


@contextlib.contextmanager
def _by_hosts(wish: Wish, environ: Mapping[str, str]) -> Iterator[Place]:
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
    with _by_environment(dataclasses.replace(wish, address=address), {**environ, **variables}) as place:
        yield dataclasses.replace(place, variables=variables)


def read_config(path: str = CONFIG_PATH) -> NodeConfig:
    """The node's configuration.

    Raises:
        DiscoverError: it is missing, or does not have the shape of NodeConfig.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return decode(NodeConfig, json.load(file))
    except OSError as error:
        raise DiscoverError(
            f"cannot read {path}: {error.strerror}; user data writes it at first boot"
        ) from error
    except (json.JSONDecodeError, DecodeError) as error:
        raise DiscoverError(f"{path} is not a node configuration: {error}") from error


def by_ec2(wish: Wish) -> Place:
    """The place of an EC2 instance; talks to the metadata service, and to S3 not yet."""
    from probe.aws import CredentialChain, S3Client  # noqa: PLC0415 - http and ssl, only where they are needed
    from probe.metadata import InstanceMetadata, MetadataError  # noqa: PLC0415 - as above
    from probe.s3_board import S3Board  # noqa: PLC0415 - as above

    config = read_config(wish.config_path)
    metadata = InstanceMetadata()
    try:
        instance_id, address = metadata.instance_id(), metadata.private_ipv4()
        name = metadata.local_hostname()
    except MetadataError as error:
        raise DiscoverError(str(error)) from error
    credentials = CredentialChain(metadata)
    run = wish.run or config.run
    client = S3Client(bucket=config.bucket, region=config.region, credentials=credentials)
    return Place(
        run=run,
        member_id=instance_id,
        address=address,
        name=name,
        nodes=wish.nodes or config.nodes,
        board=S3Board(client, run, config.role_id, instance_id),
        master_port=wish.master_port or config.master_port,
        ephemeral_ports=_own_range(config.ephemeral_ports),
        deadline_s=wish.deadline_s or config.deadline_s,
        collective_bytes=config.collective_bytes,
        config=config,
        credentials=credentials,
        listens_on_master=wish.listens_on_master,
    )


def _by_directory(wish: Wish) -> Place:
    if wish.meet is None or wish.nodes is None:
        raise DiscoverError("--meet DIRECTORY needs --nodes N, the number of members that must meet")
    address = wish.address or own_address()
    member_id = f"{address}-{os.getpid()}"
    run = wish.run or "check"
    board = DirectoryBoard(os.path.join(wish.meet, run), member_id)
    if any(name.rpartition("/")[2].startswith("verdict-") for name in board.names()):
        raise DiscoverError(
            f"{os.path.join(wish.meet, run)} holds the verdict of an earlier check; give an empty directory "
            "or another --run NAME on every member"
        )
    return Place(
        run=run,
        member_id=member_id,
        address=address,
        name=socket.gethostname(),
        nodes=wish.nodes,
        board=board,
        master_port=wish.master_port or DEFAULT_MASTER_PORT,
        ephemeral_ports=_own_range(None),
        deadline_s=wish.deadline_s or DEFAULT_DEADLINE_S,
        listens_on_master=wish.listens_on_master,
    )


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
def _by_environment(wish: Wish, environ: Mapping[str, str]) -> Iterator[Place]:
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
            ephemeral_ports=_own_range(None),
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            master_address=master,
            deadline_s=deadline_s,
            serves=serves,
            launcher=True,
            listens_on_master=wish.listens_on_master,
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


def own_address(towards: str = "", interface: str = "") -> str:
    """The address others will be told: of `interface`, else of the route towards a host.

    Raises:
        DiscoverError: no interface with an address leads anywhere.
    """
    first = interface.split(",", maxsplit=1)[0]
    if first:
        addresses = read_interfaces().get(first, ())
        if addresses:
            return addresses[0]
    try:
        # Connecting a UDP socket sends nothing; it only asks the routing table. 192.0.2.0/24
        # is reserved for documentation, so it follows the default route.
        found = socket.getaddrinfo(towards or "192.0.2.1", 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as sock:
            sock.connect(found[4])
            return str(sock.getsockname()[0])
    except OSError as error:
        where = f"towards {towards}" if towards else "by the default route"
        raise DiscoverError(f"no own address {where}: {error}; give it with --address") from error


def _own_range(configured: Optional[PortRange]) -> PortRange:
    """The node's real range first: it is where Gloo's listeners will come from, whatever was configured."""
    return read_local_port_range() or configured or DEFAULT_EPHEMERAL_PORTS
