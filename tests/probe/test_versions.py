"""What is installed, read from files."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from probe.versions import read_versions, torch_build

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_torch_of_this_python() -> None:
    """Version and commit as torch's own file has them."""
    build = torch_build()
    assert build["torch"] == version("torch")
    assert len(build["torch_git"]) == 40
    assert build.items() <= read_versions().items()


def test_nothing_is_imported() -> None:
    """Reading versions costs no import of torch."""
    code = (
        "import sys; from probe.versions import read_versions; read_versions(); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "__version__ = '2.1.0'\ngit_version = 'abc'\n", {"torch": "2.1.0", "torch_git": "abc"}, id="old"
        ),
        pytest.param("__version__: str = '2.1.0'\n", {"torch": "2.1.0"}, id="no commit"),
        pytest.param("nothing\n", {"torch": version("torch")}, id="the package's metadata"),
    ],
)
def test_other_torches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: dict[str, str]
) -> None:
    """The file of the torch that would be imported counts."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "version.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert torch_build() == expected
