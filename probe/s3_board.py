"""A prefix of a bucket as the meeting place: `PREFIX/RUN/MEMBER/OBJECT`.

In the evidence bucket IAM lets a node write below its own aws:userid (= ROLE_ID:INSTANCE_ID) and
nowhere else. To the rest of the probe a member is its instance id; the role's part stays in here.
"""

from __future__ import annotations

from typing import Dict, Tuple, Type

from probe.aws import S3Client
from probe.board import BoardContentError, BoardError, NowhereError
from probe.transport import RETRIED_STATUSES, AwsError


class S3Board:
    """The objects of one run."""

    def __init__(
        self, client: S3Client, prefix: str, member_id: str, *, role_id: str = "", patient: bool = True
    ) -> None:
        """
        Args:
            prefix: of the run, with its slash.
            role_id: what stands before a member's id and a colon in its folder's name; "" = nothing.
            patient: whether what S3 refuses may still be granted, as a new role's permissions are.
        """
        self._client = client
        self._prefix = prefix
        self._role = f"{role_id}:" if role_id else ""
        self._own = f"{self._prefix}{self._role}{member_id}/"
        self._patient = patient
        self._keys: Dict[str, str] = {}

    def post(self, name: str, body: bytes) -> None:
        try:
            self._client.put_object(self._own + name, body)
        except AwsError as error:
            raise self._failed(error)(str(error)) from error

    def names(self) -> Tuple[str, ...]:
        try:
            keys = self._client.list_keys(self._prefix)
        except AwsError as error:
            raise self._failed(error)(str(error)) from error
        for key in keys:
            member, _, name = key[len(self._prefix) :].partition("/")
            if self._role:
                member = member.rpartition(":")[2]
            self._keys[f"{member}/{name}"] = key
        return tuple(sorted(self._keys))

    def read(self, name: str) -> bytes:
        try:
            return self._client.get_object(self._key(name))
        except AwsError as error:
            if error.code == "NoSuchKey":
                raise BoardContentError(str(error)) from error
            raise self._failed(error)(str(error)) from error

    def where(self, name: str) -> str:
        return f"s3://{self._client.bucket}/{self._key(name)}"

    def _key(self, name: str) -> str:
        return self._keys.get(name, f"{self._prefix}{self._role}{name}")

    def _failed(self, error: AwsError) -> Type[BoardError]:
        """What was refused stays refused, unless somebody has only just allowed it."""
        refused = error.code == "NoCredentials" or (
            error.status is not None and error.status not in RETRIED_STATUSES
        )
        return NowhereError if refused and not self._patient else BoardError
