"""The process behind the VPC's own addresses: metadata, DNS and the relay, in one event loop.

Its listening sockets live in the VPC namespace, the process itself in the host's, where the
control plane listens. It gets the directory of instances over a socket pair, one JSON document a
line, and answers each with a line once it is in force.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import sys
import time
from typing import Awaitable, Callable, Optional, Set

from cluster.serial import decode, encode
from lab import fabric, metadata, relay, resolver, sandbox
from lab.directory import Directory

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_BACKLOG = 512
_LINE_LIMIT_BYTES = 64 * 1024 * 1024  # a directory holds the user data of every instance
_IN_FORCE = b"in force\n"


class ServicesError(RuntimeError):
    """The services process is gone."""


class Services:
    """The fleet's side: starts the process and tells it what changed."""

    def __init__(self, namespace: int, control_plane_port: int) -> None:
        own, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            own.close()
            code = 1
            try:
                asyncio.run(_Process(namespace, control_plane_port).run(theirs))
                code = 0
            except Exception as error:  # noqa: BLE001 - this process has nobody above it to tell
                sys.stderr.write(f"services: {error!r}\n")
                sys.stderr.flush()
            finally:
                os._exit(code)
        theirs.close()
        self._socket = own
        self._answers = own.makefile("rb")

    def publish(self, directory: Directory) -> None:
        """Put a new directory in force; returns when it is.

        Raises:
            ServicesError: the process has ended; its log says why.
        """
        try:
            self._socket.sendall(json.dumps(encode(directory)).encode() + b"\n")
            answer = self._answers.readline()
        except OSError:
            answer = b""
        if answer != _IN_FORCE:
            raise ServicesError(
                "the process that serves metadata, DNS and the relay ended: see supervisor.log"
            )


class _Process:
    def __init__(self, namespace: int, control_plane_port: int) -> None:
        self._namespace = namespace
        self._port = control_plane_port
        self._directory = Directory(region="")
        self._metadata = metadata.MetadataService(time.monotonic)
        self._resolvers: Set[str] = set()
        self._connections: Set[Optional[asyncio.Task[None]]] = set()

    async def run(self, control: socket.socket) -> None:
        await self._listen(
            fabric.METADATA_ADDRESS, 80, functools.partial(metadata.serve_connection, self._metadata)
        )
        await self._listen(
            fabric.RELAY_ADDRESS, fabric.RELAY_PORT, functools.partial(relay.serve_connection, self._port)
        )
        await self._resolve_at(fabric.RESOLVER_ADDRESS)
        reader, writer = await asyncio.open_connection(sock=control, limit=_LINE_LIMIT_BYTES)
        while line := await reader.readline():
            self._directory = decode(Directory, json.loads(line))
            self._metadata.update(self._directory)
            for cidr in self._directory.vpc_cidrs:
                await self._resolve_at(fabric.vpc_resolver_address(cidr))
            writer.write(_IN_FORCE)
            await writer.drain()

    async def _listen(self, address: str, port: int, serve: Serve) -> None:
        def open_socket() -> socket.socket:
            return socket.create_server((address, port), backlog=_BACKLOG)

        async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # the event loop alone does not hold a task: without this one could vanish half-way
            task = asyncio.current_task()
            self._connections.add(task)
            try:
                await serve(reader, writer)
            finally:
                self._connections.discard(task)

        await asyncio.start_server(keep, sock=sandbox.in_namespace(self._namespace, open_socket))

    async def _resolve_at(self, address: str) -> None:
        """Serve DNS at one more of the VPC's addresses. Replies must come from the address that was asked."""
        if address in self._resolvers:
            return
        self._resolvers.add(address)

        def open_socket() -> socket.socket:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            opened.bind((address, 53))
            return opened

        await self._listen(address, 53, functools.partial(resolver.serve_connection, lambda: self._directory))
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: resolver.DatagramServer(lambda: self._directory),
            sock=sandbox.in_namespace(self._namespace, open_socket),
        )
