"""The launch template's user data: userdata/launch.sh with a member's facts filled in.

Values may be CDK tokens: they are only ever put between other text, and none is measured or
parsed. What a fresh image needs to fetch the asset travels inside: the modules of the probe
that sign a request, packed. The packing gives the same bytes on every machine, because they
are part of what decides whether the fleet is replaced.
"""

from __future__ import annotations

import base64
import bz2
import io
import json
import zipfile
from pathlib import Path

from cluster import serial
from cluster.node_config import NodeConfig

ROOT = Path(__file__).resolve().parent.parent
FETCH_PARTS = {
    "__main__.py": "userdata/fetch.py",
    "probe/__init__.py": "probe/__init__.py",  # an archive has no packages without it
    "probe/endpoints.py": "probe/endpoints.py",
    "probe/metadata.py": "probe/metadata.py",
    "probe/signing.py": "probe/signing.py",
}
LIMIT_BYTES = 16384  # EC2's limit before base64


def render_user_data(config: NodeConfig, *, asset_bucket: str, asset_key: str) -> str:
    """The bash script that an instance runs at its first boot.

    Args:
        config: as the node will read it from /etc/fullmesh/config.json.
        asset_bucket, asset_key: the archive with fullmesh.pyz and bootstrap.sh.
    """
    document = json.dumps(serial.encode(config), indent=1)
    values = {
        "ASSET_BUCKET": asset_bucket,
        "ASSET_KEY": asset_key,
        "REGION": config.region,
        "HANDLE_URL": config.handle_url,
        "FETCH": "\n".join(_wrapped(packed_fetch())),
        "CONFIG": document,  # last, so that nothing is looked for inside it
    }
    for name in ("ASSET_BUCKET", "ASSET_KEY", "REGION", "HANDLE_URL"):
        if "'" in values[name]:
            raise ValueError(f"{name.lower()} {values[name]!r} holds a quote, which user data cannot carry")
    text = (ROOT / "userdata" / "launch.sh").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def packed_fetch() -> str:
    """userdata/fetch.py and what it imports, as one runnable archive, in base85: user data is short of room.

    The archive itself is not compressed and bzip2's output has not changed since 2000, whereas
    deflate's differs between zlib and its drop-in replacements.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, source in sorted(FETCH_PARTS.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # unix, also when packed elsewhere
            file.writestr(entry, (ROOT / source).read_bytes())
    return base64.b85encode(bz2.compress(archive.getvalue())).decode()


def _wrapped(text: str, width: int = 100) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)]
