"""The way to the meeting place through a listener of the mesh, where its own port is filtered.

A cluster of which only MASTER_PORT is open is the famous failure, and its members must still meet:
rank 0's listener there hands on whoever begins with `ASK`, and answers `OPEN` first, so that a mere
echo is not taken for it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, Optional, Tuple

ASK = b"fullmesh: meet?\n"
OPEN = b"fullmesh: meet!\n"


class Relay:
    """Carries connections to the service of the meeting place, and remembers whose they are."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._origins: Dict[Tuple[str, int], str] = {}

    def origin(self, client: Tuple[Any, ...]) -> str:
        """The address of the host that a connection of the service is really from."""
        return self._origins.get((client[0], client[1]), str(client[0]))

    async def carry(self, accepted: asyncio.Transport, closed: Callable[[], None]) -> None:
        """Join an accepted connection with one to the service. closed: called when it has ended."""
        loop = asyncio.get_running_loop()
        inner = _Pipe(accepted)
        try:
            made, _ = await loop.create_connection(lambda: inner, self._host, self._port)
        except OSError:
            accepted.close()
            return
        own, peer = made.get_extra_info("sockname"), accepted.get_extra_info("peername")
        self._origins[own[0], own[1]] = str(peer[0])

        def ended() -> None:
            self._origins.pop((own[0], own[1]), None)
            closed()

        accepted.set_protocol(_Pipe(made, ended))
        accepted.write(OPEN)


class _Pipe(asyncio.Protocol):
    """One end of a carried connection: what comes in goes out of the other."""

    def __init__(self, other: asyncio.Transport, ended: Optional[Callable[[], None]] = None) -> None:
        self._other = other
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._other.write(data)

    def connection_lost(self, _exc: Optional[Exception]) -> None:
        self._other.close()
        if self._ended is not None:
            self._ended()
