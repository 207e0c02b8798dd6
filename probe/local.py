"""`check --local N`: every rank on this machine, each a process of its own.

It proves what one machine can: its Python and torch, its ports, its own firewall, that Gloo
forms a mesh and adds up. Packets between ranks of one host never leave it, whatever address
they use, so nothing is said of a network; the answer says so itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import signal
import socket
import subprocess
import tempfile
from typing import IO, Iterator, List, Optional, Sequence, cast

from cluster.ports import PortRange
from cluster.serial import DecodeError, decode
from diagnosis.launchers import without_launchers
from diagnosis.report import Diagnosis, Verdict
from probe.check import Answer
from probe.local_rank import LocalTask, rank_command
from probe.members import address_family
from probe.place import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MASTER_PORT,
    DiscoverError,
    Wish,
    own_address,
    own_range,
)
from probe.ports_held import holder_of
from probe.rows import Say

LOOPBACK = "127.0.0.1"
# From torch's default on: below every usual ephemeral range, so that no outgoing connection takes it.
_MASTER_PORTS_TRIED = 100
_TAIL_BYTES = 2000


@contextlib.contextmanager
def check_local(count: int, wish: Wish, say: Say, *, collective: bool) -> Iterator[Answer]:
    """The verdict of `count` ranks on this machine.

    Raises:
        DiscoverError: the machine has no such address, or no port is left for torch's store.
    """
    address = wish.address or _address(say)
    master_port = wish.master_port or _free_master_port(address, say)
    slices = _slices(own_range(None), count)
    with tempfile.TemporaryDirectory(prefix="fullmesh-") as folder, contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                _Rank(
                    LocalTask(
                        rank=rank,
                        count=count,
                        address=address,
                        folder=folder,
                        master_port=master_port,
                        ephemeral_ports=slices[rank],
                        listens_on_master=wish.listens_on_master,
                        deadline_s=wish.deadline_s or DEFAULT_DEADLINE_S,
                        collective=collective,
                    )
                )
            )
            for rank in range(count)
        ]
        say(f"{count} ranks on {address}, store on port {master_port}")
        yield Answer(diagnosis=_first_answer(ranks, address))


def _address(say: Say) -> str:
    try:
        return own_address()
    except DiscoverError:
        say(f"this machine has no route to others; its ranks use {LOOPBACK}")
        return LOOPBACK


def _free_master_port(address: str, say: Say) -> int:
    """29500, or the next port that nobody holds: a job of this machine may be running."""
    wanted = range(DEFAULT_MASTER_PORT, DEFAULT_MASTER_PORT + _MASTER_PORTS_TRIED)
    for port in wanted:
        try:
            with socket.socket(address_family(address), socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((address, port))
                sock.listen()
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise DiscoverError(
                    f"--address {address}: {error.strerror}; give an address of this machine"
                ) from error
            holder = holder_of(port)
            say(f"port {port} is held{f' by {holder}' if holder else ''}; trying the next one")
    raise DiscoverError(
        f"no port from {wanted[0]} to {wanted[-1]} is free on {address}; name one with --master-port"
    )


def _slices(ports: PortRange, count: int) -> List[PortRange]:
    """The range cut into one piece a rank, so that no two of them try the same port."""
    width = max(1, len(ports) // count)
    firsts = [min(ports.first + rank * width, ports.last) for rank in range(count)]
    return [PortRange(first, min(first + width - 1, ports.last)) for first in firsts]


class _Rank:
    """One rank's process; a context manager that leaves nothing of it behind."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task

    def __enter__(self) -> _Rank:
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="fullmesh-")
        process = subprocess.Popen(
            rank_command(self.task),
            stdin=subprocess.PIPE,  # its end tells the rank that this process is gone
            stdout=subprocess.PIPE,
            stderr=None if self.task.rank == 0 else self._log,
            env={**without_launchers(os.environ), "TMPDIR": self.task.folder},
            start_new_session=True,  # one group with its collective's process, to be ended as one
        )
        self._process, self._output = process, cast(IO[bytes], process.stdout)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._log.close()

    def answer(self) -> Optional[Diagnosis]:
        """What this rank printed, once it ends; None where that is no verdict."""
        output = self._output.read()
        self._process.wait()
        try:
            return decode(Diagnosis, json.loads(output))
        except (ValueError, DecodeError):
            return None

    def ending(self) -> str:
        """How it ended without an answer."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _TAIL_BYTES))
        tail = self._log.read().decode(errors="replace").strip()
        status = self._process.returncode
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"node:{self.task.rank}: ended with {how}" + (f": {tail.splitlines()[-1]}" if tail else "")


def _first_answer(ranks: Sequence[_Rank], address: str) -> Diagnosis:
    """The verdict as the first rank that has one tells it, with what it does not speak of."""
    endings: List[str] = []
    for rank in ranks:
        diagnosis = rank.answer()
        if diagnosis is not None:
            words = (
                f"cluster: the network between hosts: all {len(ranks)} ranks ran on this host ({address}), "
                "where packets meet no network and no security group; for that run check on every node"
            )
            return dataclasses.replace(diagnosis, skipped=(*diagnosis.skipped, words))
        endings.append(rank.ending())
    return Diagnosis(verdict=Verdict.UNKNOWN, unanswered=tuple(endings))
