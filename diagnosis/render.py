"""Diagnosis -> the signal's reason, exit status, JSON and the terminal.

HTML is in `render_page`, the catalogue's own texts in `render_causes`; both
are reached from here.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence

from cluster.serial import encode
from diagnosis.prose import WIDTH, ascii_line, plain, shell_lines, wrapped
from diagnosis.render_causes import cause_document, cause_text, causes_text
from diagnosis.render_page import html_page, html_report
from diagnosis.report import Diagnosis, Finding, PairVerdict, Verdict
from diagnosis.words import (
    LETTERS,
    MATRIX_UP_TO_NODES,
    UNTRIED,
    WORKS,
    figures,
    headline,
    pair_letter,
)

__all__ = [
    "MAX_REASON_CHARACTERS",
    "cause_document",
    "cause_text",
    "causes_text",
    "document",
    "exit_code",
    "html_page",
    "html_report",
    "signal_reason",
    "to_json",
    "to_terminal",
]

# What the product promises; CloudFormation takes more, the terminal's table does not.
MAX_REASON_CHARACTERS = 400
# Below this much room for the cause, the command would tell more than what it mends.
_LEAST_SUMMARY_CHARACTERS = 60

_EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3, Verdict.SKIPPED: 3}
# Lines of a list in the terminal before "and N more"; JSON has all.
_LISTED_AT_MOST = 12
_EVIDENCE_AT_MOST = 6


def exit_code(verdict: Verdict) -> int:
    """0 PASS, 1 FAIL, 3 UNKNOWN; what was skipped was not looked at."""
    return _EXIT_CODES[verdict]


def signal_reason(diagnosis: Diagnosis, evidence: str = "") -> str:
    """`id: summary: run COMMAND; see EVIDENCE` in at most 400 ASCII characters.

    Cause and command stay whole where they can: the pointer goes first (the stack's outputs name
    the bucket, too). What is too long even so is cut in the summary, last in the command.
    """
    first = next(iter(diagnosis.causes), None)
    if first is not None:
        head, summary = f"{first.id}: ", first.summary
        others = [item.id for item in diagnosis.causes[1:] if item.id != first.id]
        if others:
            summary += f" (also {', '.join(dict.fromkeys(others))})"
        command = _mending_command(first)
    elif diagnosis.candidates:
        names = " or ".join(dict.fromkeys(item.id for item in diagnosis.candidates))
        head, summary = "undetermined: ", f"{diagnosis.candidates[0].summary} ({names})"
        command = diagnosis.next_command or ""
    else:
        head, summary = f"{diagnosis.verdict.value}: ", _open_words(diagnosis)
        command = diagnosis.next_command or ""
    tail = f": run {ascii_line(command)}" if command else ""
    pointer = f"; {ascii_line(evidence)}" if evidence else ""
    head, summary = ascii_line(head) + " ", ascii_line(summary)
    for end in (tail + pointer.replace("; ", "; see ", 1), tail + pointer, tail):
        if len(head) + len(summary) + len(end) <= MAX_REASON_CHARACTERS:
            return head + summary + end
    needed = min(len(summary), _LEAST_SUMMARY_CHARACTERS)
    for end in (tail + pointer, tail, pointer, ""):
        room = MAX_REASON_CHARACTERS - len(head) - len(end)
        if room >= needed:
            return head + _cut(summary, room) + end
    return _cut(head + summary, MAX_REASON_CHARACTERS)


def _mending_command(found: Finding) -> str:
    """The command that mends: the first that is complete (a look-up only where none is)."""
    looks = ("aws ec2 describe-", "sudo nft list", "ip -br", "sudo iptables-save", "getent ")
    mending = [item for item in found.commands if not item.startswith(looks)]
    return next(iter(mending or found.commands), "")


def _open_words(diagnosis: Diagnosis) -> str:
    if diagnosis.exposed:
        return f"others can reach the members: {diagnosis.exposed[0]}"
    if diagnosis.unanswered:
        more = len(diagnosis.unanswered) - 1
        return diagnosis.unanswered[0] + (f" and {more} more open questions" if more else "")
    return headline(diagnosis)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 3)].rstrip() + "..."


# --- JSON ----------------------------------------------------------------------------------------


def document(diagnosis: Diagnosis) -> Dict[str, Any]:
    """The public JSON document: ids and data are stable, prose is not."""
    return {
        "schema_version": diagnosis.schema_version,
        "verdict": diagnosis.verdict.value,
        "causes": [_finding(item) for item in diagnosis.causes],
        "consequences": [_finding(item) for item in diagnosis.consequences],
        "candidates": [_finding(item) for item in diagnosis.candidates],
        "next_command": diagnosis.next_command,
        "unanswered": list(diagnosis.unanswered),
        "skipped": list(diagnosis.skipped),
        "differences": list(diagnosis.differences),
        "exposed": list(diagnosis.exposed),
        "nodes": [encode(node) for node in diagnosis.nodes],
        "pairs": [
            {
                "source": pair.source,
                "destination": pair.destination,
                "outcomes": encode(pair.outcomes),
                "round_trip_s": pair.round_trip_s,
                "lost_share": pair.lost_share,
                "gbit_per_s": pair.gbit_per_s,
                "baseline_gbit_per_s": pair.baseline_gbit_per_s,
            }
            for pair in diagnosis.pairs
        ],
        "collective": encode(diagnosis.collective),
        "timings_s": dict(diagnosis.timings_s),
    }


def to_json(diagnosis: Diagnosis) -> str:
    """`document` as text, ending with a newline."""
    return json.dumps(document(diagnosis), indent=2) + "\n"


def _finding(found: Finding) -> Dict[str, Any]:
    encoded: Dict[str, Any] = encode(found)
    return encoded


# --- terminal --------------------------------------------------------------------------------------


def to_terminal(diagnosis: Diagnosis, said: str = "") -> str:
    """The report for a terminal of 80 columns, readable without colour.

    said: what the first line says instead of the first cause.
    """
    blocks = [
        wrapped(f"{diagnosis.verdict.value}  {said or headline(diagnosis)}"),
        _figures(diagnosis),
        _matrix(diagnosis),
        *(_cause(place, item) for place, item in enumerate(diagnosis.causes, 1)),
        _candidates(diagnosis),
        _listed("Follows from it, or changes nothing:", [_short(item) for item in diagnosis.consequences]),
        _listed("Others who can get in:", diagnosis.exposed),
        _listed("Not answered:", diagnosis.unanswered),
        _listed("Left out on purpose:", diagnosis.skipped),
        _listed("Not the same on all nodes (no fault by itself):", diagnosis.differences),
        _nodes(diagnosis),
    ]
    if diagnosis.next_command:
        blocks.append(["Next:", *shell_lines(diagnosis.next_command, indent=2)])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _figures(diagnosis: Diagnosis) -> List[str]:
    lines = figures(diagnosis)
    if diagnosis.timings_s:
        steps = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in sorted(diagnosis.timings_s.items()))
        lines.append(f"time: {steps}")
    return [line for text in lines for line in wrapped(text)]


def _matrix(diagnosis: Diagnosis) -> List[str]:
    """From (rows) to (columns), a letter a pair; only for few nodes."""
    ranks = sorted({pair.source for pair in diagnosis.pairs})
    if not 2 <= len(ranks) <= MATRIX_UP_TO_NODES:
        return []
    letters = {(pair.source, pair.destination): pair_letter(pair) for pair in diagnosis.pairs}
    head = "from\\to " + "".join(f"{rank:>4}" for rank in ranks)
    rows = [
        f"{source:>7} "
        + "".join(f"{'-' if source == to else letters.get((source, to), UNTRIED):>4}" for to in ranks)
        for source in ranks
    ]
    return [head, *rows, *wrapped(_legend(diagnosis.pairs), indent=2)]


def _legend(pairs: Sequence[PairVerdict]) -> str:
    used = {pair_letter(pair) for pair in pairs}
    words = [f"{WORKS} works"] if WORKS in used else []
    words += [f"{letter} {name}" for letter, name in LETTERS.values() if letter in used]
    words += [
        f"{letter.lower()} {name} on some ports"
        for letter, name in LETTERS.values()
        if letter.lower() in used
    ]
    if UNTRIED in used:
        words.append(f"{UNTRIED} not tried")
    return "; ".join(words)


def _cause(place: int, found: Finding) -> List[str]:
    lines = [plain(f"{place}. {found.id}  ({found.subject})"), *wrapped(found.summary, indent=3)]
    for text in found.evidence[:_EVIDENCE_AT_MOST]:
        first, *rest = wrapped(text, indent=7) or [""]
        lines += [f"     - {first.strip()}", *rest]
    if len(found.evidence) > _EVIDENCE_AT_MOST:
        lines.append(f"     - and {len(found.evidence) - _EVIDENCE_AT_MOST} more")
    lines += wrapped(found.remediation, indent=3)
    for command in found.commands:
        lines += shell_lines(command, indent=5)
    return lines


def _candidates(diagnosis: Diagnosis) -> List[str]:
    if not diagnosis.candidates:
        return []
    lines = ["Undetermined; in this order it may be:"]
    said = ""
    for item in diagnosis.candidates:
        if item.summary != said:
            said = item.summary
            lines += wrapped(said, indent=2)
            for text in item.evidence[:_EVIDENCE_AT_MOST]:
                lines += wrapped(f"- {text}", indent=4)
        lines.append(plain(f"  * {item.id}  ({item.subject})"))
    return lines


def _listed(title: str, texts: Sequence[str]) -> List[str]:
    if not texts:
        return []
    lines = [line for text in texts[:_LISTED_AT_MOST] for line in wrapped(f"- {text}", indent=2)]
    more = len(texts) - _LISTED_AT_MOST
    return [title, *lines, *([f"  - and {more} more"] if more > 0 else [])]


def _short(found: Finding) -> str:
    return f"{found.id} ({found.subject}): {found.summary}"


def _nodes(diagnosis: Diagnosis) -> List[str]:
    """One line a node; those that pass only where there are few."""
    few = len(diagnosis.nodes) <= MATRIX_UP_TO_NODES
    shown = [node for node in diagnosis.nodes if few or node.verdict is not Verdict.PASS]
    lines = [
        plain(
            f"{node.rank:>4}  {node.verdict.value:<7}  {node.address:<15}  {node.name}  {node.note}"
        ).rstrip()
        for node in shown[: 4 * _LISTED_AT_MOST]
    ]
    return ["rank  verdict  address          name", *(line[:WIDTH] for line in lines)] if lines else []
