"""The EC2 instance metadata service (IMDSv2): who this node is, and its role's credentials.

Imports nothing but `signing`, for the same reason: user data carries both files as they stand.
Connections go straight to the link-local address; proxy variables are never read.
Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Dict, Optional, Tuple
from urllib.parse import urlsplit

from probe.signing import Credentials

TOKEN_TTL_S = 21600  # the longest the service grants
REFRESH_BEFORE_EXPIRY = timedelta(minutes=5)  # new keys are there at least this long before the old ones end
ATTEMPTS = 3
BACK_OFF_S = 0.2


class MetadataError(RuntimeError):
    """The metadata service did not answer, or has no such fact. `status` is None when it did not answer."""

    def __init__(self, message: str, status: Optional[int] = None) -> None:
        super().__init__(message)
        self.status = status


class InstanceMetadata:
    """Reads facts of this instance; safe to share between threads.

    Args:
        endpoint: another address than http://169.254.169.254, as AWS_EC2_METADATA_SERVICE_ENDPOINT gives it.
        timeout_s: of one attempt to connect or read. The service is one hop away: what is not there
            in 2 s on a loaded machine is not there.
    """

    def __init__(self, endpoint: Optional[str] = None, timeout_s: float = 2.0) -> None:
        configured = (
            endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
        )
        parts = urlsplit(configured)
        if parts.scheme != "http" or not parts.hostname:
            raise MetadataError(f"metadata endpoint {configured!r} is no http:// address")
        self._host, self._port = parts.hostname, parts.port or 80
        self._timeout_s = timeout_s
        self._token: Optional[str] = None
        self._token_until = 0.0
        self._credentials: Optional[Credentials] = None
        self._lock = threading.RLock()

    def instance_id(self) -> str:
        return self.get("instance-id")

    def private_ipv4(self) -> str:
        """The primary private IPv4 address of the primary interface."""
        return self.get("local-ipv4")

    def local_hostname(self) -> str:
        return self.get("local-hostname")

    def security_group_ids(self) -> Tuple[str, ...]:
        """The groups of the primary interface."""
        return tuple(self.get(f"network/interfaces/macs/{self.get('mac')}/security-group-ids").split())

    def region(self) -> str:
        return self.get("placement/region")

    def credentials(self, renew: bool = False) -> Credentials:
        """The keys of this instance's role, fetched again when they are about to expire (or on `renew`).

        Raises:
            MetadataError: no role is attached, or the service has no keys for it.
        """
        with self._lock:
            if renew or self._credentials is None or _expires_soon(self._credentials):
                self._credentials = self._fetch_credentials(self._credentials)
            return self._credentials

    def get(self, path: str) -> str:
        """The text at /latest/meta-data/PATH.

        Raises:
            MetadataError: with status 404 when the instance has no such fact.
        """
        with self._lock:
            status, text = self._request("GET", f"/latest/meta-data/{path}", self._fresh_token())
            if status == http.client.UNAUTHORIZED:  # the token ended early, as it does after hibernation
                self._token = None
                status, text = self._request("GET", f"/latest/meta-data/{path}", self._fresh_token())
        if status != http.client.OK:
            raise MetadataError(f"instance metadata has no {path!r} (status {status})", status)
        return text.strip()

    def _fetch_credentials(self, previous: Optional[Credentials]) -> Credentials:
        try:
            role = self.get("iam/security-credentials/").splitlines()[0]
            found = json.loads(self.get(f"iam/security-credentials/{role}"))
            if found.get("Code", "Success") != "Success":
                raise MetadataError(
                    f"the role {role!r} gives no credentials: {found['Code']}; check its trust policy"
                )
            return Credentials(
                access_key_id=found["AccessKeyId"],
                secret_access_key=found["SecretAccessKey"],
                session_token=found["Token"],
                expires_at=datetime.strptime(found["Expiration"], "%Y-%m-%dT%H:%M:%SZ").replace(
                    tzinfo=timezone.utc
                ),
            )
        except MetadataError as error:
            if previous and previous.expires_at and previous.expires_at > datetime.now(timezone.utc):
                return previous
            if error.status == http.client.NOT_FOUND:
                raise MetadataError(
                    "no role is attached to this instance; attach an instance profile", 404
                ) from None
            raise
        except (ValueError, KeyError, IndexError) as error:  # never show the document: it holds the secret
            raise MetadataError(f"the credentials document cannot be read ({type(error).__name__})") from None

    def _fresh_token(self) -> str:
        if self._token is None or time.monotonic() > self._token_until:
            status, text = self._request("PUT", "/latest/api/token", None)
            if status != http.client.OK:
                raise MetadataError(
                    f"instance metadata refused a token (status {status}); enable it with "
                    "aws ec2 modify-instance-metadata-options --http-endpoint enabled",
                    status,
                )
            self._token, self._token_until = text, time.monotonic() + TOKEN_TTL_S - 60
        return self._token

    def _request(self, method: str, path: str, token: Optional[str]) -> Tuple[int, str]:
        """One answer below 500, after a few tries."""
        if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise MetadataError("instance metadata is switched off by AWS_EC2_METADATA_DISABLED; unset it")
        headers: Dict[str, str] = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        if token is not None:
            headers = {"X-aws-ec2-metadata-token": token}
        failure = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(BACK_OFF_S * 2**attempt)
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            try:
                connection.request(method, path, headers=headers)
                response = connection.getresponse()
                text = response.read().decode()
                if response.status < http.client.INTERNAL_SERVER_ERROR:
                    return response.status, text
                failure = f"status {response.status}"
            except (OSError, http.client.HTTPException) as error:
                failure = str(error) or type(error).__name__
            finally:
                connection.close()
        raise MetadataError(
            f"instance metadata at {self._host}:{self._port} did not answer {method} {path} in "
            f"{ATTEMPTS} tries ({failure}); this is no EC2 instance, or in a container its hop limit is 1: "
            "aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2"
        )


def _expires_soon(credentials: Credentials) -> bool:
    ends = credentials.expires_at
    return ends is not None and ends - datetime.now(timezone.utc) < REFRESH_BEFORE_EXPIRY
