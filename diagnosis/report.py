"""The data that travels: what a node saw, and what it means.

`NodeReport` is one node's row. It holds observations only; `judge` turns rows into a
`Diagnosis`. In every field None means "not looked at" and is never read as "fine".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, Optional, Tuple

from cluster.ports import PortRange
from diagnosis.counters import Counters

SCHEMA_VERSION = 1

# Up to this many nodes every listener of every peer is tried. Beyond, probes would grow
# with 4 x N x N; MASTER_PORT and one ephemeral port a pair keep 64 nodes at 8,064 probes.
EVERY_LISTENER_UP_TO_NODES = 16


class Verdict(str, Enum):
    """Any FAIL: FAIL. Else any UNKNOWN, or nothing but SKIPPED: UNKNOWN. Else PASS."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    SKIPPED = "SKIPPED"


class ConnectOutcome(str, Enum):
    """What became of one new TCP connection."""

    CONNECTED = "CONNECTED"  # handshake and the whole payload echoed
    SILENT = "SILENT"  # handshake, then no (or a wrong) echo
    REFUSED = "REFUSED"  # ECONNREFUSED
    TIMED_OUT = "TIMED_OUT"  # the kernel was still in SYN_SENT at the time-out
    UNREACHABLE = "UNREACHABLE"  # EHOSTUNREACH, ENETUNREACH
    RESET = "RESET"  # reset or closed after the handshake
    LOCAL_ERROR = "LOCAL_ERROR"  # this host could not even try (EMFILE, EADDRNOTAVAIL)


class PortKind(str, Enum):
    MASTER = "MASTER"
    EPHEMERAL = "EPHEMERAL"


@dataclass(frozen=True)
class Listener:
    """A port on which this node's own listener was opened and proven over its own address.

    bound: the kernel gave the port; with `opened` False the proof failed, for `errno`.
    store_keys: where torch's TCPStore holds the port, how many keys it has.
    """

    port: int
    kind: PortKind
    opened: bool
    errno: Optional[int] = None
    holder: Optional[str] = None  # who holds the port, where the host tells
    bound: bool = False
    store_keys: Optional[int] = None


@dataclass(frozen=True)
class PairProbe:
    """One probe: a new connection from this node to one port of one peer.

    unacknowledged: of a SILENT one, whether the kernel had to repeat data that nobody acknowledged
        (the path eats it); False = the peer's kernel took it, and its process said nothing.
    garbled: of a SILENT one, whether something else than the echo came back.
    small_segments: of a SILENT one whose small messages came back, what became of the same over another
        connection, whose segments both ends kept small.
    path_mtu_bytes: what the kernel believes of this connection's path.
    link_silent: of one that timed out, whether the kernel asked the link for the next hop in vain.
    clock_offset_s: the peer's clock minus this node's, by the times that both wrote into a small
        message; right to within clock_error_s, either way.
    """

    destination: str  # member_id of the peer
    address: str
    port: int
    kind: PortKind
    outcome: ConnectOutcome
    errno: Optional[int] = None
    attempts: int = 1
    connect_s: Optional[float] = None
    round_trip_s: Optional[float] = None  # echo of a small message, best of several
    started_at: Optional[float] = None  # seconds since the epoch, this node's clock
    unacknowledged: Optional[bool] = None
    garbled: Optional[bool] = None
    small_segments: Optional[ConnectOutcome] = None
    path_mtu_bytes: Optional[int] = None
    link_silent: Optional[bool] = None
    clock_offset_s: Optional[float] = None
    clock_error_s: Optional[float] = None


@dataclass(frozen=True)
class PathStream:
    """Data sent to one peer at a gentle pace, in small segments: what got lost on the way.

    segments: as sent, repeated ones included. lost: those that had to be sent again and that the peer
        had not had yet, as its kernel tells; None = this kernel does not tell.
    complete: the peer took all of it in time.
    """

    destination: str
    segments: int
    lost: Optional[int]
    complete: bool
    time_s: float


@dataclass(frozen=True)
class Route:
    """The interfaces that packets to one peer leave by; "" = there is no route, None = not looked at.

    opening: of new connections. answering: of what this node says from its member address.
    """

    opening: Optional[str] = None
    answering: Optional[str] = None


class Meeting(str, Enum):
    """What a job's processes look for at a place that their variables name."""

    STORE = "store"  # MASTER_ADDR:MASTER_PORT
    RENDEZVOUS = "rendezvous"  # torchrun's own endpoint, where it differs


@dataclass(frozen=True)
class Contact:
    """One place that the job's variables name, looked up and tried as a process of the job would.

    addresses: what the host's name resolves to on this node; () = nothing, for `error`; None = no answer.
    address: the one that was tried, and `outcome` what became of the handshake; None = not tried.
    """

    meeting: Meeting
    host: str
    port: int
    addresses: Optional[Tuple[str, ...]] = None
    error: Optional[str] = None
    address: Optional[str] = None
    outcome: Optional[ConnectOutcome] = None
    errno: Optional[int] = None


@dataclass(frozen=True)
class IdleConnection:
    """A connection that worked, was left alone for idle_s, and was used again.

    kept: what became of it then; unacknowledged: as in `PairProbe`.
    fresh: of a new one to the same port right after; None = the kept one was alive.
    """

    destination: str
    port: int
    idle_s: float
    kept: ConnectOutcome
    at_s: float  # seconds since the epoch, this node's clock
    unacknowledged: Optional[bool] = None
    fresh: Optional[ConnectOutcome] = None


@dataclass(frozen=True)
class HostFacts:
    """Preflight: this host alone. None = could not be read."""

    hostname: Optional[str] = None
    hostname_addresses: Optional[Tuple[str, ...]] = None  # what the own name resolves to; () = nothing
    hostname_error: Optional[str] = None  # gai error text when it did not resolve
    interface: Optional[str] = None  # the one that holds the member address
    interfaces: Optional[Dict[str, Tuple[str, ...]]] = None  # name -> addresses
    networks: Optional[Dict[str, Tuple[str, ...]]] = None  # name -> its addresses with prefix, "10.0.0.4/20"
    kinds: Optional[Dict[str, str]] = None  # name -> "bridge", "tun", "veth", ...; "" = a device of its own
    mtu: Optional[int] = None
    local_port_range: Optional[PortRange] = None
    local_ports_held: Optional[int] = None  # ports of that range that some socket here has
    nofile_limit: Optional[int] = None  # the soft limit that this check was started with
    somaxconn: Optional[int] = None
    firewall_rules: Optional[str] = None  # the host's own ruleset as text; "" = none
    firewall_error: Optional[str] = None  # why it could not be read
    environment: Dict[str, str] = field(default_factory=dict)  # the distributed variables that are set
    versions: Dict[str, str] = field(default_factory=dict)  # python, kernel, machine, os, torch, torch_git
    clock_offset_s: Optional[float] = None  # this clock minus true time, as chrony knows it
    started_by: Optional[str] = None  # the nearest process of a launcher above; None = none is seen
    held_by_torch: Optional[Dict[str, bool]] = None  # variables that are set -> whether torch holds the name


class CollectiveStep(str, Enum):
    """How far a rank came with its all_reduce, in this order (`STEP_ORDER`)."""

    IMPORT = "import torch"
    READY = "wait for the other members"
    STORE = "store"  # serving it (rank 0) or connecting to it
    CONNECT = "connectFullMesh"  # own address published; every pair is being connected
    BARRIER = "monitored_barrier"
    ALL_REDUCE = "all_reduce with a known answer"
    MEASURE = "measured all_reduce"
    SHUTDOWN = "shutdown"


STEP_ORDER: Tuple[CollectiveStep, ...] = tuple(CollectiveStep)


@dataclass(frozen=True)
class ProcessFacts:
    """The collective's process, seen from outside of it.

    exit_status: negative = ended by that signal; None = it did not end, and the probe ended it.
    state: the letter of /proc/PID/stat at the last look: R, S, D, T (stopped), t (traced), Z.
    idle_s: how long it had used no CPU and sent nothing at the last look.
    sent_bytes: all that it wrote, its sockets' part is nearly all of it.
    receive_queue_bytes (arrived and not read), send_queue_bytes, connections: of its sockets where these
        were fullest; only where it was stopped or had to be ended.
    stack: where its Python stood when it had to be ended, innermost first.
    oom_kills: processes that the kernel ended for memory while it ran, as its counters tell.
    kernel_lines: what the kernel's log says of that.
    """

    pid: Optional[int] = None
    exit_status: Optional[int] = None
    ended_at: Optional[float] = None  # seconds since the epoch, this node's clock
    state: Optional[str] = None
    wait_channel: Optional[str] = None
    idle_s: Optional[float] = None
    cpu_s: Optional[float] = None
    sent_bytes: Optional[int] = None
    receive_queue_bytes: Optional[int] = None
    send_queue_bytes: Optional[int] = None
    connections: Optional[int] = None
    stack: Tuple[str, ...] = ()
    oom_kills: Optional[int] = None
    kernel_lines: Tuple[str, ...] = ()


@dataclass(frozen=True)
class CollectiveResult:
    """One real all_reduce over Gloo, as this rank saw it.

    asked_bytes, timeout_s: what this rank was told to do; bytes: what it measured.
    steps: CollectiveStep value -> when it began, in seconds since the epoch by this node's clock.
    log: the last lines that torch printed, where it failed.
    """

    outcome: Verdict
    world_size: int
    bytes: int = 0
    init_s: Optional[float] = None
    time_s: Optional[float] = None  # median of the measured rounds
    algbw_gbit_per_s: Optional[float] = None
    busbw_gbit_per_s: Optional[float] = None
    link_gbit_per_s: Optional[float] = None  # from the rank before this one, all links busy at once
    wrong_values: Optional[str] = None  # first value that is not the known answer
    error: Optional[str] = None
    torch_version: Optional[str] = None
    versions: Dict[str, str] = field(default_factory=dict)  # as in HostFacts, of the Python that has torch
    asked_bytes: Optional[int] = None
    timeout_s: Optional[float] = None
    steps: Dict[str, float] = field(default_factory=dict)
    log: Tuple[str, ...] = ()
    process: Optional[ProcessFacts] = None

    @property
    def step(self) -> Optional[CollectiveStep]:
        """The last step that this rank began; None where it was not watched."""
        return next((step for step in reversed(STEP_ORDER) if step.value in self.steps), None)


@dataclass(frozen=True)
class StepFailure:
    """A step of the node's own start-up that failed before or beside the probe."""

    step: str
    exit_status: int
    output: str  # last lines


@dataclass(frozen=True)
class NodeReport:
    """One node's row.

    member_id: unique and stable: the EC2 instance id, else "ADDRESS-PID", with "-rank-N" of a launcher.
    rank: claimed rank (torchrun, Slurm); None = to be given by sorted address.
    world_size: claimed world size, in members; None = the cluster's configuration decides.
    nodes_expected: how many members were to meet, whoever said so.
    processes: claimed size of the job where a member runs several of its ranks; None = one each.
    members: member_id -> address as this node saw the cluster when it began to probe.
    counters: what the host's counters grew by while the row's stages ran.
    listens_until: its listeners stay open for later peers until then, or until a verdict stands.
    """

    run: str
    member_id: str
    address: str
    name: str
    schema_version: int = SCHEMA_VERSION
    rank: Optional[int] = None
    world_size: Optional[int] = None
    nodes_expected: Optional[int] = None
    processes: Optional[int] = None
    master_address: Optional[str] = None
    master_port: Optional[int] = None
    booted_at: Optional[float] = None
    started_at: Optional[float] = None
    finished_at: Optional[float] = None
    listens_until: Optional[float] = None
    members: Dict[str, str] = field(default_factory=dict)
    host: Optional[HostFacts] = None
    listeners: Optional[Tuple[Listener, ...]] = None
    probes: Optional[Tuple[PairProbe, ...]] = None
    streams: Optional[Tuple[PathStream, ...]] = None
    routes: Optional[Dict[str, Route]] = None  # by the peer's address
    contacts: Optional[Tuple[Contact, ...]] = None  # None = no launcher's variables, or not looked at
    collective: Optional[CollectiveResult] = None
    failures: Tuple[StepFailure, ...] = ()
    publish_errors: Tuple[str, ...] = ()
    counters: Optional[Counters] = None
    idle: Optional[Tuple[IdleConnection, ...]] = None  # None = nobody asked for it
    job: Optional[str] = None  # a job that runs here, to which MASTER_PORT and the all_reduce are left
    timings_s: Dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: Optional[int] = None


@dataclass(frozen=True)
class Finding:
    """A named cause at its subject: `cluster`, `node:RANK` or `pair:SRC>DST`."""

    id: str
    subject: str
    summary: str
    evidence: Tuple[str, ...]
    remediation: str
    commands: Tuple[str, ...] = ()
    at_s: Optional[float] = None  # seconds since the epoch of the earliest evidence


@dataclass(frozen=True)
class NodeVerdict:
    rank: int
    name: str
    address: str
    verdict: Verdict
    member_id: str = ""
    note: str = ""
    clock_offset_s: Optional[float] = None  # its clock minus the middle one of the members'; None = not read


@dataclass(frozen=True)
class PairVerdict:
    """One ordered pair. outcomes: port -> ConnectOutcome value; None = not attempted.

    lost_share: of the segments sent at a gentle pace; None = not looked at.
    gbit_per_s: what the link carried in the ring; None = no link of the ring, or not measured.
    baseline_gbit_per_s: what the instance types guarantee to one flow; None = not known.
    """

    source: int
    destination: int
    outcomes: Dict[str, Optional[ConnectOutcome]]
    round_trip_s: Optional[float] = None
    lost_share: Optional[float] = None
    gbit_per_s: Optional[float] = None
    baseline_gbit_per_s: Optional[float] = None


@dataclass(frozen=True)
class Diagnosis:
    """The answer. `causes` is empty when undetermined; then `candidates` are in order."""

    verdict: Verdict
    causes: Tuple[Finding, ...] = ()
    consequences: Tuple[Finding, ...] = ()
    candidates: Tuple[Finding, ...] = ()
    next_command: Optional[str] = None
    unanswered: Tuple[str, ...] = ()  # planned questions without an answer
    skipped: Tuple[str, ...] = ()  # questions that were left out on purpose, and why
    differences: Tuple[str, ...] = ()  # variables that are not the same on all nodes, side by side
    exposed: Tuple[str, ...] = ()
    nodes: Tuple[NodeVerdict, ...] = ()
    pairs: Tuple[PairVerdict, ...] = ()
    collective: Optional[CollectiveResult] = None
    timings_s: Dict[str, float] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
