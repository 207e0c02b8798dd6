"""Ctrl-C on a terminal, and the death of any part, at every phase: nothing is left, and it is said."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import CHECKOUT, leash, processes
from lab.state import NodeState
from tests.lab.identities import IDENTITIES, Identity
from tests.lab.running import Lab, wait_until
from tests.lab.terminal import CTRL_C, Terminal, command_line

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

FULLMESH = str(CHECKOUT / ".venv/bin/fullmesh")
ENDED = "interrupted: the lab was ended, nothing is left running"
# What a lab leaves on purpose: what it said, what was deployed, and what was found.
KEPT = {"logs", "cdk.out", "report.html", "dashboard.html"}


class Scene:
    """A folder for a lab's state, one for everybody's temporary files, and the mounts there were."""

    def __init__(self, folder: Path) -> None:
        self.state, self._temporary = folder / "state dir", folder / "tmp"
        self._temporary.mkdir()
        self._mounts = mounts()

    def run(self, *arguments: str) -> Terminal:
        environment = {**os.environ, "TMPDIR": str(self._temporary)}
        return Terminal([FULLMESH, *arguments, "--state-dir", str(self.state)], cwd=CHECKOUT, env=environment)

    def parts(self) -> dict[str, int]:
        """Process ids of what a running lab consists of."""
        state = json.loads((self.state / "lab.json").read_text())
        (init,) = processes.children(state["pid"])
        nodes = {node["pid"] for node in state["nodes"]}
        below = [pid for pid in processes.children(init) if pid not in nodes]
        (plane,) = [pid for pid in below if "lab.control_plane" in command_line(pid)]
        (services,) = [pid for pid in below if pid != plane]
        return {"guard": state["pid"], "init": init, "control plane": plane, "services": services}

    def app_runs(self, terminal: Terminal) -> bool:
        """Whether the CDK has started the app, and the app its Node."""
        below = processes.descendants(terminal.process.pid)
        return any("jsii" in command_line(pid) for pid in below)

    def assert_clean(self, terminal: Terminal, patience_s: float = 0.0) -> None:
        """No process, mount, temporary file or lock is left, and of the state what is meant to be kept."""
        assert terminal.left_behind(patience_s) == []
        assert mounts() == self._mounts
        assert list(self._temporary.iterdir()) == []
        assert {item.name for item in self.state.iterdir()} <= KEPT
        assert list((self.state / "cdk.out").rglob("*.lock")) == []
        folders = [item.name for item in (self.state / "logs").iterdir() if item.is_dir()]
        assert all(name.startswith("i-") for name in folders), folders  # one an instance


def mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def deploying(scene: Scene) -> Iterator[Terminal]:
    """A demo whose CDK runs the app."""
    with scene.run("demo", "--nodes", "2") as terminal:
        terminal.expect("cdk deploy")
        wait_until(lambda: scene.app_runs(terminal), lambda: terminal.text, 60)
        yield terminal


def test_ctrl_c_ends_a_start(scene: Scene) -> None:
    """Before there is a lab: all is gone when it says so, and the status is 130."""
    with scene.run("demo", "--nodes", "2") as terminal:
        terminal.expect("start the lab")
        terminal.press(CTRL_C)
        assert terminal.wait() == 130
        assert ENDED in terminal.text
        assert "Traceback" not in terminal.text
        scene.assert_clean(terminal)


def test_ctrl_c_again_and_again_ends_a_deploy(scene: Scene, deploying: Terminal) -> None:
    """The CDK, its app and the app's Node are gone when it says so, whatever is pressed meanwhile."""
    for _ in range(3):
        deploying.press(CTRL_C)
        time.sleep(0.1)
    assert deploying.wait() == 130
    assert ENDED in deploying.text
    assert "Traceback" not in deploying.text
    scene.assert_clean(deploying)


def test_a_demo_that_is_killed_leaves_nothing(scene: Scene, deploying: Terminal) -> None:
    """The CDK's processes and the lab end within seconds by themselves."""
    deploying.process.kill()
    assert deploying.wait() == -signal.SIGKILL
    scene.assert_clean(deploying, patience_s=20.0)


def test_a_deploy_does_not_outlive_the_lab(scene: Scene, deploying: Terminal) -> None:
    """It ends at once, not when the CDK has tried for more than a minute, with UNKNOWN and the log."""
    os.kill(scene.parts()["guard"], signal.SIGKILL)
    assert deploying.wait(40) == 3
    assert "the lab ended by itself" in deploying.text
    assert "Traceback" not in deploying.text
    scene.assert_clean(deploying)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("init", "the lab ended by itself"),
        ("services", "the metadata, DNS and relay process ended with status -9"),
    ],
)
def test_a_lab_ends_with_each_of_its_parts(scene: Scene, part: str, words: str) -> None:
    """UNKNOWN, with the part that died, and nothing of the others is left."""
    with scene.run("lab", "up") as terminal:
        terminal.expect("the lab answers at")
        os.kill(scene.parts()[part], signal.SIGKILL)
        assert terminal.wait() == 3
        assert words in terminal.text
        scene.assert_clean(terminal)


def test_a_lab_that_was_stopped_by_a_signal_still_ends(scene: Scene) -> None:
    """Ctrl-C wakes a guard that somebody suspended (kill -STOP)."""
    with scene.run("lab", "up") as terminal:
        terminal.expect("the lab answers at")
        os.kill(scene.parts()["guard"], signal.SIGSTOP)
        terminal.press(CTRL_C)
        assert terminal.wait() == 130
        scene.assert_clean(terminal)


# A command, and a probe: each starts another process that does not end by itself, and says so.
COMMAND = "touch /run/ready; sleep 1000; true"
PROBE = """#!/bin/bash
mkdir -p /opt/fullmesh
cat > /opt/fullmesh/fullmesh.pyz <<'END'
import pathlib, subprocess
child = subprocess.Popen(["sleep", "1000"])
pathlib.Path("/run/ready").touch()
child.wait()
END
"""


class Node:
    """A lab with one node, of an identity."""

    def __init__(self, who: Identity) -> None:
        self.lab = Lab(who)
        (self.node,) = self.lab.launch(1, PROBE)
        booted = "/var/lib/cloud/instance/boot-finished"
        wait_until(lambda: self._has(self.node, booted), self.lab.logs)

    def _has(self, node: NodeState, path: str) -> bool:
        return self.lab.run(node, "test", "-e", path).returncode == 0

    def command(self, *arguments: str) -> Terminal:
        """`fullmesh lab ...` on a terminal, below a shell: with a terminal's first process all ends."""
        assert self.lab.run(self.node, "rm", "-f", "/run/ready").returncode == 0
        action, *rest = arguments
        code = "import sys, cli; sys.exit(cli.main())"
        words = ["lab", action, "--state-dir", str(self.lab.options["state_dir"]), *rest]
        settings = self.lab.who.settings()
        argv = self.lab.who.command("-c", code, *words)
        shell = ["bash", "-c", '"$@"; status=$?; echo "ended: $status"; read -r', "bash"]
        return Terminal([*shell, *argv], cwd=settings["cwd"], env=settings["env"])

    def wait_ready(self) -> None:
        """Wait until what was started has started what it starts."""
        wait_until(lambda: self._has(self.node, "/run/ready"), self.lab.logs)

    def beside_init(self) -> list[str]:
        """Command lines of what runs on the node beside its init, also what came in from outside."""
        own = os.readlink(f"/proc/{self.node.pid}/ns/pid")
        found = []
        for pid in set(processes.parents()) - {self.node.pid}:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if os.readlink(f"/proc/{pid}/ns/pid") == own:
                    found.append(command_line(pid))
        return found

    def assert_empty(self, patience_s: float) -> None:
        wait_until(lambda: self.beside_init() == [], lambda: str(self.beside_init()), patience_s)


@pytest.fixture(scope="module", params=IDENTITIES, ids=str)
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node(request.param)
    yield made
    made.lab.end()


@pytest.mark.parametrize("victim", ["terminal", "command", "twin"])
@pytest.mark.parametrize(
    "words", [("check",), ("exec", "0", "--", "bash", "-c", COMMAND)], ids=["check", "exec"]
)
def test_what_runs_in_a_node_ends_with_whoever_asked_for_it(
    node: Node, words: tuple[str, ...], victim: str
) -> None:
    """Ctrl-C, and SIGKILL of either process of the command, leave nothing on this machine or on the node."""
    with node.command(*words) as terminal:
        node.wait_ready()
        (command,) = processes.children(terminal.process.pid)
        (twin,) = processes.children(command)
        if victim == "terminal":
            terminal.press(CTRL_C)
        else:
            os.kill(command if victim == "command" else twin, signal.SIGKILL)
        killed = {"command": 137, "twin": 3 if words[0] == "check" else 137, "terminal": 130}
        terminal.expect(f"ended: {killed[victim]}")
        assert "Traceback" not in terminal.text
        if victim == "terminal" and words[0] == "check":
            assert "fullmesh: interrupted; nothing is left running\r\n" in terminal.text
        patience_s = 10.0 if victim == "command" else 0.0
        assert terminal.left_behind(patience_s) == []
        assert processes.children(terminal.process.pid) == []
    node.assert_empty(10)  # its init collects what was killed there


def test_a_check_ends_though_a_probe_was_stopped(node: Node) -> None:
    """A probe that somebody suspended (kill -STOP), and nsenter with it, are no reason to wait for ever."""
    with node.command("check") as terminal:
        node.wait_ready()
        (command,) = processes.children(terminal.process.pid)
        (twin,) = processes.children(command)
        (entered,) = processes.children(twin)
        (probe,) = processes.children(entered)
        os.kill(probe, signal.SIGSTOP)
        stat = Path(f"/proc/{entered}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", stat.read_text)
        terminal.press(CTRL_C)
        terminal.expect("ended: 130")
    node.assert_empty(10)


def test_a_command_in_a_node_hears_ctrl_c_itself(node: Node) -> None:
    """What it does then is its own affair: it is waited for, and its status is the answer."""
    script = "trap 'echo heard; exit 7' INT; echo ready; while :; do sleep 0.1; done"
    with node.command("exec", "0", "--", "bash", "-c", script) as terminal:
        terminal.expect("ready")
        terminal.press(CTRL_C)
        terminal.expect("heard")
        terminal.expect("ended: 7")
    node.assert_empty(10)


LITTER = """
import os, subprocess, tempfile, time, sys
tempfile.mkdtemp(prefix="litter-")
subprocess.Popen(["sleep", "1000"], start_new_session=True)
open(sys.argv[1] + "/synth.lock", "w").close()
print(tempfile.gettempdir(), flush=True)
time.sleep(float(sys.argv[2]))
"""
CALLER = """
import subprocess, sys
from pathlib import Path
from lab import leash
assembly = Path(sys.argv[1])
with leash.command(sys.argv[3:], assembly=assembly, lives_with=int(sys.argv[2])) as words:
    sys.exit(subprocess.call(words, start_new_session=True))
"""


@pytest.mark.parametrize("who", IDENTITIES, ids=str)
def test_an_app_of_the_cdk_runs_on_a_leash(who: Identity) -> None:
    """jsii refuses a cache below folders of nobody's, which root's are in an ordinary user's namespace."""
    python = who.command()[-1]
    done = who.run("-c", CALLER, str(who.folder()), str(os.getpid()), python, "-c", "import aws_cdk")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("who", IDENTITIES, ids=str)
@pytest.mark.parametrize("way", ["by itself", "asked to", "caller killed", "other killed", "leash killed"])
def test_what_is_on_a_leash_leaves_nothing(who: Identity, way: str) -> None:
    """A daemon, temporary files and the CDK's locks go with the command, however it ends."""
    folder = who.folder()
    seconds = "0.5" if way == "by itself" else "1000"
    with subprocess.Popen(["sleep", "1000"]) as other:
        argv = who.command("-c", CALLER, str(folder), str(other.pid), "python3", "-c", LITTER)
        settings = who.settings()
        with Terminal([*argv, str(folder), seconds], cwd=settings["cwd"], env=settings["env"]) as terminal:
            terminal.expect("fullmesh-cdk-")
            (started,) = processes.children(terminal.process.pid)
            if way == "asked to":
                os.kill(started, signal.SIGTERM)
            elif way == "caller killed":
                terminal.process.kill()
            elif way == "other killed":
                other.kill()
            elif way == "leash killed":
                os.kill(started, signal.SIGKILL)
            status = terminal.wait()
            assert terminal.left_behind() == []
        other.kill()
    expected = {
        "by itself": 0,
        "asked to": 143,
        "caller killed": -9,
        "other killed": leash.ENDED_WITH_OTHER,
        "leash killed": 247,  # sys.exit(-9), as a shell shows it
    }
    assert status == expected[way], terminal.text
    assert not Path(terminal.text.split()[0]).exists()
    assert list(folder.iterdir()) == []
