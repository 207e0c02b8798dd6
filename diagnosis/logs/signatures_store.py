"""What torch's store and its sockets print (socket.cpp, TCPStore.cpp, Utils.hpp), from 1.8 on."""

from __future__ import annotations

from diagnosis.logs.kinds import Kind
from diagnosis.logs.signature import Signature

# "[name]:port", "name:port" or "[::ffff:10.0.0.1]:port"
_PEER = r"(?:\[(?P<host>[^\]]{0,253})\]|(?P<bare>[^\s\[\]:(]{0,253})):(?P<port>\d{1,5})"
# "(name, port)": blanks of the name are part of it
_PAIR = r"\((?P<host>[^()]{0,253}), ?(?P<port>\d{1,5})\)"
# 97 and 99 (Windows: 10047 and 10049) are about a missing IPv6, and no failure by themselves.
_NUMBER = r"\((?:errno|system error): "
_ERRNO = rf"{_NUMBER}(?P<errno>(?!9[79]\b|1004[79]\b)\d{{1,5}}) - (?P<error>[^)]{{1,120}})\)?"
_IPV6_ERRNO = rf"{_NUMBER}(?:97|99|10047|10049) - [^)]{{1,120}}"

SIGNATURES = (
    # --- connecting -------------------------------------------------------------------------
    Signature(
        Kind.STORE_TIMEOUT,
        "socket has timed out",
        rf"client socket has timed out after (?P<after>\d{{1,12}} ?m?s) while trying to connect to {_PAIR}",
    ),
    Signature(
        Kind.STORE_TIMEOUT,
        "socket has timed out",
        r"client socket has timed out after (?P<after>\d{1,12} ?m?s) while trying to connect to "
        r"(?P<host>[^\s():]{1,253}):(?P<port>\d{1,5})",
    ),
    Signature(
        Kind.STORE_TIMEOUT,
        "connect() timed out",
        r"\bconnect\(\) timed out\. Original timeout was (?P<after>\d{1,12} ms)",
    ),
    Signature(
        Kind.STORE_TIMEOUT,
        "failed to connect/validate",
        r"failed to connect/validate to host (?P<host>\S{0,253}?):(?P<port>\d{1,5}) - timed out",
    ),
    Signature(
        Kind.STORE_TIMEOUT,
        "imed out, will retry",
        r"server socket on \[?(?P<host>[^\]\s]{0,253}?)\]?:(?P<port>\d{1,5}) has timed out, will retry",
        fixed={"retry": "yes"},
    ),
    Signature(
        Kind.NOISE,
        "rror: 1004",
        rf"socket (?:cannot be initialized|has failed to connect).{{0,300}}{_IPV6_ERRNO}",
        fixed={"about": "ipv6"},
    ),
    Signature(
        Kind.NOISE,
        "(errno: 9",
        r"socket (?:on \S+ )?(?:cannot be initialized|has failed to (?:connect"
        rf"|bind)).{{0,300}}{_IPV6_ERRNO}",
        fixed={"about": "ipv6"},
    ),
    Signature(
        Kind.STORE_ERRNO,
        "socket has failed to connect",
        rf"(?:client|server) socket has failed to connect to (?:any network address of )?{_PEER} {_ERRNO}",
        every=True,
    ),
    Signature(
        Kind.STORE_ERRNO,
        "socket has failed to connect to any",
        rf"socket has failed to connect to any network address of {_PAIR}"
        r"(?:\. The client socket has failed to "
        rf"connect to \S+ {_ERRNO})?",
        fixed={"final": "yes"},
    ),
    Signature(
        Kind.STORE_ERRNO,
        "onnection refused",
        r"\b\w*Error: (?:\[Errno 111\] )?Connection refused\s*$",
        fixed={"errno": "111"},
    ),
    Signature(
        Kind.STORE_TIMEOUT,
        "onnection timed out",
        r"\b\w*Error: (?:\[Errno 110\] )?Connection timed out\s*$",
    ),
    Signature(
        Kind.STORE_ERRNO,
        "yet listening",
        rf"server socket on {_PEER} is not yet listening {_ERRNO}",
    ),
    Signature(
        Kind.STORE_ERRNO,
        "listening yet",
        rf"No socket on {_PAIR} is listening yet",
        fixed={"errno": "111"},
    ),
    Signature(
        Kind.STORE_GAI,
        "gai error",
        rf"(?:IPv[46] )?network addresses of {_PAIR} cannot be retrieved \(gai error: (?P<code>-?\d{{1,5}})",
    ),
    Signature(
        Kind.STORE_GAI,
        "socket.gaierror",
        r"socket\.gaierror: \[Errno (?P<code>-\d{1,3})\]",
    ),
    Signature(
        Kind.NOISE,
        "ocket cannot be retrieved",
        r"hostname of the client socket cannot be retrieved",
        fixed={"about": "reverse lookup"},
    ),
    Signature(
        Kind.NOISE,
        "so ignoring the error",
        r"has failed to bind\. TORCHELASTIC_USE_AGENT_STORE is enabled so ignoring the error",
        fixed={"about": "agent store"},
    ),
    Signature(
        Kind.NOISE,
        "Failed to bind to ipv6",
        r"Failed to bind to ipv6 address, trying ipv4",
        fixed={"about": "ipv6"},
    ),
    # --- who came ---------------------------------------------------------------------------
    Signature(
        Kind.STORE_JOINED,
        "seconds waiting for",
        r"Timed out after (?P<after>\d{1,9}) seconds waiting for (?:clients|workers)\. "
        r"(?P<joined>\d{1,6})/(?P<size>\d{1,6}) (?:clients|workers) joined",
    ),
    Signature(
        Kind.STORE_BARRIER,
        "imed out initializing",
        r"store based barrier on rank:? (?P<rank>\d{1,6}), for key: (?P<key>\S{1,200}?) \(world_size="
        r"(?P<size>\d{1,6}), "
        r"(?:worker_count|num_workers_joined)=(?P<joined>\d{1,6})",
    ),
    Signature(
        Kind.STORE_WAITS,
        "Waiting in store based barrier",
        r"Waiting in store based barrier .{0,60}for rank:? (?P<rank>\d{1,6}), key: (?P<key>\S{1,200}?) "
        r"\(world_size=(?P<size>\d{1,6}), (?:worker_count|num_workers_joined)=(?P<joined>\d{1,6})",
    ),
    Signature(
        Kind.STORE_BARRIER,
        "imed out waiting on barrier",
        r"barrier on rank (?P<rank>\d{1,6}), for key prefix: \S{1,200} \(world_size=(?P<size>\d{1,6}), "
        r"missing_ranks=\[?(?P<ranks>[^\])]{0,300})",
    ),
    Signature(
        Kind.STORE_BARRIER,
        "imed out waiting for all",
        r"timed out waiting for all (?P<size>\d{1,6}) members to join",
    ),
    Signature(
        Kind.STORE_KEY,
        "wait timeout after",
        r"wait timeout after (?P<ms>\d{1,12})ms, keys?: (?P<keys>\S{1,300})",
    ),
    Signature(
        Kind.STORE_KEY,
        "imeout waiting for key",
        r"Timeout waiting for key: (?P<keys>\S{1,300}) after (?P<ms>\d{1,12}) ms",
    ),
    Signature(
        Kind.STORE_KEY,
        "barrier timeout after",
        r"barrier timeout after (?P<ms>\d{1,12})ms, key: (?P<keys>\S{1,300})",
    ),
    Signature(
        Kind.STORE_WAIT,
        "NCCL communicator",
        r"setting up NCCL communicator and retr\w{3,6}ing ncclUniqueId from \[(?P<root>\d{1,6})\].{0,200}"
        r"got error: (?:Socket Timeout|[Tt]imeout waiting|wait timeout)",
    ),
    Signature(Kind.STORE_WAIT, "Socket Timeout", r"\bSocket Timeout\b"),
    Signature(Kind.STORE_WAIT, "Wait timeout", r"Error: Wait timeout\b"),
    Signature(Kind.STORE_WAIT, "waitForInput", r"waitForInput: .{0,200}timed out after"),
    Signature(Kind.STORE_WAIT, "likely a timeout", r"waitForInput: .{0,200}likely a timeout"),
    # --- an established connection ----------------------------------------------------------
    Signature(Kind.STORE_CLOSED, " 0 bytes", r"[Ff]ailed to (?:recv, got|send, sent) 0 bytes"),
    Signature(Kind.STORE_CLOSED, "server has shut", r"TCPStore server has shut down too early"),
    Signature(
        Kind.STORE_RESET,
        "onnection reset by peer",
        r"(?:recvValue\w*|sendBytes|recvBytes|recvVector|doWait|SocketImpl|TCPStore|DistNetworkError"
        r"|Utils\.hpp|store->get)"
        r".{0,400}[Cc]onnection reset by peer",
    ),
    Signature(
        Kind.STORE_RESET,
        "Broken pipe",
        r"(?:recvValue\w*|sendBytes|recvBytes|SocketImpl|TCPStore|DistNetworkError"
        r"|Utils\.hpp).{0,400}Broken pipe",
    ),
    Signature(
        Kind.STORE_RESET,
        "recvValueWithTimeout failed",
        r"recvValueWithTimeout failed on (?!.*(?:0 bytes|reset by peer|timed out|Broken pipe))",
    ),
    Signature(
        Kind.STORE_STRANGER,
        "Ping failed",
        r"Ping failed, invalid value returned from server(?:\. Expected: \d+, Got: (?P<got>\d{1,12}))?",
    ),
    Signature(Kind.ODD_CLIENT, "invalid command", r"Client sent invalid command"),
    Signature(Kind.ODD_CLIENT, "is corrupt", r"The (?:rendezvous state|state object) is corrupt"),
    Signature(
        Kind.ODD_CLIENT, "Miscellaneous client", r"Miscellaneous client with\w{0,3} .{0,12}VALIDATE query"
    ),
    Signature(Kind.ODD_CLIENT, "processing client message", r"Error processing client message"),
    Signature(Kind.BACKLOG, "but somaxconn is", r"Starting store with \d+ workers but somaxconn is \d+"),
    # --- listening --------------------------------------------------------------------------
    Signature(
        Kind.PORT_TAKEN,
        "ddress already in use",
        r"(?:failed to (?:bind|listen)[^\n]{0,200}?(?:\]|\d|\w):(?P<port>\d{2,5})\b[^\n]{0,80})?"
        r"[Aa]ddress already in use(?:.{0,40}?:(?P<last>\d{2,5})\b)?",
    ),
    Signature(Kind.PORT_TAKEN, "EADDRINUSE", r"(?:port: (?P<port>\d{2,5}),.{0,80})?EADDRINUSE"),
    Signature(Kind.PORT_TAKEN, "already in use", r"on \S{1,253}, port: (?P<port>\d{2,5}) already in use"),
    Signature(Kind.FILE_EXISTS, "File already exists", r"[Ff]ile already exists:? ?(?P<name>\S{0,300})"),
    Signature(Kind.LIBUV, "libuv", r"PyTorch was buil[dt] without libuv"),
)
