"""Whatever is given to explain: no crash, and no cause without a line that shows it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import List

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnosis.causes import CATALOGUE
from diagnosis.explain import LogError, explain
from diagnosis.explain_decide import Outcome
from diagnosis.explain_render import to_json, to_terminal

CASES = Path(__file__).resolve().parent / "explain_cases"
LINES: List[bytes] = sorted(
    {line for path in CASES.iterdir() if path.suffix != ".tsv" for line in path.read_bytes().splitlines()}
)
FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

colours = st.sampled_from([b"", b"\x1b[31m", b"\x1b[0m", b"\x1b[1;36m", b"\x1b]0;title\x07", b"\x1b["])
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
        text = text.decode("utf-8", "replace").encode("utf-16-le")
    return (
        draw(st.sampled_from([b"", b"[rank3]: ", b"2: ", b"node-1  | "]))
        + draw(junk) * draw(st.integers(0, 1))
        + text
    )


logs = st.lists(
    st.one_of(
        st.binary(max_size=400),
        st.builds(
            lambda lines, end: end.join(lines),
            st.lists(cut_lines(), max_size=12),
            st.sampled_from([b"\n", b"\r\n", b"\r", b"\\n"]),
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
        assert any(log.startswith(b"\x1f\x8b\x08") for log in data)
        return
    document = json.loads(to_json(answer))
    assert to_terminal(answer)
    for item in [*answer.causes, *answer.consequences, *answer.candidates]:
        assert item.id in CATALOGUE
        assert item.evidence
        for place in item.evidence:
            lines = data[int(place.file[3:])].split(b"\n")
            assert 1 <= place.line <= len(lines)
            # The text is the line's own: all its letters stand in it, in order.
            raw = lines[place.line - 1].replace(b"\0", b"").decode("utf-8", "replace")
            letters = iter(raw)
            assert all(char in letters for char in place.text if char.isascii() and char.isalnum())
    assert bool(answer.causes) == (answer.verdict is not Outcome.UNDETERMINED)
    assert not answer.candidates or answer.verdict is Outcome.UNDETERMINED
    assert (document["next_command"] is not None) == (answer.verdict is Outcome.UNDETERMINED)


@FUZZ
@given(logs)
def test_no_crash_and_no_cause_without_its_line(data: List[bytes]) -> None:
    """Random bytes, cut and interleaved lines, colours, mixed encodings."""
    check(data)


@FUZZ
@given(st.text(alphabet="abcdefgh 0123456789.:[]()/\n", max_size=2000))
def test_text_without_a_message_names_nothing(text: str) -> None:
    """Words that are no message give neither causes nor candidates."""
    answer = explain([("log", io.BytesIO(text.encode()))])
    assert (answer.verdict, answer.causes, answer.candidates) == (Outcome.UNDETERMINED, (), ())


@FUZZ
@given(st.sampled_from(LINES), st.integers(0, 70_000), st.binary(max_size=3))
def test_huge_lines(line: bytes, length: int, filler: bytes) -> None:
    """A message inside of a line that is longer than any buffer."""
    check([filler * length + b" " + line + filler * length])
