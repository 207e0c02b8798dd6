"""A capture of connections being opened and refused while a check runs, written as pcap.

Only what opens, ends or refuses a connection (SYN, FIN, RST) and ICMP's errors reach this
process: the kernel filters, so a busy host costs nothing and no payload is ever seen. What
is kept in the end are the ports of the check itself.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Collection, List, NamedTuple, Optional, Tuple, Type

_ETH_P_ALL = 3
_SO_ATTACH_FILTER = 26
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # linux/socket.h, linux/if_packet.h
_SNAP_BYTES = 128  # headers of IPv6 and of TCP with every option; no payload
_MOST_PACKETS = 50_000
_LINKTYPE_RAW = 101  # packets begin with the IP header: www.tcpdump.org/linktypes.html
_ICMP, _TCP, _ICMP6 = 1, 6, 58

# Classic BPF (code, jump if true, jump if false, value); offset 0 is the IP header.
_FILTER = (
    (0x30, 0, 0, 0),  # A = first byte
    (0x54, 0, 0, 0xF0),
    (0x15, 0, 8, 0x40),  # IPv4, else to IPv6
    (0x30, 0, 0, 9),  # A = protocol
    (0x15, 12, 0, _ICMP),
    (0x15, 0, 12, _TCP),
    (0x28, 0, 0, 6),
    (0x45, 10, 0, 0x1FFF),  # a later fragment has no ports
    (0xB1, 0, 0, 0),  # X = length of the IP header
    (0x50, 0, 0, 13),  # A = TCP flags
    (0x45, 6, 7, 0x07),  # FIN, SYN or RST
    (0x15, 0, 6, 0x60),  # IPv6, else nothing
    (0x30, 0, 0, 6),  # A = next header
    (0x15, 3, 0, _ICMP6),
    (0x15, 0, 3, _TCP),
    (0x30, 0, 0, 53),  # A = TCP flags behind a plain header
    (0x45, 0, 1, 0x07),
    (0x06, 0, 0, _SNAP_BYTES),
    (0x06, 0, 0, 0),
)


class Packet(NamedTuple):
    """at_s: seconds since the epoch. length: of the whole packet. data: its first bytes."""

    at_s: float
    length: int
    data: bytes


class Capture:
    """Captures inside the context.

    problem: why there is none, where that is so. cut: why packets are missing, where some are.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.cut = ""
        self._packets: List[Packet] = []
        self._socket: Optional[socket.socket] = None
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> Capture:
        try:
            self._socket = _open()
        except (OSError, AttributeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self.problem = f"no capture: {why}; it needs root or CAP_NET_RAW"
            return self
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._socket is not None:
            self.cut = self._missing(self._socket)
            self._socket.close()

    def _missing(self, reading: socket.socket) -> str:
        if len(self._packets) >= _MOST_PACKETS:
            return f"only the first {_MOST_PACKETS} packets were kept"
        dropped = _dropped(reading)
        return f"the kernel dropped {dropped} packets that were not read in time" if dropped else ""

    def pcap(self, ports: Collection[int]) -> bytes:
        """The packets of these TCP ports, and ICMP's errors, as a pcap file."""
        kept = [packet for packet in self._packets if _concerns(packet.data, ports)]
        head = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, _SNAP_BYTES, _LINKTYPE_RAW)
        return head + b"".join(map(_record, kept))

    def _run(self) -> None:
        reading = self._socket
        assert reading is not None  # noqa: S101 - started with it
        while not self._stop.is_set() and len(self._packets) < _MOST_PACKETS:
            if not select.select([reading], [], [], 0.1)[0]:
                continue
            try:
                data = reading.recv(_SNAP_BYTES)
            except OSError:
                return
            self._packets.append(Packet(time.time(), _length(data), data))


def _dropped(reading: socket.socket) -> int:
    """How many packets the kernel had no room for since the last time that it was asked."""
    return int(struct.unpack("=II", reading.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1])


def _open() -> socket.socket:
    """A packet socket of every interface behind the filter; what was queued before it is thrown away."""
    found = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
    try:
        program = _Program(b"".join(struct.pack("=HBBI", *step) for step in _FILTER))
        found.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program.header)
        found.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                found.recv(1)
        _dropped(found)  # of those, too
    except OSError:
        found.close()
        raise
    return found


class _Program:
    """struct sock_fprog, and the code that it points to."""

    def __init__(self, code: bytes) -> None:
        import ctypes  # noqa: PLC0415 - for the address of a buffer, only where something is captured

        self._buffer = ctypes.create_string_buffer(code)
        self.header = struct.pack("HL", len(code) // 8, ctypes.addressof(self._buffer))


def _ports_of(data: bytes) -> Optional[Tuple[int, int]]:
    """(source, destination) of a TCP packet; None of another protocol's."""
    if data[0] >> 4 == 4:
        protocol, header = data[9], (data[0] & 0xF) * 4
    else:
        protocol, header = data[6], 40
    if protocol != _TCP or len(data) < header + 4:
        return None
    source, destination = struct.unpack_from("!HH", data, header)
    return int(source), int(destination)


def _concerns(data: bytes, ports: Collection[int]) -> bool:
    found = _ports_of(data)
    return found is None or found[0] in ports or found[1] in ports


def _length(data: bytes) -> int:
    return int(struct.unpack_from("!H", data, 2 if data[0] >> 4 == 4 else 4)[0]) + 40 * (data[0] >> 4 == 6)


def _record(packet: Packet) -> bytes:
    seconds, fraction = divmod(packet.at_s, 1)
    head = struct.pack("=IIII", int(seconds), int(fraction * 1e6), len(packet.data), packet.length)
    return head + packet.data
