"""Processes that speak lines of JSON: gathered in order, ended together, quoted when they fail."""

from __future__ import annotations

import os
import sys

import pytest

from bench.ranks import Ranks
from bench.record import BenchError

# Says its number, waits for a line, says what it heard, and stays until its input closes.
POLITE = """\
import json, sys
print(json.dumps(int(sys.argv[1])), flush=True)
print(json.dumps(sys.stdin.readline()), flush=True)
sys.stdin.read()
"""
CRASHES = "import sys; sys.exit('no such interface')"
SILENT = "import sys; print('still importing', file=sys.stderr); print(1, flush=True); sys.stdin.read()"
CHATTY = "import sys; print('a line of a library'); print(7, flush=True); sys.stdin.read()"


def command(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", source, *arguments]


def test_answers_come_in_the_order_of_ranks_and_everyone_hears_the_barrier() -> None:
    """gather waits for one document of each; tell reaches each; the place in the list is the rank."""
    with Ranks([command(POLITE, "10"), command(POLITE, "11")]) as ranks:
        assert ranks.gather(30, "number") == [10, 11]
        ranks.tell({"go": 1})
        assert ranks.gather(30, "echo") == ['{"go": 1}\n', '{"go": 1}\n']


def test_ranks_end_with_the_context() -> None:
    """Nothing is left running, not even a rank that would wait for ever."""
    with Ranks([command("import os,sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n")]) as ranks:
        (pid,) = ranks.gather(30, "pid")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_rank_that_does_not_end_by_itself_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch blocks in a call that hears nothing of a closed input; the benchmark ends all the same."""
    monkeypatch.setattr("bench.ranks.END_TIMEOUT_S", 0.2)
    stuck = "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"
    with Ranks([command(stuck)]) as ranks:
        (pid,) = ranks.gather(30, "pid")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_rank_that_ends_is_quoted() -> None:
    """A crash is told with the rank's own last words, not as a time-out."""
    with (
        Ranks([command(POLITE, "0"), command(CRASHES)]) as ranks,
        pytest.raises(BenchError, match="rank 1 ended before its number: no such interface"),
    ):
        ranks.gather(30, "number")


def test_rank_that_does_not_answer_is_named() -> None:
    """Who is missing, of what, after how long, and what it said."""
    with Ranks([command(SILENT)]) as ranks:
        assert ranks.gather(30, "number") == [1]
        with pytest.raises(BenchError, match=r"no row from ranks \[0\] within 0 s: still importing"):
            ranks.gather(0.2, "row")


def test_lines_that_are_not_json_are_kept_as_words() -> None:
    """What a library prints on standard output is no answer, and is not lost."""
    with Ranks([command(CHATTY)]) as ranks:
        assert ranks.gather(30, "number") == [7]
        assert ranks.log(0) == "a line of a library"


def test_environment_is_the_one_given() -> None:
    """Ranks see the given variables and nothing of this process's own."""
    source = "import json,os,sys\nprint(json.dumps(dict(os.environ)), flush=True)\nsys.stdin.read()\n"
    with Ranks([command(source)], environment={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}) as ranks:
        (seen,) = ranks.gather(30, "environment")
    assert {key: seen[key] for key in sorted(seen) if key != "LC_CTYPE"} == {
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
    }
