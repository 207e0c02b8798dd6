"""Connections that worked, are left alone, and are used again: what forgets idle ones on the way.

A job is idle between its collectives for as long as it computes. What tracks connections may forget
one meanwhile and drop what comes later; a new connection then works, so nothing else shows it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Optional, Sequence, Tuple

from diagnosis.report import ConnectOutcome, IdleConnection
from probe import outcome
from probe.conversation import ECHO_PATIENCE_S, outcome_of_error
from probe.echo import SMALL_BYTES, is_answer, question
from probe.members import address_family
from probe.stream import StreamTarget
from probe.tcp_info import tcp_info

_OPEN_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.5
_REPEATED_OFTEN = 2


async def keep_idle(plan: Sequence[StreamTarget], idle_s: float) -> Tuple[IdleConnection, ...]:
    """One connection to each target, left alone for `idle_s`; those that could not be made are left out."""
    opened = await asyncio.gather(*(_open(target) for target in plan))
    await asyncio.sleep(idle_s)
    kept = [(target, sock) for target, sock in zip(plan, opened) if sock is not None]
    try:
        return tuple(await asyncio.gather(*(_use_again(target, sock, idle_s) for target, sock in kept)))
    finally:
        for _, sock in kept:
            sock.close()


async def _open(target: StreamTarget) -> Optional[socket.socket]:
    loop = asyncio.get_running_loop()
    sock = socket.socket(address_family(target.address), socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        connected = loop.sock_connect(sock, (target.address, target.port))
        await asyncio.wait_for(connected, _OPEN_TIMEOUT_S)
        asked = question()
        await loop.sock_sendall(sock, asked)
        answer = await asyncio.wait_for(_receive(sock), _OPEN_TIMEOUT_S)
    except (OSError, asyncio.TimeoutError):
        sock.close()
        return None
    if is_answer(asked, answer):
        return sock
    sock.close()
    return None


async def _use_again(target: StreamTarget, sock: socket.socket, idle_s: float) -> IdleConnection:
    at_s = time.time()
    kept, unacknowledged = await _ask(sock)
    fresh = None
    if kept is not ConnectOutcome.CONNECTED:
        fresh = (await outcome.attempt(target.address, target.port)).outcome
    return IdleConnection(
        destination=target.destination,
        port=target.port,
        idle_s=idle_s,
        kept=kept,
        unacknowledged=unacknowledged,
        fresh=fresh,
        at_s=at_s,
    )


async def _ask(sock: socket.socket) -> Tuple[ConnectOutcome, Optional[bool]]:
    """What became of it, and (of a silent one) whether the kernel repeated what nobody acknowledged."""
    asked = question()
    try:
        await asyncio.get_running_loop().sock_sendall(sock, asked)
        receiving = asyncio.ensure_future(_receive(sock))
        give_up_at = time.monotonic() + ECHO_PATIENCE_S
        while True:
            done, _ = await asyncio.wait({receiving}, timeout=_LOOK_EVERY_S)
            if done:
                answered = is_answer(asked, receiving.result())
                return (ConnectOutcome.CONNECTED if answered else ConnectOutcome.SILENT), None
            info = tcp_info(sock)
            eaten = info.unacknowledged > 0 and info.retransmits >= _REPEATED_OFTEN
            if eaten or time.monotonic() >= give_up_at:
                receiving.cancel()
                return ConnectOutcome.SILENT, eaten
    except OSError as error:
        return outcome_of_error(error.errno), None


async def _receive(sock: socket.socket) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < SMALL_BYTES:
        part = await loop.sock_recv(sock, SMALL_BYTES - len(data))
        if not part:
            raise ConnectionResetError(104, "closed by the peer")
        data += part
    return data
