"""Diagnosis -> Markdown, and an HTML fragment that a CloudWatch custom widget shows.

The widget strips scripts, frames and <use>; the fragment has none, and needs nothing from
outside. Every text is escaped: evidence quotes what programs and people wrote.
"""

from __future__ import annotations

from html import escape
from typing import Sequence

from diagnosis.prose import plain
from diagnosis.report import Diagnosis, Finding, Verdict
from diagnosis.words import (
    MATRIX_UP_TO_NODES,
    UNTRIED,
    WORKS,
    figures,
    headline,
    pair_letter,
)

_COLOURS = {
    Verdict.PASS: "#1d8102",
    Verdict.FAIL: "#d13212",
    Verdict.UNKNOWN: "#8d6605",
    Verdict.SKIPPED: "#687078",
}
_CELL = "width:1.6em;height:1.6em;text-align:center;border:1px solid #d5dbdb"
_LISTED_AT_MOST = 50


# --- HTML --------------------------------------------------------------------------------------------


def html_page(title: str, body: str) -> str:
    """A fragment as a page of its own."""
    head = f'<head><meta charset="utf-8"><title>{escape(title)}</title></head>'
    return f'<!doctype html>\n<html lang="en">{head}<body>\n{body}\n</body></html>\n'


def html_report(diagnosis: Diagnosis) -> str:
    """A self-contained fragment: verdict, causes, the matrix for few nodes, what is open."""
    colour = _COLOURS[diagnosis.verdict]
    parts = [
        f'<h3><span style="color:{colour}">{diagnosis.verdict.value}</span> '
        f"{_text(headline(diagnosis))}</h3>",
        *(f"<p>{_text(line)}</p>" for line in figures(diagnosis)),
        *(_html_finding(item, commands=True) for item in diagnosis.causes),
        *(_html_finding(item, commands=False) for item in diagnosis.candidates),
        _html_list("Follows from it, or changes nothing", [_short(item) for item in diagnosis.consequences]),
        _html_list("Others who can get in", diagnosis.exposed),
        _html_list("Not answered", diagnosis.unanswered),
        _html_list("Left out on purpose", diagnosis.skipped),
        _html_list("Not the same on all nodes (no fault by itself)", diagnosis.differences),
        f"<p>Next: <code>{_text(diagnosis.next_command)}</code></p>" if diagnosis.next_command else "",
        _html_matrix(diagnosis),
        _html_nodes(diagnosis),
    ]
    return "<div>" + "\n".join(part for part in parts if part) + "</div>"


def _text(text: str) -> str:
    return escape(plain(text), quote=True)


def _short(found: Finding) -> str:
    return f"{found.id} ({found.subject}): {found.summary}"


def _html_finding(found: Finding, *, commands: bool) -> str:
    lines = [f"<h4>{_text(found.id)} ({_text(found.subject)})</h4>", f"<p>{_text(found.summary)}</p>"]
    if commands:
        lines.append("<ul>" + "".join(f"<li>{_text(line)}</li>" for line in found.evidence) + "</ul>")
        lines.append(f"<p>{_text(found.remediation)}</p>")
        lines += [f"<pre>{_text(command)}</pre>" for command in found.commands]
    return "".join(lines)


def _html_list(title: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    items = "".join(f"<li>{_text(text)}</li>" for text in texts[:_LISTED_AT_MOST])
    more = len(texts) - _LISTED_AT_MOST
    return f"<h4>{_text(title)}</h4><ul>{items}{f'<li>and {more} more</li>' if more > 0 else ''}</ul>"


def _html_matrix(diagnosis: Diagnosis) -> str:
    ranks = sorted({pair.source for pair in diagnosis.pairs})
    if not 2 <= len(ranks) <= MATRIX_UP_TO_NODES:
        return ""
    letters = {(pair.source, pair.destination): pair for pair in diagnosis.pairs}
    head = "".join(f"<th>{rank}</th>" for rank in ranks)
    rows = []
    for source in ranks:
        cells = []
        for to in ranks:
            pair = letters.get((source, to))
            letter = "-" if source == to else pair_letter(pair) if pair else UNTRIED
            colour = {WORKS: "#b6e3b0", UNTRIED: "#f5e6a8", "-": "#eaeded"}.get(letter, "#f3b2a6")
            trip = f"{pair.round_trip_s * 1000:.2f} ms" if pair and pair.round_trip_s is not None else ""
            cells.append(
                f'<td style="{_CELL};background:{colour}" title="{_text(trip)}">{_text(letter)}</td>'
            )
        rows.append(f"<tr><th>{source}</th>{''.join(cells)}</tr>")
    return f"<table><tr><th>from / to</th>{head}</tr>{''.join(rows)}</table>"


def _html_nodes(diagnosis: Diagnosis) -> str:
    few = len(diagnosis.nodes) <= MATRIX_UP_TO_NODES
    shown = [node for node in diagnosis.nodes if few or node.verdict is not Verdict.PASS][:_LISTED_AT_MOST]
    rows = "".join(
        f"<tr><td>{node.rank}</td><td>{_text(node.name)}</td><td>{_text(node.address)}</td>"
        f'<td style="color:{_COLOURS[node.verdict]}">{node.verdict.value}</td>'
        f"<td>{_text(node.note)}</td></tr>"
        for node in shown
    )
    head = "<tr><th>rank</th><th>name</th><th>address</th><th>verdict</th><th></th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""
