"""A member's row as a file, for those who have no place to meet and gather rows by hand."""

from __future__ import annotations

import contextlib
import json
import os
import uuid

from cluster.serial import encode
from diagnosis.report import NodeReport
from probe.place import DiscoverError

ROW_NAME = "row.json"
"""Of the row in a bundle."""

_SUFFIX = ".json"


def check_writable(path: str) -> None:
    """A folder that is named as one (`rows/`) is made where only it is missing.

    Raises:
        DiscoverError: nothing can be written there; told before anything is probed.
    """
    if path.endswith(os.sep):
        with contextlib.suppress(OSError):  # what is the matter is told below
            os.mkdir(path)
    folder = path if _is_folder(path) else os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise DiscoverError(f"--row {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DiscoverError(f"--row {path}: cannot write in {folder}; give a folder of your own")


def write_row(path: str, row: NodeReport) -> str:
    """Write the row whole or not at all, for its owner alone; in a folder its name is the member's.

    Returns:
        The file's path.

    Raises:
        OSError: it cannot be written.
    """
    if _is_folder(path):
        path = os.path.join(path, row.member_id + _SUFFIX)
    unfinished = os.path.join(os.path.dirname(path) or ".", f".{uuid.uuid4().hex}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(encode(row), file, indent=1)
            file.write("\n")
        os.replace(unfinished, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)
    return path


def _is_folder(path: str) -> bool:
    return path.endswith(os.sep) or os.path.isdir(path)
