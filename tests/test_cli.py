"""The command line: help with examples, usage errors, honest exit codes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cli
from diagnosis.causes import CATALOGUE

CHECKOUT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "demo",
    "lab",
    "lab up",
    "lab env",
    "lab status",
    "lab exec",
    "lab check",
    "lab down",
    "check",
    "explain",
    "report",
    "node",
    "audit",
    "causes",
    "doctor",
)


def fullmesh(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    """`COMMAND --help` succeeds, shows an example, and fits 80 columns."""
    answer = fullmesh(*command.split(), "--help", COLUMNS="80")
    assert answer.returncode == 0
    assert "examples" in answer.stdout


def test_the_command_list_is_whole() -> None:
    """A command that is added must be added to COMMANDS above, not silently left out."""

    def names(parser: argparse.ArgumentParser, prefix: str) -> set[str]:
        found = set()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, below in action.choices.items():
                    found |= {f"{prefix}{name}"} | names(below, f"{prefix}{name} ")
        return found

    stages = {"node mesh", "node collective", "node failed"}  # bootstrap.sh's own
    assert names(cli.build_parser(), "") - stages == set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("frobnicate",), "invalid choice"),
        (("demo", "--nodes", "one"), "invalid"),
        (("demo", "--nodes", "1"), "2-1000"),
        (("lab", "up", "--nodes", "1"), "2-1000"),
        (("demo", "--fault", "gremlins"), "--list-faults"),
        (("causes", "gremlins"), "fullmesh causes"),
        (("lab", "exec", "zero", "--", "true"), "invalid int value"),
        (("check", "--nodes", "0"), "2 or more"),
    ],
)
def test_bad_usage_is_told_with_exit_code_2(arguments: tuple[str, ...], says: str) -> None:
    """Bad words end with status 2, on standard error, with what is allowed or what to run."""
    answer = fullmesh(*arguments)
    assert answer.returncode == 2, answer.stderr
    assert says in answer.stderr
    assert answer.stdout == ""


@pytest.mark.parametrize("action", ["env", "status", "check"])
def test_without_a_lab_the_next_step_is_told(action: str, tmp_path: Path) -> None:
    """A command that needs a lab says so, names how to start one, and is UNKNOWN, not FAIL."""
    answer = fullmesh("lab", action, "--state-dir", str(tmp_path))
    assert answer.returncode == 3
    assert "fullmesh lab up" in answer.stderr


def test_down_without_a_lab_is_no_error(tmp_path: Path) -> None:
    """Ending what does not run is a success."""
    answer = fullmesh("lab", "down", "--state-dir", str(tmp_path))
    assert (answer.returncode, answer.stdout) == (0, "no lab is running\n")


def test_causes_are_the_catalogue() -> None:
    """`causes --json` holds every cause once, and `causes ID` its meaning and command."""
    listed = json.loads(fullmesh("causes", "--json").stdout)
    assert [item["id"] for item in listed] == list(CATALOGUE)
    assert "authorize-security-group-ingress" in fullmesh("causes", "sg-only-master-port").stdout


@pytest.mark.parametrize("arguments", [("causes",), ("--help",), ("demo", "--help"), ("explain", "--help")])
def test_help_needs_no_torch_and_no_cloud_client(arguments: tuple[str, ...]) -> None:
    """`--help` and `causes` import neither torch, boto3 nor the CDK, and of the lab only its parsers."""
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cli", *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert not imported & {"torch", "boto3", "botocore", "aws_cdk", "numpy", "rich", "asyncio", "subprocess"}
    parsers = set() if arguments[0] == "explain" else {"lab.cli"}
    assert {name for name in imported if name.startswith("lab.")} == parsers


@pytest.mark.parametrize("stream", [">&-", "2>&-"])
def test_a_closed_stream_is_no_verdict(stream: str) -> None:
    """Started with a closed standard stream it ends with status 2, not with Python's 1, which means FAIL."""
    done = subprocess.run(
        ["bash", "-c", f'exec "$0" -m cli causes {stream}', sys.executable],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2


def test_an_answer_that_cannot_be_written_is_unknown() -> None:
    """A full device is told, with status 3."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli", "causes"],
            cwd=CHECKOUT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        3,
        "fullmesh: the answer could not be written: no space left on the device\n",
    )
