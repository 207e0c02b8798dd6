"""What Gloo and its process group print (third_party/gloo, ProcessGroupGloo.cpp), of any release."""

from __future__ import annotations

from diagnosis.logs.kinds import Kind
from diagnosis.logs.signature import Signature

_ADDRESS = r"\[(?P<ip>[^\]\s]{0,64})\](?::(?P<port>\d{1,5}))?"
_WHY = r"(?P<error>[A-Z][a-z]+(?: [A-Za-z()]+){0,6})"
_FILES = r"(?:pair|socket|listener|device)\.(?:cc|h):\d+\][^\[]{0,60}"

SIGNATURES = (
    # --- connecting -------------------------------------------------------------------------
    Signature(
        Kind.PAIR_ERROR,
        "failed to connect, willRetry",
        rf"willRetry=\d, retry=(?P<retry>\d{{1,4}}),.{{0,200}}?error=SO_ERROR: {_WHY}, remote={_ADDRESS}",
    ),
    Signature(Kind.PAIR_ERROR, "SO_ERROR: ", rf"SO_ERROR: {_WHY}(?:, remote={_ADDRESS})?", every=True),
    Signature(Kind.PAIR_ERROR, "connect [", rf"\bconnect {_ADDRESS}: {_WHY}"),
    Signature(
        Kind.PAIR_ERROR, "socket.cc", rf"\bsocket\.cc:\d+\][^\[]{{0,60}}\bconnect: (?!Cannot assign){_WHY}"
    ),
    Signature(
        Kind.PAIR_HIDDEN, "no error", r"pair\.cc:\d+\] no error|connectFullMesh failed.{0,300}\bno error"
    ),
    Signature(
        Kind.PAIR_HIDDEN,
        "endpoint is not connected",
        r"write: Transport endpoint is not connected, remote=\[none",
    ),
    Signature(Kind.PAIR_BROKEN, "write: Broken pipe", rf"write: (?P<error>Broken pipe), remote={_ADDRESS}"),
    Signature(Kind.PAIR_TIMEOUT, "Connect timeout", rf"Connect timeout {_ADDRESS}"),
    Signature(Kind.MESH_FAILED, "connectFullMesh failed", r"connectFullMesh failed"),
    Signature(
        Kind.NOT_CONNECTED,
        "is NOT connected to",
        r"Rank (?P<rank>\d{1,6}) is NOT connected to: \[(?P<ranks>[\d, ]{1,400})\]",
    ),
    Signature(
        Kind.NOT_CONNECTED,
        "is connected to",
        r"Rank (?P<rank>\d{1,6}) is connected to (?P<peers>\d{1,6})\b.{1,60}? connected "
        r"peers?(?: ranks)? is ?: (?!(?P=peers)\b)(?P<expected>\d{1,6})",
    ),
    Signature(Kind.SELF, "Cannot connect to self", r"Cannot connect to self"),
    Signature(
        Kind.FAMILIES,
        "ss_family",
        r"ss1\.ss_family == ss2\.ss_family\. (?P<own>\d{1,3}) vs (?P<other>\d{1,3})",
    ),
    Signature(Kind.FAMILIES, "address family mismatch", r"pair\.cc:\d+\] address family mismatch"),
    # --- what it publishes ------------------------------------------------------------------
    Signature(
        Kind.INTERFACE,
        "nable to find address for",
        # Up to the line's end, or to that of a collector's field.
        r'(?:ifa != nullptr\.? )Unable to find address for:(?P<name>(?:(?!"[,}\]]|"$).){0,120})',
    ),
    Signature(
        Kind.NOT_LOCAL,
        "nable to find address for",
        r"rp != nullptr\.? Unable to find address for:\s*(?P<name>\S{1,253})",
    ),
    Signature(
        Kind.NOT_LOCAL,
        "nable to find address for",
        r"Unable to find address for:? (?P<name>[^;\s]{1,253});? bind\(2\) for \[(?P<ip>[^\]]{1,64})\]",
    ),
    Signature(
        Kind.NOT_LOCAL,
        "nable to find interface for",
        r"Unable to find interface for:\s*\[?(?P<ip>[^\]\s]{1,64})",
    ),
    Signature(Kind.NAME_FAILED, "rv == 0", r"device\.cc:\d+\] rv == 0\.? ?(?P<code>-\d{1,3}) vs 0"),
    Signature(
        Kind.NAME_FAILED, "annot resolve", r"Cannot resolve (?P<name>\S{1,253}) to a \(local\) address"
    ),
    Signature(
        Kind.LOOPBACK_FALLBACK,
        "nable to resolve hostname",
        r"Unable to resolve hostname to a \(local\) address",
    ),
    Signature(
        Kind.DEVICE_EMPTY,
        "interface or hostname can't be empty",
        r"make\w{2,8}Device\(\): interface or hostname can't be empty",
    ),
    Signature(Kind.DEVICE_EMPTY, "No device(s) specified", r"No device\(s\) specified"),
    Signature(Kind.TRANSPORT, "unsupported gloo device", r"unsupported gloo device"),
    Signature(Kind.TRANSPORT, "support lazy init", r"transport does not support lazy init"),
    Signature(Kind.RECORD, "sizeof(impl_)", r"sizeof\(impl_\) == bytes\.size\(\)"),
    Signature(
        Kind.RECORD, "Remaining bytes do", r"Remaining bytes do not map to entire chunk of pair identifiers"
    ),
    Signature(
        Kind.SEQUENCE, "rank as sequence number", r"Listener (?:cannot|must) .{0,60}rank as sequence number"
    ),
    # --- its own sockets --------------------------------------------------------------------
    Signature(
        Kind.GLOO_BIND,
        "lready in use",
        rf"\b{_FILES}\b(?P<call>bind|listen): (?P<error>Address already in use)",
    ),
    Signature(
        Kind.GLOO_BIND,
        "assign requested",
        rf"\b{_FILES}\b(?P<call>connect|bind): (?P<error>Cannot assign requested address)",
    ),
    # --- an established pair ----------------------------------------------------------------
    Signature(
        Kind.PEER_CLOSED,
        "onnection closed by peer",
        r"[Cc]onnection closed by peer(?: \[(?P<ip>[^\]\s]{0,64})\](?::(?P<port>\d{1,5}))?)?",
    ),
    Signature(
        Kind.PEER_RESET,
        "onnection reset by peer",
        rf"(?:[Rr]ead|[Ww]rite|readv|writev)(?: error)? {_ADDRESS}: [Cc]onnection reset by peer",
    ),
    Signature(
        Kind.PEER_RESET,
        "onnection reset by peer",
        r"[Cc]onnection reset by peer",
        unless=r"c10d|TCPStore|recvValue|sendBytes|recvBytes|SocketImpl|DistNetworkError|NCCL|nccl|ucx|ssh",
    ),
    Signature(Kind.PEER_RESET, "ocket closed [", r"pair\.cc:\d+\] Socket closed \[(?P<ip>[^\]\s]{0,64})\]"),
    Signature(Kind.PEER_RESET, "ocket unexpectedly", r"Socket unexpectedly closed"),
    Signature(
        Kind.PAIR_BROKEN,
        "rror [",
        rf"(?:[Rr]ead|[Ww]rite) error {_ADDRESS}: (?P<error>(?!Connection reset)[A-Z][A-Za-z ]{{3,60}})",
    ),
    Signature(
        Kind.PAIR_BROKEN,
        "writev [",
        rf"writev {_ADDRESS}: (?P<error>(?!Connection reset)[A-Z][A-Za-z ]{{3,60}})",
    ),
    Signature(Kind.PAIR_BROKEN, "Pair is not connected", r"(?P<error>Pair is not connected) \("),
    Signature(
        Kind.PAIR_BROKEN,
        " bytes while expecting to ",
        r"(?P<error>short (?:read|write)): \w+ \d+ bytes while expecting to \w+ \d+ bytes, "
        rf"remote={_ADDRESS}",
    ),
    Signature(
        Kind.PAIR_BROKEN, "getsockopt: ", rf"(?P<error>getsockopt: [A-Z][a-z ]{{2,60}}), remote={_ADDRESS}"
    ),
    Signature(
        Kind.PAIR_BROKEN,
        "missing connection between",
        r"(?P<error>missing connection) between rank \d+ \(this",
    ),
    Signature(
        Kind.OPERATION_TIMEOUT,
        "imed out waiting",
        r"Timed out waiting (?P<ms>\d{1,12})ms for (?P<side>recv|send) operation",
    ),
    Signature(Kind.OPERATION_TIMEOUT, "imeout [", r"(?P<side>Read|Write) timeout \[(?P<ip>[^\]\s]{0,64})\]"),
    Signature(
        Kind.OPERATION_TIMEOUT,
        "collective operation timeout",
        r"Watchdog caught collective operation timeout: .{0,200}Timeout\(ms\)=(?P<ms>\d{1,12})",
    ),
    Signature(Kind.ECHO, "Application timeout caused", r"Application timeout caused pair closure"),
    Signature(
        Kind.ECHO, "reached monitoredBarrier", r"successfully reached monitoredBarrier, but received errors"
    ),
    # --- collectives ------------------------------------------------------------------------
    Signature(
        Kind.SIZE_MISMATCH,
        "op.preamble",
        r"op\.preamble\.(?:length|nbytes|roffset).{0,40}<= op\.(?:nbytes|buf).{0,12}?"
        r"(?:\.? ?(?P<received>\d+) vs (?P<expected>\d+)|$|\.)",
    ),
    Signature(
        Kind.SIZE_MISMATCH, "collective mismatch in", r"Received data size doesn't match expected size"
    ),
    Signature(
        Kind.FINGERPRINT,
        "between collectives",
        r"Detected mismatch between collectives on ranks\.? Rank (?P<rank>\d{1,6})",
    ),
    Signature(Kind.FINGERPRINT, "ollectives differ", r"Collectives differ in the following aspects"),
    Signature(
        Kind.FINGERPRINT,
        "expects same model",
        r"DDP expects same model across all ranks, but Rank (?P<rank>\d{1,6}) has",
    ),
    Signature(
        Kind.BARRIER_RANKS,
        "to pass monitoredBarrier",
        r"Ranks? (?P<ranks>\d[\d, ]{0,400}) failed to pass monitoredBarrier",
    ),
    Signature(
        Kind.BARRIER_CAME,
        "out in monitoredBarrier",
        r"Rank (?P<speaker>\d{1,6}) timed out in monitoredBarrier after (?P<ms>\d{1,12}) ms"
        r"(?:.{0,8}Successfully processed ranks: (?P<ranks>\d[\d, ]{0,400}))?",
    ),
    Signature(
        Kind.BARRIER_CAME,
        "Successfully processed ranks",
        r"Successfully processed ranks: (?P<ranks>\d[\d, ]{0,400})",
    ),
    Signature(
        Kind.BARRIER_NONE,
        "processed in monitoredBarrier",
        r"No ranks successfully processed in monitoredBarrier",
    ),
    Signature(
        Kind.PRECHECK,
        "encountered error running collective",
        r"Monitored Barrier encountered error running collective",
    ),
    Signature(
        Kind.RANK_RANGE,
        "rank",
        r"(?:rank_? < size_?|rank >= 0 && rank < size)\.? (?P<rank>\d{1,6}) vs (?P<size>\d{1,6})",
    ),
)
