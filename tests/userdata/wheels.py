"""Real, installable wheels, made here: small, and none of them from an index."""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path


def wheel(folder: Path, name: str, version: str, tag: str, contents: Mapping[str, str]) -> Path:
    """A wheel in `folder` that installs these files (path below site-packages -> text)."""
    files = {
        **contents,
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    record = io.StringIO()
    for path, text in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        csv.writer(record).writerow([path, f"sha256={digest}", len(text)])
    csv.writer(record).writerow([f"{name}-{version}.dist-info/RECORD", "", ""])
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in {**files, f"{name}-{version}.dist-info/RECORD": record.getvalue()}.items():
            archive.writestr(path, text)
    return made
