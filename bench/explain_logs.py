"""Logs of any size for `bench.explain`: an ordinary one, and those that cost a reader most.

Each kind is a piece of some megabytes, repeated, and ends with the one line that names a cause: an
answer that does not name it did not read the log.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

PIECE_BYTES = 10_000_000
LAST_LINE = (
    b"[rank7]: RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84]"
    b" ifa != nullptr. Unable to find address for: ens9\n"
)
LAST_CAUSE = "ifname-missing"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def job(chance: random.Random) -> Iterator[str]:
    """64 ranks that train, with NCCL's lines, a retry that is nothing, and now and then a stack."""
    for step in itertools.count(1):
        second = chance.randrange(86_400)
        stamp = (
            f"2026-03-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02},{chance.randrange(999)}"
        )
        for rank in chance.sample(range(64), 8):
            node, loss = rank // 8, chance.random() * 3
            yield f"[rank{rank}]: {stamp} INFO trainer.py:212 step {step} loss {loss:.3f} lr 3e-04 9001 tok/s"
            yield (
                f"node-{node}: ip-10-0-{node}-{rank}:{4000 + rank}:{5000 + rank} [{rank % 8}] NCCL INFO"
                f" Channel {step % 32:02}/0 : {rank} -> {(rank + 1) % 64} [send] via NET/Socket/0"
            )
        yield f"[rank0]: {stamp} DEBUG data.py:88 prefetch queue {chance.randrange(64)} of 64"
        if step % 50 == 0:
            yield (
                f"[W{step % 1000:03} socket.cpp:464] [c10d] The server socket cannot be initialized on"
                f" [::]:{29500 + step % 100} (errno: 97 - Address family not supported by protocol)."
            )
        if step % 400 == 0:
            for depth in range(40):
                yield (
                    f"frame #{depth}: c10d::ProcessGroup::work({depth}) + 0x{chance.getrandbits(20):x}"
                    f" (0x{chance.getrandbits(48):x} in /opt/torch/lib/libtorch_cpu.so)"
                )


def matching(chance: random.Random) -> Iterator[str]:
    """Every line is a message of Gloo's, each from a host of another name: nothing can be skipped unread."""
    while True:
        host, rank = "".join(chance.choices(_LETTERS, k=8)), chance.randrange(4096)
        yield (
            f"{host}: [rank{rank}]: RuntimeError: Gloo connectFullMesh failed with"
            " [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] timed out connecting: SO_ERROR:"
            f" Connection timed out, remote=[10.{rank % 256}.{rank // 256}.7]:{chance.randrange(65536)}"
        )


def words(chance: random.Random) -> Iterator[str]:
    """No line is like another, and none says anything."""
    known = ["".join(chance.choices(_LETTERS, k=chance.randint(2, 9))) for _ in range(60_000)]
    while True:
        yield " ".join(chance.choices(known, k=11))


def addresses(chance: random.Random) -> Iterator[str]:
    """Lines that differ in their numbers alone, with the words that messages are made of."""
    while True:
        yield (
            f"DEBUG conn 0x{chance.getrandbits(64):x} error_code={chance.getrandbits(30)} connect timed ok"
            f" req={chance.getrandbits(100):x}"
        )


def long_lines(chance: random.Random) -> Iterator[str]:
    """Lines of three megabytes, as of a job that prints its tensors, or of a progress bar."""
    while True:
        yield " ".join(f"{chance.random():.6f}, step {chance.randrange(9999)} it/s" for _ in range(120_000))


KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "a job of 64 ranks": job,
    "every line a message": matching,
    "no line like another": words,
    "numbers alone differ": addresses,
    "lines of megabytes": long_lines,
}


def piece(kind: str) -> bytes:
    """Whole lines of about PIECE_BYTES; the same each time."""
    lines, size = [], 0
    for line in KINDS[kind](random.Random(7)):  # noqa: S311 - nothing is hidden by it
        lines.append(line)
        size += len(line) + 1
        if size >= PIECE_BYTES:
            break
    return ("\n".join(lines) + "\n").encode()


def write(path: Path, kind: str, size: int) -> None:
    """A log of at least `size` bytes, and less than a piece more."""
    part = piece(kind)
    with path.open("wb") as log:
        for _ in range(-(-size // len(part))):
            log.write(part)
        log.write(LAST_LINE)
