"""The composition root: what it reads, and how it ends on what cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.synthesis import ACCOUNT, CHECKOUT, REGION, Json, cdk_json, synthesise


def run_app(folder: Path, context: Json) -> subprocess.CompletedProcess[str]:
    """`python app.py` as the CDK CLI runs it."""
    environment = {
        **os.environ,
        "CDK_OUTDIR": str(folder),
        "CDK_CONTEXT_JSON": json.dumps({**cdk_json(), **context}),
        "CDK_DEFAULT_ACCOUNT": ACCOUNT,
        "CDK_DEFAULT_REGION": REGION,
    }
    return subprocess.run(
        [sys.executable, "app.py"],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"cluster.nodes": "1"}, "cluster.nodes: 1 is not within 2-1000"),
        ({"cluster.nodez": "8"}, "cluster.nodez: is not a setting; did you mean nodes?"),
        ({"cluster.instance_type": "t3.large"}, "is a T type, which no cluster placement group takes"),
        ({"cluster": "nodes=8"}, "is not JSON"),
        ({"fullmesh:unsafe-rules": "all-open"}, "fullmesh:unsafe-rules: 'all-open' is none of"),
        (
            {"cluster.torch_source": "wheelhouse", "cluster.wheelhouse_path": "/nowhere"},
            "/nowhere holds no torch-*.whl",
        ),
    ],
)
def test_what_cannot_be_ends_before_synthesis(tmp_path: Path, context: Json, words: str) -> None:
    """Exit 1, one readable line, no traceback, no template."""
    done = run_app(tmp_path, context)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.template.json"))


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    """One run shows everything there is to mend."""
    done = run_app(tmp_path, {"cluster.nodes": "1", "cluster.master_port": "80"})
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        "cluster.nodes",
        "cluster.master_port",
    ]


def test_an_image_that_nobody_looked_up_is_asked_of_the_cli(tmp_path: Path) -> None:
    """Without credentials the synthesis succeeds and tells the CLI what to look up."""
    done = run_app(tmp_path, {})
    assert (done.returncode, done.stdout) == (0, "")
    missing = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["missing"]
    assert [item["props"]["parameterName"] for item in missing] == [
        "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
    ]


@pytest.mark.parametrize(
    ("context", "parameter"),
    [
        ({"operating_system": "al2023", "instance_type": "c7g.xlarge"}, "al2023-ami-kernel-default-arm64"),
        ({"operating_system": "ubuntu"}, "24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"),
        ({"operating_system": "ubuntu", "instance_type": "c7g.xlarge"}, "current/arm64/hvm/ebs-gp3/ami-id"),
    ],
)
def test_the_image_fits_system_and_architecture(context: dict[str, Any], parameter: str) -> None:
    """The parameter's path names both."""
    given = {f"cluster__{key}": value for key, value in context.items()}
    found = synthesise(cluster__ami_id="", **given)
    missing = json.loads((found.folder / "manifest.json").read_text(encoding="utf-8"))["missing"]
    (name,) = (item["props"]["parameterName"] for item in missing)
    assert name.endswith(parameter)


def test_a_value_on_the_command_line_wins_over_cdk_json() -> None:
    """`-c cluster.nodes=8` arrives as text beside the object."""
    found = synthesise(cluster__nodes="8", cluster__name="eight")
    group = found.one("AWS::AutoScaling::AutoScalingGroup")
    assert group["DesiredCapacity"] == "8"
    assert "eight" in found.cluster["Description"]


def test_the_cluster_is_deployed_after_its_evidence() -> None:
    """What explains a failed deploy must stand before it begins."""
    manifest = json.loads((synthesise().folder / "manifest.json").read_text(encoding="utf-8"))
    assert "fullmesh-evidence" in manifest["artifacts"]["fullmesh"]["dependencies"]


def test_outputs_tell_where_everything_is() -> None:
    """The verdict first of all; then evidence, dashboard and a shell."""
    assert sorted(synthesise().cluster["Outputs"]) == [
        "Dashboard",
        "Evidence",
        "GroupName",
        "MemberGroupId",
        "OpenShell",
        "Run",
        "Verdict",
        "VpcId",
    ]
