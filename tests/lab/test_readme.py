"""Every command of the README is run, in the README's own order, by the shell the reader would use."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import supervisor, toolchain
from tests.interrupt import hear_ctrl_c

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

CHECKOUT = Path(__file__).resolve().parents[2]
STATE_DIR = CHECKOUT / ".fullmesh"
# `make test` is what runs this test.
NOT_RUN = {"make test"}
# A command that is meant to fail, by its exit status; every other must succeed.
EXPECTED_STATUS = {
    ".venv/bin/fullmesh demo --fault sg-only-master-port": 1,
    "fullmesh lab check": 1,
    "fullmesh doctor --account": 3,  # the lab's account has no service quotas to ask
}


@dataclass(frozen=True)
class Ran:
    """One command as it went."""

    command: str
    status: int
    output: str


def blocks() -> dict[str, list[list[str]]]:
    """Heading -> its `sh` blocks -> their commands (continued lines joined)."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    block: list[str] | None = None
    for line in (CHECKOUT / "README.md").read_text().splitlines():
        if block is None and line.startswith("#"):
            heading = line.lstrip("# ")
        elif line == "```sh":
            block = []
        elif line == "```" and block is not None:
            found.setdefault(heading, []).append(block)
            block = None
        elif block is not None:
            if block and block[-1].endswith("\\"):
                block[-1] = block[-1][:-1] + line.strip()
            else:
                block.append(line)
    return found


def run_in_one_shell(commands: list[str], extra: dict[str, str] | None = None) -> list[Ran]:
    """Run commands one after another in one bash, as typed into one terminal.

    extra: variables beside the caller's own, of which AWS's and the project's folders on PATH are left out.
    """
    wanted = [command for command in commands if command not in NOT_RUN]
    script = "".join(
        f"{command}\nprintf '\\n@@ {number} %s\\n' $?\n" for number, command in enumerate(wanted)
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if str(CHECKOUT) not in folder]
    environment |= {"PATH": os.pathsep.join(folders), **(extra or {})}
    shell = subprocess.run(
        ["bash"],
        input=script,
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        check=False,
    )
    parts = re.split(r"\n@@ \d+ (\d+)\n", shell.stdout)
    assert len(parts) == 2 * len(wanted) + 1, f"the shell ended early:\n{shell.stdout[-3000:]}"
    return [
        Ran(command=command, status=int(parts[2 * number + 1]), output=parts[2 * number])
        for number, command in enumerate(wanted)
    ]


def assert_statuses(ran: list[Ran]) -> None:
    for item in ran:
        assert item.status == EXPECTED_STATUS.get(item.command, 0), f"{item.command}\n{item.output[-3000:]}"


def report(name: str) -> str:
    """The report that the README shows under that name."""
    found = re.search(
        rf"<!-- report: {name} -->\n```text\n(.*?)```", (CHECKOUT / "README.md").read_text(), re.DOTALL
    )
    assert found is not None
    return found[1]


def words_of(text: str) -> str:
    """A report without what differs from run to run: numbers, ids and where lines are wrapped."""
    without_ids = re.sub(r"\b(sg|i|sgr|vpc)-[0-9a-f]+", r"\1-ID", text)
    return " ".join(re.sub(r"[\d.]+", "#", without_ids).split())


class LabInBackground:
    """`fullmesh lab up ...` as in another terminal, until it is told to end."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [CHECKOUT / ".venv/bin/fullmesh", "lab", "up", *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - no thread here holds a lock
        )

    def __enter__(self) -> LabInBackground:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "the lab answers at" in line:
                return self
        raise AssertionError(f"`lab up` ended with status {self._process.wait()}")

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=60)


@pytest.fixture(autouse=True)
def no_lab_is_running() -> None:
    """The README's commands use the checkout's own state folder, so no other lab may run there."""
    deadline = time.monotonic() + 20
    while supervisor.read_state(STATE_DIR) is not None:
        assert time.monotonic() < deadline, "a lab is running in this checkout; end it: fullmesh lab down"
        time.sleep(0.2)


def test_every_block_is_run_below() -> None:
    """A block under a heading that no test here runs would be a command nobody tried."""
    assert set(blocks()) == {
        "Try it: two commands",
        "Break something",
        "Deploy to an account",
        "Read a verdict",
        "Anywhere",
    }


def test_try_it() -> None:
    """`make demo` proves all 12 pairs and a correct all_reduce."""
    first, second = blocks()["Try it: two commands"]
    assert second == ["make test"]
    (demo,) = run_in_one_shell(first)
    assert_statuses([demo])
    assert "PASS  every pair was proven" in demo.output
    assert "12 of 12 ordered pairs work" in demo.output
    assert "cdk deploy: CREATE_COMPLETE" in demo.output
    assert words_of(report("pass")) in words_of(demo.output)
    assert "12 of 12 ordered pairs work" in (STATE_DIR / "dashboard.html").read_text()
    assert "12 of 12 ordered pairs work" in (STATE_DIR / "report.html").read_text()


def test_break_something() -> None:
    """The famous failure is named; then by hand: a broken node is named, mended, and the fleet updated."""
    fault, break_it, by_hand = blocks()["Break something"]
    (famous,) = run_in_one_shell(fault)
    assert_statuses([famous])
    assert "sg-only-master-port: members reach each other on 29500" in " ".join(famous.output.split())
    assert words_of(report("sg-only-master-port")) in words_of(famous.output)
    with LabInBackground("--nodes", "4"):
        ran = run_in_one_shell([*break_it, *by_hand])
    assert_statuses(ran)
    outputs = {item.command: item.output for item in ran}
    assert "os-firewall-drop  (node:2)" in outputs["fullmesh lab check"]
    assert "no drift" in outputs["cdk drift"].lower()
    assert '"verdict": "PASS"' in outputs["fullmesh lab check --json"]
    assert outputs["fullmesh lab check --json"].count('"source"') == 30
    (evidence,) = (text for command, text in outputs.items() if command.startswith("fullmesh report"))
    assert "30 of 30 ordered pairs work" in evidence


def test_deploy_to_an_account() -> None:
    """The commands for an account run as they stand, with credentials of the lab's account."""
    (block,) = blocks()["Deploy to an account"]
    with LabInBackground():
        state = supervisor.read_state(STATE_DIR)
        assert state is not None
        ran = run_in_one_shell(block, toolchain.environment(state.endpoint_url, state.region))
    assert_statuses(ran)
    assert "PASS" in ran[-1].output


def test_read_a_verdict() -> None:
    """Causes are listed and explained."""
    (block,) = blocks()["Read a verdict"]
    ran = run_in_one_shell(block)
    assert_statuses(ran)
    assert "authorize-security-group-ingress" in ran[-1].output


def test_anywhere() -> None:
    """The one-file build proves this machine; tests/probe/test_readme_anywhere.py runs the other blocks."""
    block = blocks()["Anywhere"][0]
    ran = run_in_one_shell(block)
    assert_statuses(ran)
    assert "PASS  every pair was proven, all on one host" in ran[-1].output
