"""Builds `fullmesh.pyz`: cluster/, diagnosis/ and probe/ as one file that any Python from 3.9 on runs.

The same sources give the same bytes: fixed times and modes, sorted names, no compiled files.

    python tools/build_pyz.py [DESTINATION]        (default: dist/fullmesh.pyz)
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = ("cluster", "diagnosis", "probe")
SHEBANG = b"#!/usr/bin/env python3\n"
MAIN = b"import sys\n\nfrom probe.cli import main\n\nsys.exit(main())\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold
_REGULAR_FILE = 0o100644 << 16
_UNIX = 3


def build(destination: Path) -> str:
    """Write the one-file build, executable, whole or not at all.

    Returns:
        Its SHA-256 in hexadecimal.
    """
    content = io.BytesIO()
    content.write(SHEBANG)
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in sorted(_sources()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = _REGULAR_FILE
            entry.create_system = _UNIX
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    whole = content.getvalue()
    destination.parent.mkdir(parents=True, exist_ok=True)
    unfinished = destination.with_name(f".{destination.name}.part")
    unfinished.write_bytes(whole)
    unfinished.chmod(0o755)
    unfinished.replace(destination)
    return hashlib.sha256(whole).hexdigest()


def _sources() -> list[tuple[str, bytes]]:
    found = [("__main__.py", MAIN)]
    for package in PACKAGES:
        for path in (CHECKOUT / package).rglob("*.py"):
            found.append((path.relative_to(CHECKOUT).as_posix(), path.read_bytes()))
    return found


def main() -> None:
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKOUT / "dist" / "fullmesh.pyz"
    digest = build(destination)
    sys.stdout.write(f"{digest}  {destination}  {destination.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
