"""One node's place in a cluster: what it knows before it has met the others."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from cluster.node_config import CONFIG_PATH, NodeConfig
from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange
from diagnosis.launchers import Conflict, conflict_words
from diagnosis.membership import is_loopback
from diagnosis.published import only_here
from probe.board import Board
from probe.interfaces import read_interfaces
from probe.preflight import read_local_port_range
from probe.relay import Relay

if TYPE_CHECKING:
    from probe.credentials import CredentialChain

DEFAULT_MASTER_PORT = 29500
# Of a check by hand: long enough for someone to start it on every node.
DEFAULT_DEADLINE_S = 120.0
# Of torch's rendezvous and of each collective. Members start together, so this covers the slowest
# link, not a download.
COLLECTIVE_TIMEOUT_S = 30.0


class DiscoverError(Exception):
    """This node's place cannot be told; the text says what to give."""


class EnvironmentIncomplete(DiscoverError):
    """Some launcher variables are set and others are not."""


class LaunchConflicted(DiscoverError):
    """Launchers tell this process different ranks, and torch would read the wrong one."""

    def __init__(self, conflict: Conflict) -> None:
        self.conflict = conflict
        summary, _ = conflict_words(conflict)
        super().__init__(f"{summary}; {conflict.unset}")


@dataclass(frozen=True)
class Place:
    """What one node knows before it has met the others.

    master_port: the port to listen on and to start torch's store on; None = a launcher's own
        store holds it, so it is reached already and cannot be listened on.
    listens_on_master: False = this check leaves MASTER_PORT to a job that may run or start.
    rank, world_size: as claimed by a launcher, in nodes; None = by address, by configuration.
    processes: the launcher's world size where a node runs several ranks; None = one each.
    local_rank: 0 for the one process of a node that takes part in the mesh.
    deadline_s: seconds from the start to the judgement with whatever rows stand by then.
    variables: a launcher's variables that torch needs and this process's environment lacks.
    skipped: the questions that this run leaves out on purpose.
    known: hosts of other members that are known before anybody was met, by rank.
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
    processes: Optional[int] = None
    local_rank: int = 0
    master_address: Optional[str] = None
    deadline_s: float = DEFAULT_DEADLINE_S
    collective_bytes: int = 64 * 1024 * 1024
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S
    job: Optional[str] = None  # a job that runs here already, in words
    idle_s: float = 0.0  # how long connections are left alone and used again; 0 = not asked
    on_a_port: bool = False  # members meet on a port of one of them
    serves: bool = False  # this process serves the meeting place
    relay: Optional[Relay] = None  # the way to it through a listener of the mesh
    launcher: bool = False  # torch is to use the environment (with `variables`)
    listens_on_master: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    skipped: Tuple[str, ...] = ()
    known: Mapping[int, str] = field(default_factory=dict)
    config: Optional[NodeConfig] = None
    credentials: Optional[CredentialChain] = None


@dataclass(frozen=True)
class Wish:
    """What the command line asked for; None = not said."""

    run: Optional[str] = None
    nodes: Optional[int] = None
    meet: Optional[str] = None
    address: Optional[str] = None
    master_port: Optional[int] = None
    deadline_s: Optional[float] = None
    collective_timeout_s: Optional[float] = None
    idle_s: Optional[float] = None
    beside_job: bool = False  # use MASTER_PORT and run the all_reduce although a job runs
    hostfile: Optional[str] = None
    row: Optional[str] = None
    listens_on_master: bool = True
    config_path: str = CONFIG_PATH


def left_out(wish: Wish, master_port: Optional[int]) -> Tuple[str, ...]:
    """The questions that a wish leaves out on purpose."""
    if wish.listens_on_master:
        return ()
    return (
        f"cluster: no member listened on MASTER_PORT {master_port or DEFAULT_MASTER_PORT}, which "
        "belongs to the job; the mesh was proven on ephemeral ports",
    )


def own_address(towards: str = "", interface: str = "") -> str:
    """The address others will be told: of `interface`, else of the route towards a host.

    An interface whose address only this host can use (loopback, a container's bridge) is not taken:
    the mesh is then proven on the address that members do reach, and the verdict names the interface.

    Raises:
        DiscoverError: no interface with an address leads anywhere.
    """
    first = interface.split(",", maxsplit=1)[0]
    if first:
        addresses = read_interfaces().get(first, ())
        if addresses and not is_loopback(addresses[0]) and not only_here(addresses[0], first):
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


def own_range(configured: Optional[PortRange]) -> PortRange:
    """The node's real range first: it is where Gloo's listeners will come from, whatever was configured."""
    return read_local_port_range() or configured or DEFAULT_EPHEMERAL_PORTS
