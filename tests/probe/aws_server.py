"""A web server that answers as the test says, for what no emulator does on demand: throttling, cut-offs."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from probe.signing import Credentials

REGION = "eu-central-1"
KEYS = Credentials(access_key_id="AKID", secret_access_key="s")  # noqa: S106 - made up


@dataclass(frozen=True)
class Answer:
    """body is cut after `sent` bytes if given; silent: close the connection without an answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    sent: int | None = None
    silent: bool = False


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


@contextmanager
def answering(answer: Callable[[Asked, int], Answer]) -> Iterator[tuple[str, list[Asked]]]:
    """Serve; yields the URL and the list of requests. `answer` gets a request and its number from 0."""
    asked: list[Asked] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            port = self.client_address[1]
            request = Asked(
                self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body, port
            )
            asked.append(request)
            given = answer(request, len(asked) - 1)
            if given.silent:
                self.close_connection = True
                return
            self.send_response_only(given.status)  # no Date but the one a test gives
            for name, value in given.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.body)))
            self.end_headers()
            self.wfile.write(given.body[: given.sent])
            if given.sent is not None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = _any

        def log_message(self, *_: object) -> None:
            """Quiet: pytest shows what matters."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
