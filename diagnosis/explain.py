"""`fullmesh explain LOG...`: what saved or pasted logs show, and no more than that.

Text -> facts (`explain_read`, `signatures*`) -> claims (`explain_address`, `_members`,
`_rendezvous`, `_runtime`) -> answer (`explain_decide`) -> text or JSON (`explain_render`).
Nothing but this module is imported until a log is read, so that usage is told at once.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, BinaryIO, List, Sequence, Tuple

if TYPE_CHECKING:
    from diagnosis.explain_decide import Explanation

EXAMPLE = """\
fullmesh explain rank0.log rank1.log ...     all ranks' logs: the first cause, not its echoes
kubectl logs trainer-0 | fullmesh explain -  standard input
fullmesh explain --json job.log.gz           for programs; exit 0 no fault, 1 determined, 3 undetermined
"""
STANDARD_INPUT = "-"


class LogError(Exception):
    """A log cannot be opened or read to its end."""


def explain(logs: Sequence[Tuple[str, BinaryIO]]) -> Explanation:
    """Judge logs, each a name and a binary stream; memory does not grow with their length.

    Raises:
        LogError: a stream cannot be read to its end.
    """
    from diagnosis.explain_decide import decide  # noqa: PLC0415 - start-up time
    from diagnosis.explain_read import read_logs  # noqa: PLC0415

    return decide(read_logs(logs))


def explain_files(paths: Sequence[str]) -> Explanation:
    """Judge files by name; `-` is standard input.

    Raises:
        LogError: a file does not exist, is a directory or cannot be read to its end.
    """
    with contextlib.ExitStack() as stack:
        logs: List[Tuple[str, BinaryIO]] = []
        for path in paths:
            if path == STANDARD_INPUT:
                logs.append((path, sys.stdin.buffer))
                continue
            try:
                logs.append((path, stack.enter_context(open(path, "rb"))))
            except OSError as error:
                raise LogError(
                    f"{path} cannot be opened: {error.strerror}; a log is a readable file, or - for "
                    "standard input"
                ) from error
        return explain(logs)
