"""The rendered user data: it fits, bash reads it, and it carries no second copy of anything."""

from __future__ import annotations

import base64
import bz2
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import aws_cdk as cdk
import pytest

from cluster.node_config import NodeConfig
from cluster.ports import PortRange
from cluster.serial import decode
from stacks.user_data import FETCH_PARTS, LIMIT_BYTES, ROOT, packed_fetch, render_user_data

CONFIG = NodeConfig(
    cluster='it\'s "quoted" $HOME `id` \\n ü',
    run="0123456789ab",
    nodes=400,
    master_port=29500,
    region="ap-southeast-2",
    bucket="b" * 63,
    role_id="AROA" + "X" * 17,
    ephemeral_ports=PortRange(50000, 50999),
    handle_url="https://cloudformation-waitcondition-ap-southeast-2.s3.ap-southeast-2.amazonaws.com/arn?"
    + "x" * 600,
    log_group="g" * 120,
    metric_namespace="Fullmesh",
    torch_requirement="torch==2.13.0",
    torch_index_url="https://index.example/whl/cpu",
    asset_bucket="c" * 63,
    wheelhouse_key="k" * 68,
)


def rendered() -> str:
    """User data with values as long as they get."""
    return render_user_data(CONFIG, asset_bucket="c" * 63, asset_key="k" * 68 + ".zip")


def heredoc(script: str, name: str) -> str:
    """What stands between <<'NAME' and NAME."""
    return script.partition(f"<<'{name}'\n")[2].partition(f"\n{name}\n")[0]


def test_it_fits_with_room_to_spare() -> None:
    """With the longest values, user data stays below EC2's 16,384 bytes."""
    assert len(rendered().encode()) <= LIMIT_BYTES - 512


def test_bash_can_read_it() -> None:
    """The script parses, whatever quotes the configuration holds."""
    subprocess.run(["bash", "-n"], input=rendered(), text=True, check=True)


def test_the_configuration_arrives_as_it_was() -> None:
    """The node reads back exactly the configuration, quotes, dollars and backslashes included."""
    assert decode(NodeConfig, json.loads(heredoc(rendered(), "CONFIG"))) == CONFIG


def test_the_packed_fetch_is_the_repositorys_own_files() -> None:
    """Unpacked, the archive holds the files byte for byte: there is no second copy to keep."""
    packed = bz2.decompress(base64.b85decode("".join(heredoc(rendered(), "FETCH").split())))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    assert held == {name: (ROOT / source).read_bytes() for name, source in FETCH_PARTS.items()}
    assert packed_fetch() == packed_fetch()


def test_the_packed_fetch_runs_alone(tmp_path: Path) -> None:
    """It starts outside the checkout, so nothing it imports is missing from the archive."""
    (tmp_path / "fetch.pyz").write_bytes(bz2.decompress(base64.b85decode(packed_fetch())))
    command = [sys.executable, "-I", str(tmp_path / "fetch.pyz")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: fetch.py s3://BUCKET/KEY FILE REGION\n")


def test_nothing_is_left_to_fill_in() -> None:
    """Every placeholder of launch.sh is filled, and none is found inside a value."""
    script = rendered()
    assert [
        name
        for name in ("ASSET_BUCKET", "ASSET_KEY", "REGION", "HANDLE_URL", "CONFIG", "FETCH")
        if f"@{name}@" in script
    ] == []


def test_tokens_survive() -> None:
    """Values that only the deploy knows stay references in the template's user data."""
    stack = cdk.Stack(cdk.App(), "S")
    handle = cdk.CfnWaitConditionHandle(stack, "Handle")
    config = NodeConfig(
        cluster="demo", run="r", nodes=2, master_port=29500, region=stack.region, bucket="b", role_id="i",
        handle_url=handle.ref,
    )  # fmt: skip
    text = render_user_data(config, asset_bucket=cdk.Fn.ref("AWS::AccountId"), asset_key="k")
    resolved = json.dumps(stack.resolve(cdk.Fn.base64(text)))
    assert "${Token" not in resolved
    assert resolved.count('{"Ref": "Handle"}') == 2
    assert resolved.count('{"Ref": "AWS::AccountId"}') == 1


def test_a_quote_that_would_end_the_script_is_refused() -> None:
    """A value that stands in shell quotes must not hold one."""
    with pytest.raises(ValueError, match='asset_key "k\'; reboot" holds a quote'):
        render_user_data(CONFIG, asset_bucket="b", asset_key="k'; reboot")
