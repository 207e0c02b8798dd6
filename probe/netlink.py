"""Links, addresses, routes and neighbours of this network namespace, as the kernel tells them.

rtnetlink(7) with the standard library alone: the answers of `ip`, which small images lack.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Tuple

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ATTRIBUTE = struct.Struct("=HH")  # struct rtattr
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_NEWLINK, _GETLINK, _NEWADDR, _GETADDR = 16, 18, 20, 22
_NEWROUTE, _GETROUTE, _NEWNEIGH, _GETNEIGH = 24, 26, 28, 30
_TYPE_MASK = 0x3FFF  # above are flags of the attribute
_TIMEOUT_S = 2.0

_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_INFO_KIND = 3, 18, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_SRC, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC = 1, 2, 4, 5, 7
_NDA_DST = 1
# linux/neighbour.h
_INCOMPLETE, _FAILED = 0x01, 0x20


@dataclass(frozen=True)
class Links:
    """kinds: interface -> what it is ("bridge", "tun", "veth", ...; "" = a device of its own).

    networks: interface -> its addresses with their prefix, such as "10.20.0.4/18".
    """

    kinds: Dict[str, str]
    networks: Dict[str, Tuple[str, ...]]


@dataclass(frozen=True)
class NextHop:
    """Where a packet goes next. interface "": the kernel has no route.

    source: the address of this host that the kernel gives to what has none yet.
    """

    interface: str
    address: str = ""
    source: str = ""


def read_links() -> Links:
    """
    Raises:
        OSError: the kernel did not answer.
    """
    names: Dict[int, str] = {}
    kinds: Dict[str, str] = {}
    for body in _ask(_GETLINK, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0), _DUMP, _NEWLINK):
        index = struct.unpack_from("=i", body, 4)[0]
        attributes = dict(_attributes(body[16:]))
        name = attributes[_IFLA_IFNAME].rstrip(b"\0").decode()
        info = dict(_attributes(attributes.get(_IFLA_LINKINFO, b"")))
        names[index] = name
        kinds[name] = info.get(_IFLA_INFO_KIND, b"").rstrip(b"\0").decode()
    networks: Dict[str, List[str]] = {name: [] for name in kinds}
    for body in _ask(_GETADDR, struct.pack("=BBBBi", 0, 0, 0, 0, 0), _DUMP, _NEWADDR):
        family, prefix, index = body[0], body[1], struct.unpack_from("=i", body, 4)[0]
        attributes = dict(_attributes(body[8:]))
        packed = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
        if packed is not None and index in names:
            networks[names[index]].append(f"{socket.inet_ntop(family, packed)}/{prefix}")
    return Links(kinds=kinds, networks={name: tuple(found) for name, found in networks.items()})


def next_hop(destination: str, source: str = "") -> NextHop:
    """Where a packet to that address goes; with `source` one that comes from this address of the host.

    Raises:
        OSError: the kernel did not answer, or refuses for another reason than that there is no route.
    """
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    packed = socket.inet_pton(family, destination)
    attributes = _attribute(_RTA_DST, packed)
    bits = 8 * len(packed)
    if source:
        attributes += _attribute(_RTA_SRC, socket.inet_pton(family, source))
    message = struct.pack("=BBBBBBBBI", family, bits, bits if source else 0, 0, 0, 0, 0, 0, 0) + attributes
    try:
        (body,) = _ask(_GETROUTE, message, 0, _NEWROUTE)
    except OSError as error:
        if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL):
            return NextHop(interface="")  # EINVAL: a blackhole route, or a source that is not this host's
        raise
    found = dict(_attributes(body[12:]))
    gateway, preferred = found.get(_RTA_GATEWAY), found.get(_RTA_PREFSRC)
    return NextHop(
        interface=socket.if_indextoname(struct.unpack("=i", found[_RTA_OIF])[0]),
        address=socket.inet_ntop(family, gateway) if gateway else destination,
        source=socket.inet_ntop(family, preferred) if preferred else "",
    )


def unanswered(hop: NextHop) -> Optional[bool]:
    """Whether the kernel asked the link for this neighbour and nobody answered; None = it does not tell."""
    family = socket.AF_INET6 if ":" in hop.address else socket.AF_INET
    try:
        message = struct.pack("=BBHiHBB", family, 0, 0, socket.if_nametoindex(hop.interface), 0, 0, 0)
        message += _attribute(_NDA_DST, socket.inet_pton(family, hop.address))
        (body,) = _ask(_GETNEIGH, message, 0, _NEWNEIGH)
    except (OSError, ValueError):  # no entry, or a kernel before 5.0, which only lists them all
        return None
    state = struct.unpack_from("=H", body, 8)[0]
    return bool(state & (_INCOMPLETE | _FAILED))


def _ask(kind: int, message: bytes, flags: int, wanted: int) -> List[bytes]:
    """The bodies of the kernel's answers of the wanted type."""
    found: List[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_TIMEOUT_S)
        sock.bind((0, 0))
        sock.send(_HEADER.pack(_HEADER.size + len(message), kind, _REQUEST | flags, 1, 0) + message)
        while True:
            for answer, body in _messages(sock.recv(1 << 17)):
                if answer == _DONE:
                    return found
                if answer == _ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, os.strerror(number))
                if answer == wanted:
                    found.append(body)
            if not flags & _DUMP:
                return found


def _messages(data: bytes) -> Iterator[Tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        size, kind, _, _, _ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : size]
        data = data[_aligned(size) :]


def _attributes(data: bytes) -> Iterator[Tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if size < _ATTRIBUTE.size:
            return
        yield kind & _TYPE_MASK, data[_ATTRIBUTE.size : size]
        data = data[_aligned(size) :]


def _attribute(kind: int, value: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(size, kind) + value + bytes(_aligned(size) - size)


def _aligned(size: int) -> int:
    return (size + 3) & ~3
