"""An explanation as JSON, as text for a terminal, and as an exit status."""

from __future__ import annotations

from typing import Any, Dict, List

from diagnosis.causes import CATALOGUE
from diagnosis.logs.decide import Explained, Explanation, Note, Outcome, Unread
from diagnosis.logs.facts import Place

_EXIT_CODES = {Outcome.NO_FAULT: 0, Outcome.DETERMINED: 1, Outcome.UNDETERMINED: 3}
_SHOWN_CHARACTERS = 160


def exit_code(verdict: Outcome) -> int:
    """0 no fault, 1 determined, 3 undetermined."""
    return _EXIT_CODES[verdict]


def to_json(explanation: Explanation) -> str:
    """The whole answer; ids and data are stable, prose is not."""
    document: Dict[str, Any] = _plain(explanation)
    first = {"schema_version": document.pop("schema_version")}
    import json  # noqa: PLC0415 - start-up time

    return json.dumps({**first, **document}, indent=2)


def _plain(value: Any) -> Any:
    """Named tuples become objects, other tuples lists."""
    if isinstance(value, (Explanation, Explained, Note, Unread, Place)):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Outcome) else value


def to_terminal(explanation: Explanation) -> str:
    """For a person: verdict, causes with their lines and remedies, then what follows from them."""
    from diagnosis.prose import plain, shell_lines, wrapped  # noqa: PLC0415 - start-up time: JSON needs none

    blocks = ["\n".join(wrapped(_headline(explanation), hanging=2))]
    blocks += [_block(item) for item in explanation.causes]
    if explanation.consequences:
        ids = ", ".join(dict.fromkeys(item.id for item in explanation.consequences))
        blocks.append("\n".join(wrapped(f"What follows from it, or stands beside it: {ids}.")))
    if explanation.candidates:
        blocks.append(_candidates(explanation))
    for note in explanation.notes:
        at = [f"{plain(place.file)}:{place.line}: " for place in note.evidence[:1]]
        blocks.append("\n".join(wrapped(f"{''.join(at)}{note.summary}.")))
    for unread in explanation.unread:
        blocks.append("\n".join(wrapped(f"Not read: {unread.file} {unread.reason}.")))
    if explanation.next_command is not None:
        blocks.append("What would decide:\n" + "\n".join(shell_lines(explanation.next_command, indent=4)))
    return "\n\n".join(blocks) + "\n"


def _headline(explanation: Explanation) -> str:
    read = f"{explanation.lines} line{'' if explanation.lines == 1 else 's'} read"
    if explanation.verdict is Outcome.DETERMINED:
        return f"{explanation.causes[0].id}: {CATALOGUE[explanation.causes[0].id].title}  ({read})"
    if explanation.verdict is Outcome.NO_FAULT:
        return f"no fault  ({read})"
    if explanation.candidates:
        return f"undetermined: these lines fit several causes  ({read})"
    return f"undetermined: nothing in these lines is known to be a cause  ({read})"


def _evidence(item: Explained) -> List[str]:
    from diagnosis.prose import plain, wrapped  # noqa: PLC0415 - as above

    lines = []
    for place in item.evidence:
        text = plain(place.text)
        text = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
        lines += wrapped(f"{plain(place.file)}:{place.line}: {text}", indent=4, hanging=4)
    return lines


def _block(item: Explained) -> str:
    from diagnosis.prose import shell_lines, wrapped  # noqa: PLC0415 - as above

    lines = [f"{item.id} at {item.subject}", *wrapped(item.summary, indent=2), *_evidence(item)]
    if item.commands or item.remediation:
        lines += wrapped(item.remediation, indent=2)
    for command in item.commands:
        lines += shell_lines(command, indent=4)
    return "\n".join(lines)


def _candidates(explanation: Explanation) -> str:
    from diagnosis.prose import beside, wrapped  # noqa: PLC0415 - as above

    lines = []
    summary = ""
    for number, item in enumerate(explanation.candidates, 1):
        if item.summary != summary:
            summary = item.summary
            lines += [*wrapped(summary, indent=2), *_evidence(item)]
        lines += beside(f"  {number}. {item.id}", CATALOGUE[item.id].title, 32)
    return "\n".join(lines)
