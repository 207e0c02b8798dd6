"""A meeting place served by one member over TCP, for clusters that share no storage.

One request a connection: a length-prefixed JSON header and a body, both ways. No pickles, and
objects live in the serving process's memory, so a stray client can neither run code nor write
files. A name is MEMBER/OBJECT; a member's folder is written from one address only, the first
that wrote there, so that no other host replaces a row or a verdict; and all objects together
have a limit, which is looked at before a body is read. Whoever reaches the port can read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import socket
import socketserver
import struct
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from probe.board import BoardContentError, BoardError
from probe.members import address_family
from probe.relay import ASK, OPEN, Relay

_FRAME = struct.Struct("!II")  # header bytes, body bytes
MAX_HEADER_BYTES = 4096
# A row of 1,000 nodes (4,000 probes) is about 1 MB.
MAX_BODY_BYTES = 32 * 1024 * 1024
# Two rows and two verdicts of each of 128 nodes of that size, or the rows of 512 usual ones.
MAX_TOTAL_BYTES = 512 * 1024 * 1024
OBJECT_OVERHEAD_BYTES = 256  # what an object costs beside its body, so that empty ones count too
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:%-]{0,127}/[A-Za-z0-9][A-Za-z0-9_.:%,~-]{0,511}")
SPARE = "spare-"
_SPARE_NAME = re.compile(rf"{SPARE}(\d{{1,5}})/{SPARE}")
REQUEST_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 2.0
_RETRY_S = 0.2


def _send(sock: socket.socket, header: Dict[str, Any], body: bytes = b"") -> None:
    head = json.dumps(header).encode()
    sock.sendall(_FRAME.pack(len(head), len(body)) + head + body)


def _receive_header(sock: socket.socket) -> Tuple[Dict[str, Any], int]:
    """The header, and the size of the body that follows."""
    head_bytes, body_bytes = _FRAME.unpack(_exactly(sock, _FRAME.size))
    if head_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:
        raise ValueError(f"a frame of {head_bytes} + {body_bytes} bytes is not one of ours")
    header = json.loads(_exactly(sock, head_bytes))
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    return header, body_bytes


def _receive(sock: socket.socket) -> Tuple[Dict[str, Any], bytes]:
    header, body_bytes = _receive_header(sock)
    return header, _exactly(sock, body_bytes)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(65536, count - len(data)))
        if not part:
            raise ValueError(f"closed after {len(data)} of {count} bytes")
        data += part
    return bytes(data)


def _discard(sock: socket.socket, count: int) -> None:
    """Take what a refused client still sends: a close before it would reset the answer, too."""
    while count > 0:
        count -= len(sock.recv(min(65536, count))) or count


class _Store:
    """The objects, who may write where, and how much room is left."""

    def __init__(self) -> None:
        self._objects: Dict[str, bytes] = {}
        self._writers: Dict[str, str] = {}
        self._coming_bytes = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def room(self, name: str, body_bytes: int, client: str) -> Iterator[None]:
        """Keep room for a body while it arrives.

        Raises:
            BoardContentError: no such name, another one's folder, or no room.
        """
        cost = body_bytes + OBJECT_OVERHEAD_BYTES
        with self._lock:
            if not _NAME.fullmatch(name):
                raise BoardContentError(f"{name[:200]!r} is not MEMBER/OBJECT")
            if self._bytes() + self._coming_bytes + cost > MAX_TOTAL_BYTES:
                raise BoardContentError(f"no room for {name!r}: all objects have {MAX_TOTAL_BYTES} bytes")
            self._check_writer(name, client)
            self._coming_bytes += cost
        try:
            yield
        finally:
            with self._lock:
                self._coming_bytes -= cost

    def put(self, name: str, body: bytes, client: str) -> None:
        """Raises BoardContentError: somebody else has begun to write the folder meanwhile."""
        with self._lock:
            self._check_writer(name, client)
            self._writers[name.partition("/")[0]] = client
            self._objects[name] = body

    def _check_writer(self, name: str, client: str) -> None:
        folder = name.partition("/")[0]
        writer = self._writers.get(folder, client)
        if writer != client:
            raise BoardContentError(f"{folder!r} is written by {writer}, not by {client}")

    def names(self) -> Tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._objects))

    def read(self, name: str) -> bytes:
        """Raises BoardContentError: there is none."""
        with self._lock:
            if name not in self._objects:
                raise BoardContentError(f"no object {name[:200]!r}")
            return self._objects[name]

    def _bytes(self) -> int:
        return sum(map(len, self._objects.values())) + OBJECT_OVERHEAD_BYTES * len(self._objects)


class BoardServer:
    """Serves a board from this process's memory; a context manager.

    It serves on another port, too, which the kernel chooses as it does for Gloo's listeners: where the
    mesh works, that one is open. Every listing tells its number (`SPARE`).
    """

    def __init__(self, address: str, port: int, relay: Optional[Relay] = None) -> None:
        """relay: tells whose connections those are that a listener of the mesh hands on.

        Raises:
            BoardError: the port cannot be bound.
        """
        store = _Store()
        also: List[str] = []

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(REQUEST_TIMEOUT_S)
                try:
                    self._answer()
                except (OSError, ValueError):
                    return  # a stray or broken client; the next request is another connection

            def _answer(self) -> None:
                header, body_bytes = _receive_header(self.request)
                action, name = header.get("do"), str(header.get("name", ""))
                try:
                    content = b""
                    if action == "post":
                        client = relay.origin(self.client_address) if relay else self.client_address[0]
                        with store.room(name, body_bytes, client):
                            body, body_bytes = _exactly(self.request, body_bytes), 0
                            store.put(name, body, client)
                    elif action == "names":
                        content = "\n".join((*store.names(), *also)).encode()
                    elif action == "read":
                        content = store.read(name)
                    else:
                        raise BoardContentError(f"no action {action!r}")
                except BoardContentError as error:
                    _discard(self.request, body_bytes)
                    _send(self.request, {"ok": False, "error": str(error)})
                else:
                    _send(self.request, {"ok": True}, content)

        class Server(socketserver.ThreadingTCPServer):
            address_family = address_family(address)
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 512

        try:
            self._servers = [Server((address, port), Handler)]
            self._servers.append(Server((address, 0), Handler))
        except OSError as error:
            for server in self.__dict__.get("_servers", []):
                server.server_close()
            raise BoardError(
                f"cannot serve the meeting place on {address}:{port}: {error.strerror}; "
                "choose another with --meet tcp://HOST:PORT on every member"
            ) from error
        self.port, spare = (int(server.server_address[1]) for server in self._servers)
        also.append(f"{SPARE}{spare}/{SPARE}")

    def __enter__(self) -> BoardServer:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@dataclasses.dataclass(frozen=True)
class _Way:
    """A port where the service may answer. carried: a listener of the mesh that hands on."""

    port: int
    carried: bool = False


class TcpBoard:
    """A client of `BoardServer`.

    Before anything has answered it tries its ways in turn; then it keeps to the one that did, and
    turns to another where that one ends (a listener of the mesh closes with its stage).
    """

    def __init__(
        self, host: str, port: int, member_id: str, patience_s: float = 0.0, carried_by: Sequence[int] = ()
    ) -> None:
        """
        Args:
            patience_s: how long a request is repeated while nobody serves yet.
            carried_by: ports of `host` whose listener may hand on to the service.
        """
        self._host = host
        self._port = port
        self._member_id = member_id
        self._patience_s = patience_s
        self._ways: List[_Way] = [_Way(port), *(_Way(carrier, carried=True) for carrier in carried_by)]

    def post(self, name: str, body: bytes) -> None:
        self._request({"do": "post", "name": f"{self._member_id}/{name}"}, body)

    def names(self) -> Tuple[str, ...]:
        names = self._request({"do": "names"}).decode().splitlines()
        for name in names:
            spare = _SPARE_NAME.fullmatch(name)
            if spare and _Way(int(spare[1])) not in self._ways:
                self._ways.append(_Way(int(spare[1])))
        return tuple(name for name in names if not _SPARE_NAME.fullmatch(name))

    def read(self, name: str) -> bytes:
        return self._request({"do": "read", "name": name})

    def where(self, name: str) -> str:
        return f"tcp://{self._host}:{self._port}/{name}"

    def _request(self, header: Dict[str, Any], body: bytes = b"") -> bytes:
        give_up_at = time.monotonic() + self._patience_s
        direct: Optional[Exception] = None
        while True:
            way = self._ways[0]
            try:
                answer, content = self._once(way, header, body)
                break
            except (OSError, ValueError) as error:
                if way.port == self._port:
                    direct = error
                if time.monotonic() >= give_up_at and (direct or len(self._ways) == 1):
                    told = direct or error
                    raise BoardError(
                        f"cannot reach the meeting place tcp://{self._host}:{self._port}: {told}; "
                        "check that rank 0 runs the same command and that this port is open"
                    ) from told
                self._ways.append(self._ways.pop(0))
                time.sleep(_RETRY_S)
        if not answer.get("ok"):
            raise BoardContentError(f"tcp://{self._host}:{self._port}: {answer.get('error')}")
        return content

    def _once(self, way: _Way, header: Dict[str, Any], body: bytes) -> Tuple[Dict[str, Any], bytes]:
        # Where there is another way, a port that swallows packets is not waited for as long.
        timeout_s = CONNECT_TIMEOUT_S if len(self._ways) > 1 else REQUEST_TIMEOUT_S
        with socket.create_connection((self._host, way.port), timeout=timeout_s) as sock:
            sock.settimeout(REQUEST_TIMEOUT_S)
            if way.carried:
                sock.sendall(ASK)
                if _exactly(sock, len(OPEN)) != OPEN:
                    raise ValueError(f"port {way.port} does not lead to the meeting place")
            _send(sock, header, body)
            return _receive(sock)
