"""The commands' surface: help, usage errors, exit statuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probe import cli

CHECKOUT = Path(__file__).resolve().parents[2]


def test_help_loads_next_to_nothing() -> None:
    """`check --help` answers without loading asyncio, sockets or any other part of the probe."""
    script = (
        "import sys; from probe.cli import main\n"
        "try: main(['check', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'asyncio', 'socket', 'subprocess', 'dataclasses', 'probe.check', 'diagnosis.report'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "--nodes", "1"], "'1' is not a number of 2 or more"),
        (["check", "--timeout-s", "0"], "'0' is not a number of seconds from 1 to 86400"),
        (["check", "--timeout-s", "nan"], "'nan' is not a number of seconds from 1 to 86400"),
        (["check", "--master-port", "70000"], "'70000' is not a port from 1 to 65535"),
        (["node", "sleep"], "invalid choice: 'sleep'"),
    ],
)
def test_wrong_values_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each usage error names the value and what is allowed, and exits with 2."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "nothing tells who else is in the cluster"),
        (["check", "--meet", "/shared/x"], "--meet DIRECTORY needs --nodes N"),
        (["check", "--meet", "tcp://10.0.0.4:1"], "needs each member's rank; set RANK, WORLD_SIZE"),
        (["check", "--local", "2", "--nodes", "2"], "--local N starts every rank itself; leave --nodes out"),
        (["check", "--no-master-port"], "--no-master-port needs --no-collective"),
        (["check", "--hostfile", "/no/hosts"], "cannot read host file /no/hosts: No such file"),
        (["node", "mesh"], "cannot read /etc/fullmesh/config.json"),
    ],
)
def test_a_place_that_cannot_be_told_is_usage(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a way to the others the error says what to give; nothing is printed as an answer."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
            "SLURM_PROCID=0 is the batch script's or the shell's own",
        ),
        ({"PMI_RANK": "one", "PMI_SIZE": "4"}, "PMI_RANK='one' is not a number of 0 or more"),
        ({"PMI_RANK": "1", "PMI_SIZE": "512"}, "with several ranks a host at most 128 can be checked"),
    ],
)
def test_launchers_that_do_not_tell_enough_are_usage(
    variables: dict[str, str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error shows the variable and says how to start it instead."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["check"]) == 2
    assert words in capsys.readouterr().err


def test_a_crash_is_unknown_not_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own status for a crash is 1, which would read as FAIL."""

    def crash(*_: object) -> None:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr("probe.check.take_place", crash)
    assert cli.main(["check"]) == 3
    assert "disk on fire" in capsys.readouterr().err


def test_the_last_lines_of_a_step(tmp_path: Path) -> None:
    """A long output is cut at its beginning; one that cannot be read says so."""
    log = tmp_path / "log"
    log.write_text("x" * 10_000 + "\nlast line\n")
    assert cli._tail(str(log)).endswith("x\nlast line")
    assert len(cli._tail(str(log))) < cli.TAIL_BYTES
    assert cli._tail("/no/such/log") == "(/no/such/log cannot be read: No such file or directory)"
