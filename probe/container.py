"""Credentials of a container's role, as ECS and EKS Pod Identity hand them out.

Source: https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
"""

from __future__ import annotations

import http.client
import ipaddress
import json
from datetime import datetime, timezone
from typing import Dict, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from probe.signing import Credentials

RELATIVE = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
FULL = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
TOKEN = "AWS_CONTAINER_AUTHORIZATION_TOKEN"  # noqa: S105 - a variable's name
TOKEN_FILE = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"  # noqa: S105 - as above
_ECS = "169.254.170.2"
# Only these may be asked without TLS: ECS, EKS Pod Identity, and this host itself.
_PLAIN = frozenset((_ECS, "169.254.170.23", "fd00:ec2::23", "localhost"))
_TIMEOUT_S = 5.0
_MAX_BYTES = 64 * 1024


class ContainerError(RuntimeError):
    """The container's credentials cannot be had; the text never holds a token or a key."""


def offered(environ: Mapping[str, str]) -> bool:
    """Whether this process runs in a container that has a role."""
    return bool(environ.get(RELATIVE) or environ.get(FULL))


def fetch(environ: Mapping[str, str]) -> Credentials:
    """The role's keys, as the container's agent gives them now.

    Raises:
        ContainerError: the address is not allowed, or nothing that can be used is there.
    """
    host, port, path, secure = _endpoint(environ)
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(host, port, timeout=_TIMEOUT_S)
    where = f"{host}:{port}"
    try:
        connection.request("GET", path, headers=_headers(environ))
        response = connection.getresponse()
        data = response.read(_MAX_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ContainerError(f"no answer from {where} ({error or type(error).__name__})") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise ContainerError(f"{where} refused them (status {response.status})")
    try:
        found = json.loads(data)
        return Credentials(
            access_key_id=found["AccessKeyId"],
            secret_access_key=found["SecretAccessKey"],
            session_token=found.get("Token"),
            expires_at=_time(found.get("Expiration")),
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:  # never the document: it holds the secret
        raise ContainerError(f"the answer of {where} cannot be read ({type(error).__name__})") from None


def _endpoint(environ: Mapping[str, str]) -> Tuple[str, int, str, bool]:
    """Host, port, path, and whether by TLS. The relative form goes first, as in every SDK."""
    relative = environ.get(RELATIVE)
    if relative:
        return _ECS, 80, relative, False
    parts = urlsplit(environ.get(FULL, ""))
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    try:
        port = parts.port or (443 if secure else 80)
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise ContainerError(f"{FULL} is no http:// or https:// address")
    if not secure and not _may_be_plain(host):
        raise ContainerError(f"{FULL} names {host} without TLS; only loopback, ECS and EKS may be asked so")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host, port, path, secure


def _may_be_plain(host: str) -> bool:
    try:
        return host in _PLAIN or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _headers(environ: Mapping[str, str]) -> Dict[str, str]:
    path = environ.get(TOKEN_FILE)
    token: Optional[str] = environ.get(TOKEN)
    if path:  # read each time: EKS renews the file
        try:
            with open(path, encoding="ascii") as file:
                token = file.read(_MAX_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ContainerError(f"{TOKEN_FILE}={path} cannot be read: {error}") from error
    if token and not token.isprintable():
        raise ContainerError(f"{TOKEN_FILE if path else TOKEN} holds characters that no header can")
    return {"Authorization": token} if token else {}


def _time(text: Optional[str]) -> Optional[datetime]:
    if text is None:
        return None
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
