"""Who is in the cluster: a member, its registration's name, and the order of ranks.

A registration is an empty object whose NAME carries everything (docs/architecture.md), so
one listing of the meeting place tells the whole membership and every proven listener.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Iterable, Optional, Tuple

from cluster.keys import read_registration, registration


@dataclass(frozen=True)
class Member:
    """One node as its registration tells it.

    member_id: unique and stable (the EC2 instance id, "rank-3", "host:pid").
    address: the address its listeners are bound to and proven on.
    master_port: 0 = this node's listener on MASTER_PORT could not be opened.
    ports: its other proven listeners, in the node's ephemeral range.
    """

    member_id: str
    address: str
    master_port: int
    ports: Tuple[int, ...]

    def registration(self) -> str:
        """The object's name below the member's own folder."""
        return registration(self.address, self.master_port, self.ports)


def parse_registration(member_id: str, name: str) -> Optional[Member]:
    """Read a registration's name; None for any other object's name.

    Raises:
        ValueError: the name claims to be a registration but does not read as one.
    """
    try:
        read = read_registration(name)
    except ValueError as error:
        raise ValueError(f"{member_id}: {error}") from error
    if read is None:
        return None
    address, master_port, ports = read
    try:
        address_order(address)
    except OSError as error:
        raise ValueError(f"registration {name!r} of {member_id}: {address!r} is no address") from error
    return Member(
        member_id=member_id,
        address=address,
        master_port=master_port,
        ports=ports,
    )


def address_family(address: str) -> socket.AddressFamily:
    """AF_INET6 for an address with a colon, AF_INET for any other."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def address_order(address: str) -> Tuple[int, bytes]:
    """Sorts addresses by number, not by text: 10.0.0.9 comes before 10.0.0.10.

    Raises:
        OSError: `address` is neither an IPv4 nor an IPv6 address.
    """
    family = address_family(address)
    return (int(family), socket.inet_pton(family, address))


def in_rank_order(members: Iterable[Member]) -> Tuple[Member, ...]:
    """Members by address, then by id: the place in this order is the rank when none was claimed."""
    return tuple(sorted(members, key=lambda m: (address_order(m.address), m.member_id)))
