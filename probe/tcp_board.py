"""A meeting place served by one member over TCP, for clusters that share no storage.

One request a connection: a length-prefixed JSON header and a body, both ways. No pickles,
and names are checked, so a stray client can neither run code nor write files: objects
live in the serving process's memory.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
import time
from typing import Any, Dict, Tuple

from probe.board import BoardError
from probe.members import address_family

_FRAME = struct.Struct("!II")  # header bytes, body bytes
MAX_HEADER_BYTES = 4096
# A row of 1,000 nodes (4,000 probes) is about 1 MB.
MAX_BODY_BYTES = 32 * 1024 * 1024
REQUEST_TIMEOUT_S = 5.0
_RETRY_S = 0.2


def _send(sock: socket.socket, header: Dict[str, Any], body: bytes = b"") -> None:
    head = json.dumps(header).encode()
    sock.sendall(_FRAME.pack(len(head), len(body)) + head + body)


def _receive(sock: socket.socket) -> Tuple[Dict[str, Any], bytes]:
    head_bytes, body_bytes = _FRAME.unpack(_exactly(sock, _FRAME.size))
    if head_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:
        raise ValueError(f"a frame of {head_bytes} + {body_bytes} bytes is not one of ours")
    header = json.loads(_exactly(sock, head_bytes))
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    return header, _exactly(sock, body_bytes)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(65536, count - len(data)))
        if not part:
            raise ValueError(f"closed after {len(data)} of {count} bytes")
        data += part
    return bytes(data)


class BoardServer:
    """Serves a board from this process's memory; a context manager."""

    def __init__(self, address: str, port: int) -> None:
        """
        Raises:
            BoardError: the port cannot be bound.
        """
        objects: Dict[str, bytes] = {}
        lock = threading.Lock()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(REQUEST_TIMEOUT_S)
                try:
                    header, body = _receive(self.request)
                    with lock:
                        answer, content = _answer(objects, header, body)
                    _send(self.request, answer, content)
                except (OSError, ValueError):
                    return  # a stray or broken client; the next request is another connection

        class Server(socketserver.ThreadingTCPServer):
            address_family = address_family(address)
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 512

        try:
            self._server = Server((address, port), Handler)
        except OSError as error:
            raise BoardError(
                f"cannot serve the meeting place on {address}:{port}: {error.strerror}; "
                "choose another with --meet tcp://HOST:PORT on every member"
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> BoardServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(objects: Dict[str, bytes], header: Dict[str, Any], body: bytes) -> Tuple[Dict[str, Any], bytes]:
    action, name = header.get("do"), str(header.get("name", ""))
    if action == "post":
        objects[name] = body
        return {"ok": True}, b""
    if action == "names":
        return {"ok": True}, "\n".join(sorted(objects)).encode()
    if action == "read" and name in objects:
        return {"ok": True}, objects[name]
    return {"ok": False, "error": f"no object {name!r}" if action == "read" else f"no action {action!r}"}, b""


class TcpBoard:
    """A client of `BoardServer`."""

    def __init__(self, host: str, port: int, member_id: str, patience_s: float = 0.0) -> None:
        """patience_s: how long a request is repeated while nobody serves yet."""
        self._host = host
        self._port = port
        self._member_id = member_id
        self._patience_s = patience_s

    def post(self, name: str, body: bytes) -> None:
        self._request({"do": "post", "name": f"{self._member_id}/{name}"}, body)

    def names(self) -> Tuple[str, ...]:
        return tuple(self._request({"do": "names"}).decode().splitlines())

    def read(self, name: str) -> bytes:
        return self._request({"do": "read", "name": name})

    def where(self, name: str) -> str:
        return f"tcp://{self._host}:{self._port}/{name}"

    def _request(self, header: Dict[str, Any], body: bytes = b"") -> bytes:
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                answer, content = self._once(header, body)
                break
            except (OSError, ValueError) as error:
                if time.monotonic() >= give_up_at:
                    raise BoardError(
                        f"cannot reach the meeting place tcp://{self._host}:{self._port}: {error}; "
                        "check that rank 0 runs the same command and that this port is open"
                    ) from error
                time.sleep(_RETRY_S)
        if not answer.get("ok"):
            raise BoardError(f"tcp://{self._host}:{self._port}: {answer.get('error')}")
        return content

    def _once(self, header: Dict[str, Any], body: bytes) -> Tuple[Dict[str, Any], bytes]:
        with socket.create_connection((self._host, self._port), timeout=REQUEST_TIMEOUT_S) as sock:
            _send(sock, header, body)
            return _receive(sock)
