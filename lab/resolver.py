"""The VPC's DNS server: private host names both ways, and the name nodes call the AWS services by.

`answer` is a pure function of a query and a directory. What it does not know does not exist: the
lab has no internet, and a query never leaves the machine.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Callable, Optional, cast

from dnslib import PTR, QTYPE, RCODE, RR, A, DNSError, DNSRecord  # type: ignore[import-untyped]

from lab.directory import Directory
from lab.fabric import RELAY_ADDRESS

SERVICES_NAME = "aws.fullmesh.internal"
TTL_S = 60
_REVERSE_ZONE = ".in-addr.arpa"


def address_of(name: str, directory: Directory) -> Optional[str]:
    """The IPv4 address a name stands for; None when there is no such name."""
    name = name.rstrip(".").lower()
    if name == SERVICES_NAME or name.endswith(f".{SERVICES_NAME}"):  # BUCKET.aws.fullmesh.internal too
        return RELAY_ADDRESS
    for facts in directory.instances:
        if name == facts.host_name.lower():
            return facts.address
    return None


def name_of(reverse: str, directory: Directory) -> Optional[str]:
    """The host name behind 14.0.42.10.in-addr.arpa; None when no instance has the address."""
    reverse = reverse.rstrip(".").lower()
    if not reverse.endswith(_REVERSE_ZONE):
        return None
    address = ".".join(reversed(reverse[: -len(_REVERSE_ZONE)].split(".")))
    for facts in directory.instances:
        if address == facts.address:
            return facts.host_name
    return None


def answer(query: bytes, directory: Directory) -> Optional[bytes]:
    """The answer to one DNS message; None for what is no query at all."""
    try:
        request = DNSRecord.parse(query)
    except DNSError:
        return None
    if request.header.qr or not request.questions:
        return None
    reply = request.reply(ra=1, aa=0)
    name, kind = str(request.q.qname), QTYPE[request.q.qtype]
    address, host = address_of(name, directory), name_of(name, directory)
    if address is None and host is None:
        reply.header.rcode = RCODE.NXDOMAIN
    elif address is not None and kind in ("A", "ANY"):
        reply.add_answer(RR(request.q.qname, QTYPE.A, rdata=A(address), ttl=TTL_S))
    elif host is not None and kind in ("PTR", "ANY"):
        reply.add_answer(RR(request.q.qname, QTYPE.PTR, rdata=PTR(host), ttl=TTL_S))
    packed: bytes = reply.pack()
    return packed


class DatagramServer(asyncio.DatagramProtocol):
    """DNS over UDP."""

    def __init__(self, directory: Callable[[], Directory]) -> None:
        self._directory = directory
        self._transport: Optional[asyncio.DatagramTransport] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = answer(data, self._directory())
        if reply is not None and self._transport is not None:
            self._transport.sendto(reply, addr)


async def serve_connection(
    directory: Callable[[], Directory], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """DNS over TCP: messages with their length before them."""
    try:
        while True:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            reply = answer(await reader.readexactly(length), directory())
            if reply is None:
                return
            writer.write(struct.pack("!H", len(reply)) + reply)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        return
    finally:
        writer.close()
