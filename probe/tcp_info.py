"""What the kernel knows about one TCP connection: TCP_INFO (include/uapi/linux/tcp.h)."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Optional

TCP_SYN_SENT = 2  # include/net/tcp_states.h
_BYTES = 232  # up to tcpi_snd_wnd; an older kernel gives fewer


@dataclass(frozen=True)
class TcpInfo:
    """None where this kernel is too old to tell.

    retransmits: of the segment that is waited for; of the SYN while connecting.
    unacknowledged: segments.
    path_mtu: bytes, as the kernel believes for this connection.
    data_segments: sent in all, repeated ones included.
    repeated: segments sent again in all; repeated_in_vain: of those, how many the peer had had already
        (it said so by DSACK): late, not lost.
    """

    state: int
    retransmits: int
    unacknowledged: int
    path_mtu: Optional[int] = None
    repeated: Optional[int] = None
    data_segments: Optional[int] = None
    repeated_in_vain: Optional[int] = None

    @property
    def lost_segments(self) -> Optional[int]:
        """Segments that had to be sent again because they, or what acknowledged them, never came."""
        if self.repeated is None or self.repeated_in_vain is None:
            return None
        return max(0, self.repeated - self.repeated_in_vain)


def tcp_info(sock: socket.socket) -> TcpInfo:
    """
    Raises:
        OSError: the socket is closed.
    """
    data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)

    def number(offset: int) -> Optional[int]:
        return int(struct.unpack_from("=I", data, offset)[0]) if len(data) >= offset + 4 else None

    return TcpInfo(
        state=data[0],
        retransmits=data[2],
        unacknowledged=number(24) or 0,
        path_mtu=number(60),
        repeated=number(100),
        data_segments=number(156),
        repeated_in_vain=number(216),
    )
