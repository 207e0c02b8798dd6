"""What nodes fetch: the probe, the scripts, and pip where torch is not in the image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stacks.node_assets import pip_wheel
from tests.stacks.synthesis import synthesise


def asset_of_nodes(folder: Path) -> set[str]:
    """The names in the archive that every node fetches."""
    manifest = json.loads((folder / "fullmesh.assets.json").read_text(encoding="utf-8"))
    (found,) = (
        {item.name for item in (folder / file["source"]["path"]).iterdir()}
        for file in manifest["files"].values()
        if (folder / file["source"]["path"] / "fullmesh.pyz").exists()
    )
    return found


@pytest.mark.parametrize(("source", "has_pip"), [("index", True), ("wheelhouse", True), ("image", False)])
def test_pip_comes_along_unless_torch_is_in_the_image(source: str, has_pip: bool, tmp_path: Path) -> None:
    """Ubuntu's Python has no pip, and a node asks no package manager for one."""
    (tmp_path / "torch-2.13.0-cp311-cp311-linux_x86_64.whl").write_bytes(b"")
    wheels = {"cluster__wheelhouse_path": str(tmp_path)} if source == "wheelhouse" else {}
    names = asset_of_nodes(synthesise(cluster__torch_source=source, **wheels).folder)
    assert {"fullmesh.pyz", "bootstrap.sh", "check.sh", "fetch.py", "fullmesh-check.timer"} <= names
    assert [name for name in names if name.startswith("pip-")] == ([pip_wheel().name] if has_pip else [])


def test_a_wheelhouse_without_torch_is_refused(tmp_path: Path) -> None:
    """The node would find out only after its launch."""
    with pytest.raises(ValueError, match=r"holds no torch-\*\.whl; fill it with pip download torch==2.13.0"):
        synthesise(cluster__torch_source="wheelhouse", cluster__wheelhouse_path=str(tmp_path))
