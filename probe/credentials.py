"""Whose keys sign a call: the environment's, a container's role, the instance's role."""

from __future__ import annotations

import os
import threading
from datetime import datetime, timedelta, timezone
from typing import Optional

from probe import container
from probe.metadata import InstanceMetadata, MetadataError
from probe.signing import Credentials
from probe.transport import AwsError

_UNREAD = "profiles (AWS_PROFILE, SSO) and AWS_WEB_IDENTITY_TOKEN_FILE"
_RENEW_BEFORE = timedelta(minutes=5)


class CredentialChain:
    """Keys from the first place that offers any; call it to get them. Safe to share between threads."""

    def __init__(self, metadata: Optional[InstanceMetadata] = None) -> None:
        self._metadata = metadata
        self._container: Optional[Credentials] = None
        self._lock = threading.Lock()

    def __call__(self, renew: bool = False) -> Credentials:
        """
        Args:
            renew: get new ones even if the old look valid.

        Raises:
            AwsError: `NoCredentials`, where no place has a whole pair of keys.
        """
        key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
        if key and secret:
            return Credentials(
                access_key_id=key,
                secret_access_key=secret,
                session_token=os.environ.get("AWS_SESSION_TOKEN") or None,
            )
        if key or secret:
            missing = "AWS_SECRET_ACCESS_KEY" if key else "AWS_ACCESS_KEY_ID"
            raise _none(f"{missing} is not set", "set it, or unset both so that the role is used")
        with self._lock:
            return self._of_container(renew) if container.offered(os.environ) else self._of_instance(renew)

    def _of_container(self, renew: bool) -> Credentials:
        known = self._container
        if known is None or renew or _ends_soon(known):
            try:
                known = self._container = container.fetch(os.environ)
            except container.ContainerError as error:
                raise _none(
                    str(error), "check the task's or the pod's role, or set AWS_ACCESS_KEY_ID"
                ) from None
        return known

    def _of_instance(self, renew: bool) -> Credentials:
        try:
            if self._metadata is None:
                self._metadata = InstanceMetadata()
            return self._metadata.credentials(renew)
        except MetadataError as error:
            step = (
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run on an instance with a role; "
                f"{_UNREAD} are not read here, AWS CLI 2 turns them into variables: "
                'eval "$(aws configure export-credentials --format env)"'
            )
            raise _none(str(error), step) from None


def _ends_soon(credentials: Credentials) -> bool:
    ends = credentials.expires_at
    return ends is not None and ends - datetime.now(timezone.utc) < _RENEW_BEFORE


def _none(message: str, next_step: str) -> AwsError:
    return AwsError(
        service="credentials",
        operation="Resolve",
        code="NoCredentials",
        status=None,
        message=message,
        next_step=next_step,
    )
