"""Carries a node's connections to the AWS services over to the control plane on the host's loopback.

It listens in the VPC namespace on a public-looking address, port 443, so that egress rules, ACLs
and routes of the node decide whether it is reached. Bytes pass as they are: plain HTTP, whatever
the port's usual use.
"""

from __future__ import annotations

import asyncio

_CHUNK_BYTES = 65_536


async def serve_connection(
    target_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Join one connection to the control plane until both sides have closed."""
    try:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target_port)
    except OSError:
        writer.transport.abort()
        return
    try:
        await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
    except OSError:
        # one side was reset: the other must not be left to wait
        writer.transport.abort()
        there_writer.transport.abort()
    finally:
        writer.close()
        there_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
