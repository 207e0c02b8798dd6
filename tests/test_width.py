"""What a terminal shows fits its 80 columns."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import bench.__main__
import cli
import probe.cli
from diagnosis import explain, render
from diagnosis.causes import CATALOGUE
from diagnosis.logs import show as explain_render
from diagnosis.prose import WIDTH, _shell_words
from lab import demo_answer, doctor
from lab.demo import DemoOptions
from lab.progress import Progress
from tests.diagnosis.builders import diagnose
from tests.diagnosis.test_judge_answers import ANSWERS

CHECKOUT = Path(__file__).resolve().parents[1]
LOGS = sorted((CHECKOUT / "tests/diagnosis/explain_cases").rglob("*.log"))
REPORT = re.compile(r"^<!-- report: (\S+) -->\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > WIDTH]


def breakable(text: str) -> list[str]:
    """Those of `wide` that are more than one word to a shell: a path or a quoted program stays whole."""
    return [line for line in wide(text) if len(_shell_words(line.removesuffix("\\"))) > 1]


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """It and every one below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


HELPS = {
    parser.prog: parser
    for root in (cli.build_parser(), bench.__main__.build_parser())
    for parser in parsers(root)
}


@pytest.mark.parametrize("name", HELPS)
def test_help_fits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command's --help, in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    assert wide(HELPS[name].format_help()) == []


def test_help_of_the_one_file_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """fullmesh.pyz has a parser of its own around the same commands."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit):
        probe.cli.main(["--help"])
    shown = capsys.readouterr().out
    assert "explain" in shown
    assert wide(shown) == []


@pytest.mark.parametrize("arguments", [["causes"], ["doctor"], ["demo", "--list-faults"]])
def test_a_list_fits(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Lists wrap what does not fit beside the name."""
    assert cli.main(arguments) in (0, 1, 3)
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) > 5
    assert wide(shown) == []


@pytest.mark.parametrize("cause", CATALOGUE)
def test_a_cause_fits(cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One cause in full; only what a shell must read as one word may be longer."""
    assert cli.main(["causes", cause]) == 0
    assert breakable(capsys.readouterr().out) == []


def test_stored_reports_fit() -> None:
    """The reports that the README shows are those of a terminal."""
    reports = dict(REPORT.findall((CHECKOUT / "README.md").read_text()))
    assert set(reports) == {"pass", "sg-only-master-port"}
    assert {name: wide(text) for name, text in reports.items()} == {"pass": [], "sg-only-master-port": []}


@pytest.mark.parametrize("log", LOGS, ids=[log.stem for log in LOGS])
def test_an_explanation_fits(log: Path) -> None:
    """Lines of a log are quoted in 80 columns, too."""
    shown = explain_render.to_terminal(explain.explain_files([str(log)]))
    assert log.name in shown or "no fault" in shown or "nothing in these lines" in shown
    assert breakable(shown) == []


@pytest.mark.parametrize("name", ANSWERS)
def test_a_verdict_fits(name: str) -> None:
    """Reports of what went wrong between nodes, with evidence, candidates and commands."""
    rows, _, _ = ANSWERS[name]
    shown = render.to_terminal(diagnose(rows))
    assert shown.startswith("FAIL  ")
    assert breakable(shown) == []


def test_what_to_try_next_fits() -> None:
    """The demo's last lines, in full."""
    assert wide("\n".join(demo_answer._what_next(DemoOptions(), keep=True))) == []


def test_a_failed_check_of_doctor_fits() -> None:
    """What was found and what to do are wrapped under their own beginnings."""
    text = "a long explanation of " * 8
    shown = doctor.render([doctor.Check("namespaces", False, text, text), doctor.Check("x", None, "")])
    assert wide(shown) == []
    assert shown.splitlines()[0].startswith("MISSING  namespaces             a long")
    assert shown.splitlines()[1].startswith(" " * 32 + "long")
    assert shown.splitlines()[-1] == "UNKNOWN  x                      -"


def test_progress_of_long_steps_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """A step's line names its log as seen from here, and a long title goes on below itself."""
    with Progress().step("break it: " + "what is broken, " * 6, 2, Path.cwd() / ".fullmesh/logs/cdk.log"):
        pass
    shown = capsys.readouterr().err
    assert "log: .fullmesh/logs/cdk.log)" in shown
    assert wide(shown) == []


def test_lines_of_set_up_fit(tmp_path: Path) -> None:
    """Every long step of set-up, and the reason of a failure, said by its own functions."""
    text = (CHECKOUT / "tools/setup.sh").read_text()
    functions = re.findall(r"^(?:fail|step)\(\) \{\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    steps = re.findall(r'step "[^"]+" "[^"]+"', text)
    assert len(functions) == 2
    assert len(steps) >= 7
    script = "\n".join([f"log={tmp_path / 'log'}", *functions, *(f"{step} true" for step in steps)])
    shown = subprocess.run(
        ["bash", "-c", f"{script}\nfail '{'a word ' * 30}'"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
    ).stdout
    assert len(shown.splitlines()) > len(steps) + 2
    assert wide(shown) == []
