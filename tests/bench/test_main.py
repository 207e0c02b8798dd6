"""The command line: what it lists, what it refuses, and what a failed benchmark ends in."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bench import __main__ as command
from bench.options import Options
from bench.record import BenchError, Comparison, Figure, Result, Target


def run_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measure: object) -> int:
    """Run the command with one benchmark that `measure` is."""
    module = ModuleType("bench.one")
    module.measure = measure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.one", module)
    monkeypatch.setattr(command, "BENCHMARKS", {"one": "one thing beside another"})
    return command.main(["one", "--output", str(tmp_path)])


def test_list_names_every_benchmark_and_each_has_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    """--list prints name and summary; every name is a module that measures."""
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[2] != " "] == list(command.BENCHMARKS)
    for name in command.BENCHMARKS:
        assert callable(importlib.import_module(f"bench.{name}").measure)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["speed"],
            "no benchmark 'speed'; "
            "there are explain, synth, rules_scale, mesh_scale, nc_loop, demo_time, faults, raw_torch",
        ),
        (["synth", "--default-timeout"], "--default-timeout belongs to raw_torch alone"),
        (["--default-timeout"], "--default-timeout belongs to raw_torch alone"),
    ],
)
def test_usage_errors_say_what_is_allowed(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong name or option ends with status 2 before anything is measured."""
    with pytest.raises(SystemExit) as caught:
        command.main(argv)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_benchmark_is_printed_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures and notes go to the terminal, the record to DIR/NAME.json, with the command that repeats it."""

    def measure(options: Options) -> Result:
        assert options == Options(output=tmp_path)
        figures = Comparison(
            what="both", ours=Figure(label="a", value=1.0), theirs=Figure(label="b", value=2.0)
        )
        return Result((figures,), notes=("on loopback",))

    assert run_with(monkeypatch, tmp_path, measure) == 0
    record = json.loads((tmp_path / "one.json").read_text())
    assert (record["command"], record["comparisons"][0]["ratio"]) == ("python -m bench one", 2.0)
    assert capsys.readouterr().out == (
        "one: one thing beside another\n"
        "  both\n    a 1 s\n    b 2 s\n    ratio, second to first 2 x\n"
        "  note: on loopback\n"
        f"  kept in {tmp_path}/one.json; again: python -m bench one\n\n"
    )


def test_benchmark_that_could_not_run_fails_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason goes to standard error, the status is 1, and an old record is not touched."""
    (tmp_path / "one.json").write_text("{}")

    def measure(options: Options) -> Result:
        raise BenchError("nc is not installed")

    assert run_with(monkeypatch, tmp_path, measure) == 1
    assert capsys.readouterr().err == "  failed: nc is not installed\n"
    assert (tmp_path / "one.json").read_text() == "{}"


def test_missed_target_is_not_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A figure past its target is printed, never a reason to fail: no test of ours looks at a clock."""

    missed = Comparison(what="slow", ours=Figure(label="a", value=9.0), target=Target(limit=1.0))
    assert run_with(monkeypatch, tmp_path, lambda options: Result((missed,))) == 0
