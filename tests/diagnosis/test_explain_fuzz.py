"""Whatever is given to explain: no crash, and no cause without a line that shows it."""

from __future__ import annotations

import io
import itertools
import json
import random
import re
import tracemalloc
from pathlib import Path
from typing import Dict, List

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from diagnosis.causes import CATALOGUE
from diagnosis.explain import LogError, explain
from diagnosis.logs.decide import Explanation, Outcome
from diagnosis.logs.show import to_json, to_terminal

HERE = Path(__file__).resolve().parent
SOURCES = [
    *(HERE / "explain_cases").iterdir(),
    *(HERE / "explain_texts").iterdir(),
    HERE / "explain_messages.tsv",
]
LINES: List[bytes] = sorted(
    {line.split(b"\t")[0] for path in SOURCES for line in path.read_bytes().splitlines() if line.strip()}
)
PACKED = (b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")
ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

colours = st.sampled_from([b"", b"\x1b[31m", b"\x1b[0m", b"\x1b[1;36m", b"\x1b]0;title\x07", b"\x1b["])
prefixes = st.sampled_from(
    [
        *(b"", b"[rank3]: ", b"2: ", b"node-1  | ", b"(Worker pid=7, ip=10.0.0.4) ", b"[1,4]<stderr>:"),
        *(b"2026-01-01T10:00:00.123456789Z ", b"[default2]:[rank2]:", b"&gt; ", b'{"log":"', b"worker-2: "),
        *(b"Jan 02 03:04:05 node-a python[7]: ", b'1767225600123,"', b"[2026-01-30 18:11:27 TP1] "),
    ]
)
junk = st.binary(max_size=60)


@st.composite
def cut_lines(draw: st.DrawFn) -> bytes:
    """A real line, cut at both ends, with junk and colours around and inside, perhaps in another encoding."""
    line = draw(st.sampled_from(LINES))
    begin = draw(st.integers(0, max(0, len(line) - 1)))
    end = draw(st.integers(begin, len(line)))
    middle = draw(st.integers(begin, end))
    whole = draw(st.booleans())
    text = line if whole else line[begin:middle] + draw(colours) + line[middle:end]
    if draw(st.integers(0, 7)) == 0:
        text = text.decode("utf-8", "replace").encode(
            draw(st.sampled_from(["utf-16-le", "utf-16", "utf-16-be"]))
        )
    if draw(st.integers(0, 7)) == 0:
        width = draw(st.sampled_from([60, 80, 100]))
        text = b"\n".join(text[at : at + width] for at in range(0, len(text), width))
    return draw(prefixes) + draw(junk) * draw(st.integers(0, 1)) + text


def joined(lines: List[bytes], end: bytes) -> bytes:
    return end.join(lines)


logs = st.lists(
    st.one_of(
        st.binary(max_size=400),
        st.builds(
            joined, st.lists(cut_lines(), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r", b"\\n"])
        ),
    ),
    min_size=1,
    max_size=3,
)


def check(data: List[bytes]) -> None:
    try:
        answer = explain([(f"log{place}", io.BytesIO(log)) for place, log in enumerate(data)])
    except LogError:
        # What looks like an archive and is broken was not read to its end: no answer.
        assert all(log.startswith(PACKED) for log in data)
        return
    sound(answer, {f"log{place}": log for place, log in enumerate(data)})


def sound(answer: Explanation, data: Dict[str, bytes]) -> None:
    document = json.loads(to_json(answer))
    assert to_terminal(answer)
    for item in [*answer.causes, *answer.consequences, *answer.candidates]:
        assert item.id in CATALOGUE
        assert item.evidence
    told = [item.evidence for item in [*answer.causes, *answer.consequences, *answer.candidates]]
    for place in itertools.chain(*told, *(note.evidence for note in answer.notes)):
        # The text stands in that line of that log, as a reader sees it who knows no colours.
        line = data[place.file].split(b"\n")[place.line - 1].replace(b"\0", b"")
        assert place.text in ANSI.sub(b"", line).decode("utf-8", "replace")
        assert place.text
    assert bool(answer.causes) == (answer.verdict is not Outcome.UNDETERMINED)
    assert not answer.candidates or answer.verdict is Outcome.UNDETERMINED
    assert (document["next_command"] is not None) == (answer.verdict is Outcome.UNDETERMINED)


@FUZZ
@given(logs)
def test_no_crash_and_no_cause_without_its_line(data: List[bytes]) -> None:
    """Random bytes, cut, wrapped and mixed lines, colours, any encoding, every collector's prefix."""
    check(data)


@FUZZ
@given(st.text(alphabet="abcdefgh 0123456789.:[]()/\n", max_size=2000))
def test_text_without_a_message_names_nothing(text: str) -> None:
    """Words that are no message give neither causes nor candidates."""
    answer = explain([("log", io.BytesIO(text.encode()))])
    assert (answer.verdict, answer.causes, answer.candidates) == (Outcome.UNDETERMINED, (), ())


@FUZZ
@example(b"step 1/9 (0.00%) | loss: 11.09", 399, b"\t")  # blanks that fill the excerpt
@given(st.sampled_from(LINES), st.integers(0, 70_000), st.binary(max_size=3))
def test_huge_lines(line: bytes, length: int, filler: bytes) -> None:
    """A message inside of a line that is longer than any buffer."""
    check([filler * length + b" " + line + filler * length])


@FUZZ
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter_to_soundness(lines: List[bytes], random: random.Random) -> None:
    """Lines of one job, dealt out to several hosts' logs in any way: an answer that its lines show."""
    hosts: List[List[bytes]] = [[], [], []]
    for line in lines:
        hosts[random.randrange(3)].append(b"[rank%d]: %s" % (random.randrange(4), line))
    check([b"\n".join(host) for host in hosts])


@pytest.mark.parametrize("unit", [b"x", b"ab ", b'{"error": "connect"},', b"\xff\xfe\0"])
def test_a_line_of_fifty_megabytes(unit: bytes) -> None:
    """Found in the middle of one line without an end, in memory that the line's length does not change."""

    class Line(io.RawIOBase):
        """The unit over and over, the message once, and no line break."""

        def __init__(self, size: int) -> None:
            self._left = size
            self._message = b" RuntimeError: socket: Too many open files "

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview[int]) -> int:  # type: ignore[override]
            if self._left <= 0:
                return 0
            data = unit * (min(len(buffer), 65536) // len(unit))
            if self._message and self._left < 25_000_000:
                data, self._message = self._message + data[:1000], b""
            self._left -= len(data)
            buffer[: len(data)] = data
            return len(data)

    tracemalloc.start()
    answer = explain([("log", io.BufferedReader(Line(50_000_000), 1 << 16))])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(item.id, item.evidence[0].line) for item in answer.causes] == [("fd-limit", 1)]
    assert peak < 60_000_000
