"""What ranks say is taken down word for word, and a silent one is cut off and said to be."""

from __future__ import annotations

import sys

import pytest

from bench.ranks import Ranks
from bench.raw_torch import Patience, listen
from bench.record import BenchError

# As bench/torch_rank.py speaks, without torch: waits for the barrier, then ends its call as told.
FAILS = """\
import json, sys
sys.stdin.readline()
sys.stderr.write("[E1201 gloo] Connect timeout [none]\\nframe #0: c10::Error\\n")
print(json.dumps({"after_s": 0.5, "message": "RuntimeError: Connect timeout [none]"}), flush=True)
sys.stdin.read()
"""
FAILS_LATER = FAILS.replace("0.5", "0.7")
SILENT = "import sys; sys.stdin.read()"
ABORTS = "import sys; sys.stdin.readline(); sys.exit('what(): [enforce fail at pair.cc:456]')"
SUCCEEDS = FAILS.replace('"RuntimeError: Connect timeout [none]"', "None")
SAID = {"message": "RuntimeError: Connect timeout [none]", "log": ["[E1201 gloo] Connect timeout [none]"]}


def ranks(*sources: str) -> Ranks:
    return Ranks([[sys.executable, "-c", source] for source in sources])


def test_words_of_every_rank_are_kept_with_their_times() -> None:
    """The first error is the earliest of the ranks' own times; torch's log lines stay without the frames."""
    with ranks(FAILS_LATER, FAILS) as group:
        assert listen(group, 2, Patience(total_s=60)) == {
            "first_error_s": 0.5,
            "cut_off_after_s": None,
            "ranks": {"0": {"after_s": 0.7, **SAID}, "1": {"after_s": 0.5, **SAID}},
        }


def test_silent_rank_is_cut_off_after_the_first_error() -> None:
    """A rank that says nothing has no message, and its time is how long it was listened to."""
    with ranks(SILENT, FAILS) as group:
        heard = listen(group, 2, Patience(total_s=3600, after_first_s=0.1))
    silent = heard["ranks"]["0"]
    assert silent == {"after_s": heard["cut_off_after_s"], "message": None, "log": []}
    assert heard["ranks"]["1"] == {"after_s": 0.5, **SAID}
    assert heard["cut_off_after_s"] is not None


def test_nobody_said_anything_has_no_first_error() -> None:
    """Silence is not an error at zero seconds."""
    with ranks(SILENT) as group:
        heard = listen(group, 1, Patience(total_s=0.2))
    assert (heard["first_error_s"], heard["ranks"]["0"]["message"]) == (None, None)


def test_rank_that_aborts_is_quoted_from_its_last_words() -> None:
    """Gloo can end the process instead of raising; what it wrote is the message."""
    with ranks(ABORTS) as group:
        heard = listen(group, 1, Patience(total_s=60))
    assert heard["ranks"]["0"]["message"] == "(ended) what(): [enforce fail at pair.cc:456]"


def test_rank_that_succeeds_is_no_measurement_of_the_failure() -> None:
    """If the mesh forms, the wall does not stand, and no figure is kept."""
    with ranks(SUCCEEDS) as group, pytest.raises(BenchError, match="rank 0 formed its process group"):
        listen(group, 1, Patience(total_s=60))
