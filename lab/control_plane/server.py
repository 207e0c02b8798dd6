"""The control plane's process: settings, the server, and dying with whoever started it."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HOST = "127.0.0.1"
CAPACITY_PATH = "/_fullmesh/capacity"


def settings(port: int, public_host: str) -> dict[str, str]:
    """ministack's environment: loopback only, nothing persisted, nothing beside HTTP.

    MINISTACK_HOST makes `BUCKET.public_host` an S3 address, as nodes use it. The proxy lets
    a Lambda function, which runs on the host where `public_host` has no address, follow an
    URL meant for nodes: every plain HTTP request that is not for loopback comes here.
    """
    here = f"http://{HOST}:{port}"
    return {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": HOST,
        "MINISTACK_HOST": public_host,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "PERSIST_STATE": "0",
        "S3_PERSIST": "0",
        "LAMBDA_EXECUTOR": "local",
        "LOG_LEVEL": os.environ.get("FULLMESH_LAB_LOG_LEVEL", "INFO"),
        "AWS_ENDPOINT_URL": here,
        "AWS_EC2_METADATA_DISABLED": "true",
        "http_proxy": here,
        "no_proxy": "127.0.0.1,localhost",
    }


def serve(port: int, *, public_host: str, public_port: int, parent: int | None) -> None:
    """Serve until the process is ended, or until process `parent` is gone.

    Raises:
        VersionError: another ministack than the pinned one is installed.
        OSError: the port is taken.
    """
    os.environ.update(settings(port, public_host))
    if parent is not None:
        _die_with(parent)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
    # Only now: ministack reads the settings above while it is imported.
    from lab.control_plane import backend, registry

    backend.check_version()
    registry.register_all(
        handle_base=f"http://{public_host}:{public_port}", response_base=f"http://{HOST}:{port}"
    )
    asyncio.run(_serve(port, backend.app, backend.adopt_loop, registry.background))


async def _serve(
    port: int,
    app: Callable[[Scope, Receive, Send], Awaitable[None]],
    adopt_loop: Callable[[asyncio.AbstractEventLoop], None],
    background: Callable[[], Awaitable[None]],
) -> None:
    from hypercorn.asyncio import serve as hypercorn_serve
    from hypercorn.config import Config

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
    ticker = asyncio.ensure_future(background())
    try:
        await hypercorn_serve(_front(app), config, shutdown_trigger=stopped)  # type: ignore[arg-type]
    finally:
        ticker.cancel()


def _front(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Take requests in absolute form (as a proxy gets them), and the lab's own paths."""

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
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
    from lab.control_plane import capacity

    status, answer = 200, {}
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
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
    )
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def _die_with(parent: int) -> None:
    """End this process, and its whole group, when `parent` ends: also when it is killed.

    A process descriptor is watched instead of asking for a death signal, because that one is
    sent when the thread that started us ends, not the process.
    """
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        raise SystemExit(f"process {parent} that wanted a control plane is gone") from None

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="dies-with-parent").start()
