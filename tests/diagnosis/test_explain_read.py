"""Reading logs: prefixes, encodings, packing, length; what is skipped is skipped for a reason."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from typing import BinaryIO, Optional

import pytest

from diagnosis.explain import LogError, explain
from diagnosis.logs.facts import Book
from diagnosis.logs.files import read_streams
from diagnosis.logs.head import node_of, rank_of, time_of
from diagnosis.logs.kinds import Kind
from diagnosis.logs.read import CHUNK_BYTES

MESSAGE = "RuntimeError: ifa != nullptr. Unable to find address for: ib0"


def book(data: bytes) -> Book:
    found = Book()
    read_streams(found, [("log", io.BytesIO(data))])
    return found


@pytest.mark.parametrize(
    "data",
    [
        MESSAGE.encode(),
        MESSAGE.encode("utf-16"),
        MESSAGE.encode("utf-16-be"),
        b"\xe9\xff" + MESSAGE.encode(),
        gzip.compress(MESSAGE.encode()),
        f"\x1b[36m(Worker pid=1)\x1b[0m Runtime\x1b[1mError{MESSAGE[12:]}\x1b[0m".encode(),
        f'{{"message": "Traceback:\\n  File \\"x\\"\\n{MESSAGE}\\n"}}'.encode(),
        f"50%|###  |\r60%|### |\r{MESSAGE}\r\n".encode(),
        b"x" * 3_000_000 + b" " + MESSAGE.encode() + b" " + b"y" * 3_000_000,
        b"a" * (CHUNK_BYTES - 30) + b"\n" + MESSAGE.encode() + b"\n",
    ],
    ids=[
        "plain",
        "utf16",
        "utf16be",
        "latin1",
        "gzip",
        "colours",
        "json",
        "progress bar",
        "huge",
        "chunk end",
    ],
)
def test_a_message_is_found_however_it_is_stored(data: bytes) -> None:
    """Encodings, colours, packing, escapes and lines of megabytes do not hide a message."""
    facts = book(data).all(Kind.INTERFACE)
    assert facts[0].get("name").split()[0] == "ib0"
    assert len(facts[0].place.text) <= 400


@pytest.mark.parametrize("cut", range(-40, 41, 8))
def test_a_line_over_a_chunk_border_is_whole(cut: int) -> None:
    """A message that begins in one chunk and ends in the next is one message, at its line."""
    filler = b"quiet line\n" * (CHUNK_BYTES // 11 - 8)
    filler += b"z" * (CHUNK_BYTES - len(filler) - 1 + cut) + b"\n"
    facts = book(filler + MESSAGE.encode() + b"\n").all(Kind.INTERFACE)
    assert [fact.place.line for fact in facts] == [filler.count(b"\n") + 1]


@pytest.mark.parametrize("end", ["}, {", "},{", "\\n", "\r"], ids=["spaced", "close", "escaped", "return"])
def test_an_endless_line_is_read_part_by_part(end: str) -> None:
    """Events or screens that share a line keep their own ranks and times, and none is passed over."""
    parts = [f'"timestamp": {1767225600000 + n}, "message": "[rank{n}]: step {n}"' for n in range(20_000)]
    for rank in range(1, 20_000, 2000):
        parts[rank] = f'"timestamp": {1767225600000 + rank}, "message": "[rank{rank}]: {MESSAGE[:-1]}{rank}"'
    facts = book(b"x\n" + f'{{"events": [{{{end.join(parts)}}}]}}'.encode()).all(Kind.INTERFACE)
    assert [(fact.rank, fact.get("name").strip(), fact.place.line) for fact in facts] == [
        (rank, f"ib{rank}", 2) for rank in range(1, 20_000, 2000)
    ]
    if "}" in end:
        times = [fact.at or 0 for fact in facts]
        assert times[1] - times[0] == pytest.approx(2.0)


def test_lines_are_counted() -> None:
    """With and without a line break at the end, and in none."""
    assert [book(data).lines for data in (b"", b"a\n", b"a\nb", b"a\nb\n")] == [0, 1, 2, 2]


def test_memory_does_not_grow_with_the_log() -> None:
    """Forty times the log, the same memory: every line differs, and each is a message."""

    def peak(lines: int) -> int:
        line = (
            b"[W] The client socket has failed to connect to [n%d-%s]:1 (errno: 111 - Connection refused).\n"
        )

        class Endless(io.RawIOBase):
            left = lines

            def readable(self) -> bool:
                return True

            def readinto(self, buffer: memoryview[int]) -> int:  # type: ignore[override]
                count = min(self.left, len(buffer) // 140)
                self.left -= count
                letters = b"abcdefghij"
                data = b"".join(
                    line % (n, bytes(letters[int(c)] for c in str(n + self.left))) for n in range(count)
                )
                buffer[: len(data)] = data
                return len(data)

        tracemalloc.start()
        read_streams(Book(), [("log", io.BufferedReader(Endless(), CHUNK_BYTES))])
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(60_000) < peak(30_000) + 4_000_000


def test_a_broken_archive_is_an_error_and_not_an_answer() -> None:
    """Half of a gzip file was not looked at whole."""
    packed = gzip.compress(MESSAGE.encode() * 100)
    with pytest.raises(LogError, match="cannot be read to its end"):
        explain([("log", io.BytesIO(packed[: len(packed) // 2]))])


def test_a_failing_stream_is_an_error() -> None:
    """A disk error is told with the log's name."""

    class Failing(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise OSError(5, "Input/output error")

    stream: BinaryIO = io.BufferedReader(Failing())
    with pytest.raises(LogError, match=r"disk\.log"):
        explain([("disk.log", stream)])


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank8] Warning: x", 8),
        ("[rank0]:[W902 16:27:57.2 socket.cpp:494] x", 0),
        ("3: RuntimeError: x", 3),
        ("[1,5]<stderr>: x", 5),
        ("r2| x", 2),
        ("ERROR failed to connect, rank=7, size=8, local=x", 7),
        ("[Rank 0]: Rank 1 failed to pass monitoredBarrier", 0),
        ("initializing ddp: GLOBAL_RANK: 4, MEMBER: 5/8", 4),
        ("RuntimeError: the rank 3 is lost", None),
    ],
)
def test_the_rank_that_speaks(line: str, rank: Optional[int]) -> None:
    """Prefixes of torch, srun -l and mpirun; a rank that is merely talked about does not count."""
    assert rank_of(line) == rank


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("(Worker pid=22513, ip=10.0.0.4) x", "10.0.0.4"),
        ("worker-1: x", "worker-1"),
        ("trainer-0  | x", "trainer-0"),
        ("[pod/trainer-0/main] x", "trainer-0"),
        ("Dec  1 02:03:04 node-a python3[5]: x", "node-a"),
        ("RuntimeError: x", None),
    ],
)
def test_the_host_that_speaks(line: str, node: Optional[str]) -> None:
    """Prefixes of Ray, pdsh, docker compose, kubectl and syslog."""
    assert node_of(line) == node


def test_times_of_all_prefixes_compare() -> None:
    """c10d's, Python's and vLLM's forms of one moment are the same moment."""
    moment = time_of("2024-05-01 12:00:01,000 INFO x")
    assert moment is not None
    assert [time_of("[W501 12:00:01.000 a.cpp:1]"), time_of("ERROR 05-01 12:00:01 [a.py:1]")] == [moment] * 2
    assert time_of("no time 12:00") is None


def test_a_rank_summary_belongs_to_its_exit() -> None:
    """torchrun's block of several lines is one fact: who, where, when, with what status."""
    facts = book(
        b"Root Cause (first observed failure):\n[0]:\n  time      : 2024-05-01_12:00:01\n"
        b"  host      : node-a\n  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 335)\n"
    ).all(Kind.EXIT)
    assert [(fact.rank, fact.node, fact.get("code")) for fact in facts] == [(3, "node-a", "-9")]
    assert facts[0].at == time_of("2024-05-01 12:00:01")


def test_repeated_lines_are_remembered_once() -> None:
    """A message that a rank repeats is one fact; ranks that differ are facts of their own."""
    line = b"[rank%d]: The client socket has timed out after 9s while trying to connect to (a, 1)\n"
    facts = book(b"".join(line % rank for rank in (0, 0, 0, 1))).all(Kind.STORE_TIMEOUT)
    assert [fact.rank for fact in facts] == [0, 1]
