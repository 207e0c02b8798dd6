"""The evidence bucket as the meeting place: `rows/RUN/ROLE_ID:INSTANCE_ID/OBJECT`.

IAM lets a node write below its own aws:userid (= ROLE_ID:INSTANCE_ID) and nowhere else. To
the rest of the probe a member is its instance id; the role's part stays in here.
"""

from __future__ import annotations

from typing import Dict, Tuple

from probe.aws import S3Client
from probe.board import BoardContentError, BoardError
from probe.transport import AwsError


class S3Board:
    """The objects of one run in the evidence bucket."""

    def __init__(self, client: S3Client, run: str, role_id: str, instance_id: str) -> None:
        self._client = client
        self._prefix = f"rows/{run}/"
        self._role_id = role_id
        self._own = f"{self._prefix}{role_id}:{instance_id}/"
        self._keys: Dict[str, str] = {}

    def post(self, name: str, body: bytes) -> None:
        try:
            self._client.put_object(self._own + name, body)
        except AwsError as error:
            raise BoardError(str(error)) from error

    def names(self) -> Tuple[str, ...]:
        try:
            keys = self._client.list_keys(self._prefix)
        except AwsError as error:
            raise BoardError(str(error)) from error
        for key in keys:
            member, _, name = key[len(self._prefix) :].partition("/")
            self._keys[f"{member.rpartition(':')[2]}/{name}"] = key
        return tuple(sorted(self._keys))

    def read(self, name: str) -> bytes:
        try:
            return self._client.get_object(self._key(name))
        except AwsError as error:
            if error.code == "NoSuchKey":
                raise BoardContentError(str(error)) from error
            raise BoardError(str(error)) from error

    def where(self, name: str) -> str:
        return f"s3://{self._client.bucket}/{self._key(name)}"

    def _key(self, name: str) -> str:
        return self._keys.get(name, f"{self._prefix}{self._role_id}:{name}")
