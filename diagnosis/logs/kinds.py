"""The meanings that a line of a log can have, whatever release or launcher worded it."""

from __future__ import annotations

from enum import Enum
from typing import FrozenSet


class Kind(str, Enum):
    """One meaning. `meanings` says what each one decides or hints at."""

    # Gloo's pairs and devices
    PAIR_ERROR = "pair error"  # a connection attempt between members failed: ip, port, error, retry
    PAIR_HIDDEN = "pair no error"  # the same, with the error lost (torch before 2.8)
    PAIR_TIMEOUT = "pair time-out"  # nobody connected; the peer is not named
    MESH_FAILED = "mesh failed"
    NOT_CONNECTED = "not connected"  # ranks
    PEER_CLOSED = "peer closed"
    PEER_RESET = "peer reset"
    PAIR_BROKEN = "pair broken"  # an established pair failed otherwise: error
    OPERATION_TIMEOUT = "operation time-out"
    ECHO = "echo"  # follows from an error elsewhere, by its own words
    SIZE_MISMATCH = "size mismatch"
    FINGERPRINT = "fingerprint mismatch"
    BARRIER_RANKS = "barrier ranks"  # monitored_barrier names the ranks that did not come
    BARRIER_CAME = "barrier came"  # it names those that did
    BARRIER_NONE = "barrier none"
    PRECHECK = "pre-check failed"  # DETAIL's barrier before a collective
    INTERFACE = "interface not found"  # name
    DEVICE_EMPTY = "device without a name"
    NOT_LOCAL = "address not local"  # ip
    NAME_FAILED = "own name failed"
    LOOPBACK_FALLBACK = "loopback fallback"
    FAMILIES = "address families differ"
    SELF = "connect to self"
    GLOO_BIND = "gloo bind"
    RECORD = "record malformed"
    SEQUENCE = "rank as sequence number"
    TRANSPORT = "transport unsupported"
    # the store
    STORE_TIMEOUT = "store time-out"  # host, port
    STORE_ERRNO = "store connect error"  # host, port, errno
    STORE_GAI = "store lookup failed"  # host, port, code
    STORE_JOINED = "store joined"  # joined, size
    STORE_BARRIER = "store barrier"  # rank, size, joined
    STORE_WAITS = "store barrier waits"  # rank, size, joined; nothing has failed yet
    STORE_KEY = "store key missing"  # keys
    STORE_WAIT = "store wait timed out"
    STORE_CLOSED = "store closed"
    STORE_RESET = "store reset"
    STORE_STRANGER = "store answered strangely"  # got
    ODD_CLIENT = "odd client"  # the store was sent what it does not understand
    BACKLOG = "backlog small"
    PORT_TAKEN = "port taken"
    FILE_EXISTS = "store file exists"
    NOISE = "harmless"  # about: ipv6, reverse lookup, agent store
    # launchers, processes, the environment
    ENV_MISSING = "variable missing"  # name
    OPTION_MISSING = "option missing"  # name
    SETTING = "setting"  # name, value
    VERSION = "version"  # value
    RUN_ID = "run id"  # value
    RENDEZVOUS = "rendezvous failed"  # error: timeout, connection
    RENDEZVOUS_CLOSED = "rendezvous closed"
    HEARTBEAT_LOST = "heartbeat lost"
    AGENT_LOST = "agent lost the rendezvous"
    RENDEZVOUS_DONE = "rendezvous done"  # host, port
    LOCAL_NODE = "local node"  # value
    MEMBER = "member"  # rank, size
    GROUP_CALL = "new_group called"  # ranks
    RANK_RANGE = "rank out of range"
    EXIT = "exit"  # code, and rank, host, time of the summary
    SIGNAL = "signal"
    FORCED = "agent killed"  # pid: killed by its agent after another failure
    STUCK = "uninterruptible"
    SUMMARY = "summary field"
    MEMORY = "out of memory"
    FILES = "too many open files"
    LIBUV = "no libuv"
    PROXY = "proxy"
    PROXY_ANSWER = "proxy answered"
    PROXY_CUT = "proxy cut"  # its access log shows a connection that it ended
    UNREACHABLE = "host unreachable"  # ip; ping or the neighbour table says it
    FABRIC = "fabric never answered"  # EFA
    FABRIC_LOST = "fabric lost"
    PROHIBITED = "prohibited"  # a firewall that rejects says it, or its rules
    FRAME = "frame"  # function
    NOTE = "note"  # a known message that is no cause of the catalogue; its row says what it means
    OTHER_ERROR = "other error"
    PROGRESS = "progress"  # final: the job ended well


# What nothing follows from: with none but these a job has not failed.
_HARMLESS = (
    Kind.STORE_WAITS,
    Kind.SETTING,
    Kind.VERSION,
    Kind.RUN_ID,
    Kind.RENDEZVOUS_DONE,
    Kind.LOCAL_NODE,
    Kind.MEMBER,
    Kind.GROUP_CALL,
    Kind.SUMMARY,
    Kind.FRAME,
    Kind.PROGRESS,
    Kind.NOISE,
    Kind.NOTE,
    Kind.BACKLOG,
    Kind.FILE_EXISTS,
    Kind.LOOPBACK_FALLBACK,
    Kind.PROXY,
    Kind.FORCED,
    Kind.PROHIBITED,
)
FAILURES: FrozenSet[Kind] = frozenset(Kind) - frozenset(_HARMLESS)
# Printed at each attempt: with a success behind them they were no failure.
RETRIED: FrozenSet[Kind] = frozenset(
    (
        Kind.STORE_ERRNO,
        Kind.STORE_GAI,
        Kind.STORE_RESET,
        Kind.STORE_CLOSED,
        Kind.LOOPBACK_FALLBACK,
    )
)
# One way was closed: with a success of the same process behind them another was found.
OVERCOME: FrozenSet[Kind] = frozenset((Kind.MEMORY, Kind.PORT_TAKEN, Kind.BACKLOG))
# Printed when a job's processes leave one after the other, also after good work.
# A process noticed that another one is gone.
LOST: FrozenSet[Kind] = frozenset(
    (Kind.PEER_CLOSED, Kind.PEER_RESET, Kind.PAIR_TIMEOUT, Kind.STORE_CLOSED, Kind.STORE_RESET, Kind.EXIT)
)
LEAVING: FrozenSet[Kind] = frozenset((Kind.STORE_CLOSED, Kind.STORE_RESET, Kind.AGENT_LOST))
