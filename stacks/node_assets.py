"""What nodes and functions fetch: one archive each, the same bytes from the same sources."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path

from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from cluster.spec import ClusterSpec, TorchSource
from tools.build_pyz import build

ROOT = Path(__file__).resolve().parent.parent
PIP_WHEELS = ROOT / ".venv" / "wheels"
FUNCTION_PACKAGES = ("cluster", "diagnosis", "audit", "stacks/runtime")


class NodeAssets(Construct):
    """The archive every node fetches: fullmesh.pyz, bootstrap.sh, the systemd units, and pip.

    pip comes along unless torch is in the image: Ubuntu's has none, and no package manager is
    asked. It is the pinned wheel that `make setup` fetched, so that the archive is the same from
    any machine.

    tools: that archive. wheelhouse: the folder of wheels, for torch source `wheelhouse`.
    """

    def __init__(self, scope: Construct, id_: str, *, spec: ClusterSpec) -> None:
        super().__init__(scope, id_)
        with tempfile.TemporaryDirectory(prefix="fullmesh-") as staging:
            folder = Path(staging) / "node"
            shutil.copytree(ROOT / "userdata", folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            build(folder / "fullmesh.pyz")
            if spec.torch_source is not TorchSource.IMAGE:
                shutil.copy(pip_wheel(), folder)
            self.tools = s3_assets.Asset(self, "Tools", path=str(folder))
        self.wheelhouse: s3_assets.Asset | None = None
        if spec.torch_source is TorchSource.WHEELHOUSE:
            path = Path(spec.wheelhouse_path).expanduser()
            if not any(path.glob("torch-*.whl")):
                raise ValueError(
                    f"cluster.wheelhouse_path: {spec.wheelhouse_path} holds no torch-*.whl; fill it with "
                    f"pip download torch=={spec.torch_version} --index-url {spec.torch_index_url} "
                    f"-d {shlex.quote(spec.wheelhouse_path)}"
                )
            self.wheelhouse = s3_assets.Asset(self, "Wheelhouse", path=str(path))

    @property
    def objects(self) -> list[tuple[str, str]]:
        """Bucket and key of everything a node may fetch."""
        assets = [self.tools, *([self.wheelhouse] if self.wheelhouse else [])]
        return [(asset.s3_bucket_name, asset.s3_object_key) for asset in assets]

    @property
    def digest(self) -> str:
        """Changes when anything that nodes fetch changes."""
        return self.tools.asset_hash + (self.wheelhouse.asset_hash if self.wheelhouse else "")


def pip_wheel() -> Path:
    """The wheel of pip that nodes get.

    Raises:
        ValueError: it was not fetched.
    """
    found = sorted(PIP_WHEELS.glob("pip-*.whl"))
    if len(found) != 1:
        raise ValueError(f"{PIP_WHEELS} holds {len(found)} pip-*.whl, 1 is needed; run: make setup")
    return found[0]


def function_code(scope: Construct) -> s3_assets.Asset:
    """The archive of the Lambda functions: their handlers beside the judging code they share with nodes."""
    with tempfile.TemporaryDirectory(prefix="fullmesh-") as staging:
        folder = Path(staging) / "functions"
        for package in FUNCTION_PACKAGES:
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "stacks" / "__init__.py", folder / "stacks" / "__init__.py")
        return s3_assets.Asset(scope, "FunctionCode", path=str(folder))
