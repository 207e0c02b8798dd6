"""Processes inside nodes that speak lines of JSON: started together, told together, ended together."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.record import BenchError

END_TIMEOUT_S = 10.0  # a rank ends when its input closes; torch may be blocked in a call and is then killed


class Ranks:
    """One process per rank; a context manager that ends what it started.

    The order of `commands` is the order of ranks. Standard error goes to a file each, so that
    what a library logs can be quoted (`log`).
    """

    def __init__(self, commands: Sequence[Sequence[str]], environment: dict[str, str] | None = None) -> None:
        self._commands = commands
        self._environment = environment
        self._received: queue.SimpleQueue[tuple[int, dict[str, Any] | str | None]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Ranks:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            self._logs = [folder / f"{rank}.log" for rank in range(len(self._commands))]
            stack.callback(self._end)
            for rank, command in enumerate(self._commands):
                self._start(rank, command)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def tell(self, document: Any) -> None:
        """Send one line to every rank: the start barrier. A rank that has ended is found by `receive`."""
        line = json.dumps(document) + "\n"
        for process in self._processes:
            try:
                assert process.stdin is not None
                process.stdin.write(line)
                process.stdin.flush()
            except BrokenPipeError:
                continue

    def receive(self, timeout_s: float) -> tuple[int, Any] | None:
        """The next (rank, document) of any rank; (rank, None) = it ended; None = nothing in time."""
        try:
            return self._received.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def gather(self, timeout_s: float, what: str) -> list[Any]:
        """One document of every rank, in order.

        Raises:
            BenchError: a rank ended or did not answer; its last lines are in the text.
        """
        found: dict[int, Any] = {}
        deadline = time.monotonic() + timeout_s
        while len(found) < len(self._commands):
            answer = self.receive(deadline - time.monotonic())
            if answer is None:
                missing = [rank for rank in range(len(self._commands)) if rank not in found]
                raise BenchError(
                    f"no {what} from ranks {missing} within {timeout_s:.0f} s: {self.log(missing[0])}"
                )
            rank, document = answer
            if document is None:
                raise BenchError(f"rank {rank} ended before its {what}: {self.log(rank)}")
            found[rank] = document
        return [found[rank] for rank in range(len(self._commands))]

    def log(self, rank: int) -> str:
        """What the rank wrote to standard error so far, whole."""
        return self._logs[rank].read_text(encoding="utf-8", errors="replace").strip()

    def _start(self, rank: int, command: Sequence[str]) -> None:
        with self._logs[rank].open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                text=True,
                encoding="utf-8",
            )
        self._processes.append(process)
        threading.Thread(target=self._read, args=(rank, process), name=f"rank-{rank}", daemon=True).start()

    def _read(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                self._received.put((rank, json.loads(line)))
            except ValueError:  # not ours: keep it where the rank's other words are
                with self._logs[rank].open("a", encoding="utf-8") as log:
                    log.write(line)
        self._received.put((rank, None))

    def _end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.close()
            except BrokenPipeError:
                continue
        deadline = time.monotonic() + END_TIMEOUT_S
        for process in self._processes:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
