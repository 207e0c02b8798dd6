"""`fullmesh explain LOG...`: what saved or pasted logs show, and no more than that.

Streams (`explain_open`) -> lines that may say something (`explain_scan`) -> facts (`explain_read`,
`explain_head`, the rows in `signatures_*`) -> claims (`explain_meanings`, and the rules in `explain_address`
and the modules beside it) -> answer (`explain_decide`) -> text or JSON (`explain_render`).
Nothing but this module is imported until a log is read, so that usage is told at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Sequence, Tuple

if TYPE_CHECKING:
    from diagnosis.logs.decide import Explanation
    from diagnosis.logs.facts import Book

EXAMPLE = """\
fullmesh explain rank0.log rank1.log ...     all ranks' logs: the first cause, not its echoes
kubectl logs trainer-0 | fullmesh explain -  standard input
fullmesh explain --json job.log.gz           for programs; exit 0 no fault, 1 determined, 3 undetermined
"""


class LogError(Exception):
    """No log could be read."""


def explain(logs: Sequence[Tuple[str, BinaryIO]]) -> Explanation:
    """Judge logs, each a name and a binary stream; memory does not grow with their length.

    Raises:
        LogError: none of the streams can be read.
    """
    from diagnosis.logs.decide import decide  # noqa: PLC0415 - start-up time
    from diagnosis.logs.facts import Book  # noqa: PLC0415
    from diagnosis.logs.files import read_streams  # noqa: PLC0415

    book = Book()
    read_streams(book, logs)
    return decide(_looked_at(book))


def explain_files(paths: Sequence[str]) -> Explanation:
    """Judge files by name; `-` is standard input, a folder stands for every file below it.

    What cannot be read is listed in the answer's `unread`, and the others are judged.

    Raises:
        LogError: none of the files can be read.
    """
    from diagnosis.logs.decide import decide  # noqa: PLC0415 - start-up time
    from diagnosis.logs.facts import Book  # noqa: PLC0415
    from diagnosis.logs.files import read_paths  # noqa: PLC0415

    book = Book()
    read_paths(book, paths)
    return decide(_looked_at(book))


def _looked_at(book: Book) -> Book:
    if book.unread and len(book.unread) == len(book.files):
        raise LogError("; ".join(f"{name} {reason}" for name, reason in book.unread))
    return book
