"""AWS Signature Version 4 in the standard library alone.

This file imports nothing of the project: the launch template's user data carries it as it
stands, so that a fresh image with neither AWS CLI nor boto3 can fetch the asset.
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime
from typing import Dict, Iterable, List, Mapping, Optional, Tuple
from urllib.parse import quote

UNSIGNED_HEADERS = frozenset({"connection", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"})


@dataclass(frozen=True)
class Credentials:
    """Keys to sign with; the secret parts never show in a repr. expires_at: timezone-aware, None = never."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: Optional[str] = field(default=None, repr=False)
    expires_at: Optional[datetime] = None


def encode_path(path: str) -> str:
    """Percent-encode a path the way it must go over the wire: all but unreserved characters and "/"."""
    return quote(path, safe="/-_.~")


def encode_query(pairs: Iterable[Tuple[str, str]]) -> str:
    """Percent-encode and sort query parameters; what is signed is then also what is sent."""
    encoded = sorted((quote(key, safe="-_.~"), quote(value, safe="-_.~")) for key, value in pairs)
    return "&".join(f"{key}={value}" for key, value in encoded)


def sign(
    *,
    credentials: Credentials,
    method: str,
    host: str,
    path: str,
    query: str = "",
    headers: Mapping[str, str],
    body: bytes = b"",
    service: str,
    region: str,
    now: datetime,
) -> Dict[str, str]:
    """Return `headers` with Host, date, token and Authorization added.

    Args:
        host: as in the Host header: with the port unless it is the scheme's own.
        path: as sent, percent-encoded once (`encode_path`). Services other than S3 sign it
            normalised and encoded a second time.
        query: as sent (`encode_query`).
        now: in UTC.
    """
    timestamp = now.strftime("%Y%m%dT%H%M%SZ")
    payload_hash = hashlib.sha256(body).hexdigest()
    signed = {**headers, "Host": host, "X-Amz-Date": timestamp}
    if credentials.session_token:
        signed["X-Amz-Security-Token"] = credentials.session_token
    if service == "s3":
        signed["X-Amz-Content-SHA256"] = payload_hash
    canonical = {
        name.lower(): " ".join(value.split())
        for name, value in signed.items()
        if name.lower() not in UNSIGNED_HEADERS
    }
    names = sorted(canonical)
    request = "\n".join(
        [
            method.upper(),
            path if service == "s3" else quote(_normalise(path), safe="/~"),
            "&".join("=".join(pair) for pair in sorted(_split(query))),
            *(f"{name}:{canonical[name]}" for name in names),
            "",
            ";".join(names),
            payload_hash,
        ]
    )
    scope = [timestamp[:8], region, service, "aws4_request"]
    key = b"AWS4" + credentials.secret_access_key.encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = "\n".join(
        ["AWS4-HMAC-SHA256", timestamp, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()]
    )
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    signed["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key_id}/{'/'.join(scope)}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return signed


def _split(query: str) -> Iterable[Tuple[str, str]]:
    for pair in query.split("&") if query else ():
        key, _, value = pair.partition("=")
        yield key, value


def _normalise(path: str) -> str:
    """Remove empty, "." and ".." segments, as RFC 3986 and every service but S3 want it."""
    kept: List[str] = []
    for segment in path.split("/"):
        if segment == "..":
            kept = kept[:-1]
        elif segment not in ("", "."):
            kept.append(segment)
    return "/" + "/".join(kept) + ("/" if kept and path.endswith("/") else "")
