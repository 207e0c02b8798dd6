"""Real boots: the rendered user data, the real archive, a real control plane and metadata service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.serial import encode
from diagnosis.report import Diagnosis, NodeVerdict, Verdict
from stacks.node_assets import pip_wheel
from tests.userdata.machine import PATH
from tests.userdata.wheels import wheel

pytestmark = pytest.mark.lab

Boot = Callable[..., dict[str, Any]]
BOOTSTRAP = (Path(__file__).resolve().parent.parent.parent / "userdata" / "bootstrap.sh").read_text()
STEPS = ["host", "mesh", "torch", "collective", "units"]


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boot]:
    """A machine in namespaces of its own; boots it once for each call and tells what came of it."""
    folder = tmp_path_factory.mktemp("machine")
    rootless = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [
        *("unshare", *rootless, "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"),
        *(sys.executable, "-m", "tests.userdata.machine", str(folder)),
    ]
    with (
        (folder / "machine.log").open("w") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as machine,
    ):
        assert machine.stdin is not None
        assert machine.stdout is not None
        stdin, stdout = machine.stdin, machine.stdout

        def once(**wanted: object) -> dict[str, Any]:
            stdin.write(json.dumps(wanted) + "\n")
            stdin.flush()
            line = stdout.readline()
            assert line, (folder / "machine.log").read_text()
            answer: dict[str, Any] = json.loads(line)
            return answer

        yield once
        stdin.close()
        machine.wait(timeout=30)


def begun(answer: dict[str, Any]) -> list[str]:
    """The steps that bootstrap.log says began, in order."""
    lines = answer["logs"].get("bootstrap.log", "").splitlines()
    return [line.split()[1].rstrip(":") for line in lines if line.endswith("begins")]


def rows_of(answer: dict[str, Any]) -> str:
    """The folder of the member's own rows."""
    return f"rows/r1/AROATEST:{answer['member']}"


def failures(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What the member's failed row holds."""
    found: list[dict[str, Any]] = answer["rows"].get(f"{rows_of(answer)}/failed.json", {}).get("failures", [])
    return found


def torch_wheel(folder: Path) -> Path:
    """A wheel named torch for the python3 that the image has."""
    program = "import sys, platform; print('%d%d' % sys.version_info[:2], platform.machine())"
    command = ["env", "-i", f"PATH={PATH}", "python3", "-c", program]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    version, machine = told.stdout.split()
    module = {"torch/__init__.py": '__version__ = "2.13.0"\n'}
    return wheel(folder, "torch", "2.13.0", f"cp{version}-cp{version}-linux_{machine}", module)


def test_a_good_boot_is_proven_and_can_be_run_again(boot: Boot) -> None:
    """Two members prove mesh and all_reduce with real torch, SUCCESS is signalled; a second run too."""
    answer = boot(peer=True, again=True)
    assert answer["statuses"] == [0, 0]
    assert answer["signal"] == "SUCCESS"
    assert begun(answer) == STEPS * 2
    assert answer["rows"][f"{rows_of(answer)}/collective.json"]["collective"]["outcome"] == "PASS"
    assert "etc/fullmesh/cluster.env" in answer["files"]
    assert failures(answer) == []


def test_pinned_ports_are_set_before_the_mesh(boot: Boot) -> None:
    """With a port range in the configuration the kernel takes its ports from there."""
    answer = boot(peer=True, config={"ephemeral_ports": {"first": 50000, "last": 50999}})
    assert answer["statuses"] == [0]
    assert answer["port_range"] == ["50000", "50999"]
    ports = [
        item["port"]
        for item in answer["rows"][f"{rows_of(answer)}/mesh.json"]["listeners"]
        if item["port"] != 29500
    ]
    assert ports
    assert all(50000 <= port <= 50999 for port in ports)


def test_a_mesh_that_is_not_proven_ends_the_boot(boot: Boot) -> None:
    """When the other member never comes, its absence is signalled and torch is not even looked for."""
    answer = boot(config={"deadline_s": 3})
    assert answer["statuses"] != [0]
    assert begun(answer) == ["host", "mesh"]
    assert "peer-missing" in answer["signal"]
    assert failures(answer) == []


def test_a_failing_step_becomes_a_row_with_its_last_lines(boot: Boot) -> None:
    """An image without the promised torch is told with the step, its status and its words."""
    answer = boot(peer=True, torch=False)
    assert answer["statuses"] == [1]
    assert begun(answer) == ["host", "mesh", "torch"]
    said = "torch_source is image, but no Python of this image has torch; take an image that has, or index"
    assert failures(answer) == [{"step": "torch", "exit_status": 1, "output": said}]
    assert "bootstrap-failed" in answer["signal"]
    assert said in answer["signal"]


def test_a_boot_that_is_ended_says_so(boot: Boot) -> None:
    """SIGTERM in the middle of the mesh becomes a failed row with status 143."""
    answer = boot(stop_at="mesh")
    assert answer["statuses"] == [143]
    (failure,) = failures(answer)
    assert (failure["step"], failure["exit_status"]) == ("mesh", 143)
    assert failure["output"].endswith("stopped by signal 15")
    assert "status 143" in answer["signal"]


def test_an_asset_that_is_missing_is_signalled(boot: Boot) -> None:
    """Before the probe is there, user data itself signals what failed, without printing the handle's URL."""
    answer = boot(asset=None)
    assert answer["statuses"] == [1]
    assert "bootstrap-failed: node ip-10-9-0-5: step fetch ended with status 1" in answer["signal"]
    assert "status 404 NoSuchKey" in answer["signal"]
    assert "Signature=" not in answer["output"]
    assert answer["rows"] == {}


@pytest.mark.parametrize("place", ["run/fullmesh", "opt/fullmesh", "var/log/fullmesh", "etc/fullmesh"])
def test_a_full_disk_is_signalled(boot: Boot, place: str) -> None:
    """A disk without a byte left, whatever was to be written there, ends the boot at once and is told."""
    answer = boot(full=[place])
    assert answer["statuses"] != [0]
    assert "bootstrap-failed: node ip-10-9-0-5: step " in answer["signal"]
    assert answer["took_s"] < 30
    if place == "opt/fullmesh":
        assert "No space left on device" in answer["signal"]


def test_an_image_with_the_aws_cli_uses_it(boot: Boot) -> None:
    """Where the AWS CLI is in the image, it fetches the asset with the instance's role."""
    installed = Path(sys.prefix) / "awscli"
    if not (installed / "bin" / "aws").exists():
        pytest.skip("the AWS CLI is not installed in this checkout; make setup installs it")
    # Its programs name the place they were installed to, so that is where this image has it, too.
    mounts = {"/opt/aws-cli": str(installed), str(installed): str(installed)}
    answer = boot(mounts=mounts, asset={"bootstrap.sh": "echo it is here; exit 9\n"})
    assert answer["statuses"] == [9]
    assert "/opt/aws-cli/bin/aws" in answer["output"]
    assert "asset.zip: " not in answer["output"], "fetch.py was used"
    assert "step bootstrap ended with status 9" in answer["signal"]


def test_a_broken_archive_is_signalled(boot: Boot) -> None:
    """A bootstrap.sh with a syntax error is signalled with bash's own words."""
    answer = boot(asset={"bootstrap.sh": "if then\n"})
    assert answer["statuses"] == [2]
    assert "step bootstrap ended with status 2" in answer["signal"]


def test_a_configuration_that_cannot_be_read_is_signalled(boot: Boot) -> None:
    """When even the probe cannot report, user data signals the step and its last line."""
    answer = boot(asset={"bootstrap.sh": "echo '{' >/etc/fullmesh/config.json\n" + BOOTSTRAP})
    assert answer["statuses"] != [0]
    assert "bootstrap-failed: node ip-10-9-0-5: step bootstrap" in answer["signal"]
    assert "not a node configuration" in answer["signal"]


def test_an_image_without_python_is_signalled_with_curl(boot: Boot) -> None:
    """Where no python3 runs, the failure is signalled with curl."""
    if not Path("/usr/bin/curl").exists():
        pytest.skip("this machine has no curl")
    pythons = [str(path) for path in Path("/usr/bin").glob("python3") if path.exists()]
    answer = boot(hidden=pythons)
    assert answer["statuses"] == [1]
    assert "step python ended with status 1" in answer["signal"]
    assert "python3 does not run" in answer["signal"]


def test_torch_comes_from_a_wheelhouse(boot: Boot, tmp_path: Path) -> None:
    """The archive of wheels is fetched with the role and installed by the pip in it, without any index."""
    archive = tmp_path / "wheelhouse.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (pip_wheel(), torch_wheel(tmp_path)):
            file.write(path, path.name)
    config = {
        "torch_source": "wheelhouse",
        "torch_requirement": "torch==2.13.0",
        "wheelhouse_key": "wheels.zip",
        "deadline_s": 12,
    }
    answer = boot(peer=True, torch=False, config=config, objects={"wheels.zip": str(archive)})
    assert begun(answer) == ["host", "mesh", "torch", "collective"], answer["logs"].get("torch.log")
    assert (
        answer["logs"]["torch.log"].splitlines()[-1] == "torch is installed: /opt/fullmesh/torch/bin/python"
    )


def test_a_wheelhouse_for_another_machine_is_named(boot: Boot, tmp_path: Path) -> None:
    """A wheelhouse without a torch for this architecture fails the step and lists what it holds."""
    archive = tmp_path / "wheelhouse.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("torch-2.13.0-cp311-cp311-linux_s390x.whl", b"")
    config = {"torch_source": "wheelhouse", "wheelhouse_key": "wheels.zip"}
    answer = boot(peer=True, torch=False, config=config, objects={"wheels.zip": str(archive)})
    (failure,) = failures(answer)
    assert failure["step"] == "torch"
    assert "holds no torch-*.whl for" in failure["output"]
    assert "linux_s390x" in failure["output"]


def test_torch_comes_from_an_index(boot: Boot, tmp_path: Path) -> None:
    """The pip wheel of the asset installs torch from the configured index into an environment of its own."""
    made = torch_wheel(tmp_path / "simple" / "torch")
    (tmp_path / "simple" / "torch" / "index.html").write_text(f'<a href="{made.name}">{made.name}</a>')
    config = {
        "torch_source": "index",
        "torch_requirement": "torch==2.13.0",
        "torch_index_url": "http://localhost:8000/simple",
        "deadline_s": 12,
    }
    answer = boot(
        peer=True, torch=False, config=config, index=str(tmp_path), files={pip_wheel().name: str(pip_wheel())}
    )
    assert begun(answer) == ["host", "mesh", "torch", "collective"], answer["logs"].get("torch.log")
    assert (
        answer["logs"]["torch.log"].splitlines()[-1] == "torch is installed: /opt/fullmesh/torch/bin/python"
    )


def test_an_index_without_that_release_fails_with_pips_words(boot: Boot, tmp_path: Path) -> None:
    """A release that the index does not have becomes a failed row that quotes pip."""
    (tmp_path / "simple" / "torch").mkdir(parents=True)
    config = {
        "torch_source": "index",
        "torch_requirement": "torch==9.9.9",
        "torch_index_url": "http://localhost:8000/simple",
        "deadline_s": 12,
    }
    answer = boot(
        peer=True, torch=False, config=config, index=str(tmp_path), files={pip_wheel().name: str(pip_wheel())}
    )
    (failure,) = failures(answer)
    assert failure["step"] == "torch"
    assert "No matching distribution found for torch==9.9.9" in failure["output"]


def test_an_installer_that_hangs_is_ended_at_the_limit(boot: Boot, tmp_path: Path) -> None:
    """The configured limit ends it, and the row says which limit that was and where it stands."""
    pip = tmp_path / "pip-0.whl"
    with zipfile.ZipFile(pip, "w") as file:
        file.writestr("pip/__main__.py", "import time; time.sleep(100)")
    config = {"torch_source": "index", "torch_requirement": "torch==2.13.0", "install_limit_s": 4}
    answer = boot(peer=True, torch=False, config=config, files={pip.name: str(pip)})
    (failure,) = failures(answer)
    assert (failure["step"], failure["exit_status"]) == ("torch", 124)
    assert "gave up after 4 s (install_limit_s in /etc/fullmesh/config.json)" in failure["output"]


def test_a_node_that_replaces_another_is_proven_by_the_next_check(boot: Boot) -> None:
    """The deploy's PASS does not count for it: it meets the other member's periodic check, then has files."""
    gone = NodeVerdict(rank=0, name="gone", address="10.9.0.4", verdict=Verdict.PASS, member_id="i-0")
    passed = json.dumps(encode(Diagnosis(verdict=Verdict.PASS, nodes=(gone,))))
    standing = {f"rows/r1/AROATEST:i-0/verdict-{stage}.json": passed for stage in ("mesh", "collective")}
    checks = (
        "until [[ -e /opt/fullmesh/fullmesh.pyz ]]; do sleep 0.1; done; "
        "while sleep $((60 - $(date +%s) % 60)); do bash /opt/fullmesh/check.sh && break; done"
    )
    answer = boot(peer=True, peer_runs=checks, standing=standing, config={"check_interval_min": 1})
    assert (answer["statuses"], answer["signal"]) == ([0], "")
    assert begun(answer) == STEPS
    (joined,) = [key for key in answer["rows"] if "/joined~r1-check-" in key]
    assert f"{joined.rpartition('/')[0]}/mesh.json" not in answer["rows"]
    assert f"rows/{joined.partition('~')[2]}/" in " ".join(answer["rows"])
    env = answer["files"]["etc/fullmesh/cluster.env"]
    assert "MASTER_ADDR=10.9.0.5\nMASTER_PORT=29500\nWORLD_SIZE=2\n" in env
    assert "no all_reduce was run beside the others' jobs" in answer["logs"]["collective.log"]
