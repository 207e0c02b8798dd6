"""Every `fullmesh ...` that the product tells somebody to run is a command that exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import cli
from diagnosis.causes import CATALOGUE

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDERS = ("cluster", "diagnosis", "probe", "stacks", "lab", "audit")
COMMAND = re.compile(r"(?:^|(?<=[;|&] )|(?<=[;|&])|(?<=run: ))fullmesh ([a-z](?:(?!  |, | \d?>)[^;|&\n#])*)")
"""Up to the command's end: a column of help, a clause of a sentence, a redirection, a comment."""


def texts(path: Path) -> Iterator[str]:
    """Every text of a module, with 1 for each value that is filled in."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def told() -> Iterator[str]:
    """`X ...` of every `fullmesh X ...` of the catalogue and of texts that are commands."""
    for cause in CATALOGUE.values():
        for command in cause.commands:
            yield from COMMAND.findall(re.sub(r"\{\w+\}", "1", command))
    for path in (
        CHECKOUT / "cli.py",
        *(file for name in FOLDERS for file in (CHECKOUT / name).rglob("*.py")),
    ):
        for text in texts(path):
            if not text.startswith("`"):
                yield from COMMAND.findall(text)


TITLES = {"report"}  # of pages (lab/pages.py)
TOLD = sorted({text.strip() for text in told()} - TITLES)


def exists(command: str) -> bool:
    """Whether the parser has such a command at all."""
    (action,) = (item for item in cli.build_parser()._actions if item.dest == "command")
    return command in (action.choices or ())


def test_commands_are_found() -> None:
    """The search finds what is known to be told."""
    assert "causes" in TOLD
    assert any(text.startswith("explain ") for text in TOLD)


@pytest.mark.parametrize("text", TOLD)
def test_what_is_told_parses(text: str) -> None:
    """It is accepted by the program's own parser."""
    words = shlex.split(text)
    if words[0] == "explain" and not exists("explain"):
        return  # it is told ahead of its time; from the day it exists it has to parse
    cli.build_parser().parse_args([word.rstrip(".,)") or word for word in words])
