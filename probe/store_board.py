"""The store of torchrun's agent as a meeting place: it answers on MASTER_PORT before a worker starts.

Objects are keys of their own below one prefix, and one more key, to which names are appended, lists
them. torch's Python client prefixes its keys with "/", too, so nothing collides with a job's.
"""

from __future__ import annotations

import time
from typing import Callable, Tuple

from probe.board import BoardContentError, BoardError
from probe.torch_store import MAX_VALUE_BYTES, Conversation

_RETRY_S = 0.2
_Work = Callable[[Conversation], bytes]


class StoreBoard:
    """A client of a TCPStore that another process serves."""

    def __init__(self, host: str, port: int, run: str, member_id: str, patience_s: float = 0.0) -> None:
        """patience_s: how long a request is repeated while nothing answers."""
        self._host = host
        self._port = port
        self._prefix = f"/fullmesh/{run}/"
        self._member_id = member_id
        self._patience_s = patience_s

    def post(self, name: str, body: bytes) -> None:
        if len(body) > MAX_VALUE_BYTES:
            raise BoardContentError(f"{name} has {len(body)} bytes; torch's store takes {MAX_VALUE_BYTES}")
        full = f"{self._member_id}/{name}"

        def work(store: Conversation) -> bytes:
            store.set(self._prefix + full, body)
            store.append(self._prefix, f"{full}\n".encode())
            store.count()  # the store answers nothing to the two above
            return b""

        self._do(work)

    def names(self) -> Tuple[str, ...]:
        listed = self._do(lambda store: store.get(self._prefix) or b"")
        return tuple(sorted(set(listed.decode().split())))

    def read(self, name: str) -> bytes:
        def work(store: Conversation) -> bytes:
            body = store.get(self._prefix + name)
            if body is None:
                raise BoardContentError(f"no object {name[:200]!r}")
            return body

        return self._do(work)

    def where(self, name: str) -> str:
        return f"torch's store at {self._host}:{self._port}, key {self._prefix}{name}"

    def _do(self, work: _Work) -> bytes:
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                with Conversation(self._host, self._port) as store:
                    return work(store)
            except (OSError, ValueError) as error:
                if time.monotonic() >= give_up_at:
                    raise BoardError(
                        f"cannot use torchrun's store at {self._host}:{self._port} to meet: {error}; "
                        "check that this port is open to every member, or give --meet DIRECTORY"
                    ) from error
                time.sleep(_RETRY_S)
