"""The control plane's HTTP server: ministack behind a thin front of the lab's own."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config

from lab.control_plane import backend, capacity, registry
from lab.control_plane.loop import adopt as adopt_loop
from lab.control_plane.process import HOST

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CAPACITY_PATH = "/_fullmesh/capacity"


def serve(port: int, *, public_host: str, public_port: int) -> None:
    """Serve until the process is told to end; `settings` must be in the environment already.

    Raises:
        VersionError: another ministack than the pinned one is installed.
        OSError: the port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
    backend.check_version()
    registry.register_all(
        handle_base=f"http://{public_host}:{public_port}", response_base=f"http://{HOST}:{port}"
    )
    # Not asyncio.run: that would wait for whatever is still in the making.
    asyncio.new_event_loop().run_until_complete(_serve(port))


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    adopt_loop(loop)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def stopped() -> None:
        await stop.wait()

    config = Config()
    config.bind = [f"{HOST}:{port}"]
    config.keep_alive_timeout = 75
    config.graceful_timeout = 1
    config.accesslog = None
    ticker = asyncio.ensure_future(registry.background())
    try:
        await hypercorn_serve(_front(backend.app), config, shutdown_trigger=stopped)
    finally:
        ticker.cancel()


def _front(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Take requests in absolute form (as a proxy gets them), and the lab's own paths; refuse browsers.

    Functions run as the lab's owner and no credentials are asked for, so a page that the owner looks at
    must not make one. A browser says where a request that may change something comes from (Origin:
    RFC 6454, section 7); AWS's clients never do.
    """

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if any(name.lower() == b"origin" for name, _ in scope["headers"]):
                await _reply(send, 403, {"message": "the lab takes no request from a browser's page"})
                return
            path = scope["path"]
            if path.startswith("http://"):
                scope = {**scope, "path": urlsplit(path).path or "/"}
                scope["raw_path"] = scope["path"].encode()
            if scope["path"] == CAPACITY_PATH:
                await _answer_capacity(scope, receive, send)
                return
        await app(scope, receive, send)

    return front


async def _answer_capacity(scope: Scope, receive: Receive, send: Send) -> None:
    status = 200
    answer: dict[str, object] = {}
    if scope["method"] == "PUT":
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            capacity.set_limits({str(key): int(value) for key, value in json.loads(body).items()})
        except (ValueError, AttributeError, TypeError) as error:
            status, answer = 400, {"message": f'expected {{"INSTANCE_TYPE": COUNT}}: {error}'}
    if status == 200:
        answer = dict(capacity.limits())
    await _reply(send, status, answer)


async def _reply(send: Send, status: int, answer: dict[str, object]) -> None:
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
    )
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
