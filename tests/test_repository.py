"""What must hold for the repository as a whole."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.spec import ClusterSpec
from tools import figures

CHECKOUT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for package in ("cluster", "diagnosis", "probe", "audit", "stacks", "lab", "tools", "bench", "userdata")
    for path in (CHECKOUT / package).rglob("*.py")
)
LONGEST_MODULE_LINES = 400  # "near 300": past this a module holds more than one thing


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_modules_are_short_and_say_what_they_are(path: Path) -> None:
    """Every module has a docstring and no more lines than a reader holds."""
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no module docstring"
    assert len(text.splitlines()) <= LONGEST_MODULE_LINES


def test_every_test_has_a_sentence() -> None:
    """A test without a docstring does not say what its failure would mean."""
    without = [
        f"{path.relative_to(CHECKOUT)}:{node.name}"
        for path in sorted((CHECKOUT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert without == []


def test_generated_pages_are_current() -> None:
    """docs/causes.md and docs/configuration.md are what `make docs` writes."""
    for command, page in (
        (["-m", "diagnosis.docs"], "docs/causes.md"),
        (["tools/configuration_page.py"], "docs/configuration.md"),
    ):
        written = subprocess.run(
            [sys.executable, *command], cwd=CHECKOUT, capture_output=True, text=True, check=True
        ).stdout
        assert written == (CHECKOUT / page).read_text(), f"{page} is stale; run: make docs"


def test_the_readmes_figures_are_the_stored_ones() -> None:
    """The table is what the stored measurements give, so no figure in it was written by hand."""
    readme = (CHECKOUT / "README.md").read_text()
    assert figures.with_table(readme) == readme, "the figures are stale; run: make docs"
    assert "CREATE_COMPLETE |" in readme.partition("<!-- figures -->")[2]


def test_the_lab_and_the_nodes_use_one_torch() -> None:
    """The release that the lab proves with is the one that nodes install."""
    requirement = re.search(
        r"^torch==(\S+)$", (CHECKOUT / "requirements-torch.txt").read_text(), re.MULTILINE
    )
    assert requirement is not None
    assert requirement[1] == ClusterSpec().torch_version


def test_links_between_pages_lead_somewhere() -> None:
    """Relative links in README, CONTRIBUTING and docs name files that exist."""
    pages = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
    broken = [
        f"{page.relative_to(CHECKOUT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
