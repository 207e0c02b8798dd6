"""What is installed here, read from files: nothing of it is imported.

Gloo has no version of its own in torch: it is a submodule, fixed by torch's commit.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from importlib import metadata
from typing import Dict, Optional


def read_versions() -> Dict[str, str]:
    """python, kernel, machine, os; torch and torch_git where this Python has it."""
    found = {"python": platform.python_version(), "kernel": os.uname().release, "machine": os.uname().machine}
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]+)', _text("/etc/os-release"), re.M)
    if pretty:
        found["os"] = pretty.group(1)
    return {**found, **torch_build()}


def torch_build() -> Dict[str, str]:
    """torch: its version; torch_git: the commit it was built from. Empty when this Python has none."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        text = _text(os.path.join(folder, "version.py"))
        version, commit = _assigned("__version__", text), _assigned("git_version", text)
        if version:
            return {"torch": version, **({"torch_git": commit} if commit else {})}
    if spec is None:
        return {}
    try:
        return {"torch": metadata.version("torch")}
    except metadata.PackageNotFoundError:
        return {}


def torch_version() -> Optional[str]:
    """The installed torch's version; None when this Python has none."""
    return torch_build().get("torch")


def _assigned(name: str, text: str) -> Optional[str]:
    found = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)", text, re.M)
    return found.group(1) if found else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
