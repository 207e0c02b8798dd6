"""Fetch one object of S3 to a file, with the instance's role and Python's standard library alone.

    python3 fetch.py s3://BUCKET/KEY FILE REGION

User data carries this program, with the three modules it imports, for images without an AWS
CLI; the asset holds it too, for the wheelhouse, with PYTHONPATH=fullmesh.pyz.
"""

from __future__ import annotations

import errno
import http.client
import os
import ssl
import sys
import time
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import List

from probe.endpoints import Endpoint
from probe.metadata import InstanceMetadata, MetadataError
from probe.signing import Credentials, encode_path, sign

PATIENCE_S = 60.0  # a new role's policy, a new endpoint's route: both can take some seconds to count
TIMEOUT_S = 10.0
CHUNK_BYTES = 1 << 20


# Of the file that is written, not of the network: another try cannot help.
LOCAL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


class FetchError(RuntimeError):
    """The object did not arrive whole. `final`: another try cannot help. code, date: as S3 gave them."""

    def __init__(self, message: str, final: bool = False, code: str = "", date: str = "") -> None:
        super().__init__(message)
        self.final, self.code, self.date = final, code, date

    def clock_offset(self) -> timedelta:
        """S3's clock minus this host's, where S3 refused for that; zero otherwise."""
        if self.code != "RequestTimeTooSkewed" or not self.date:
            return timedelta(0)
        return parsedate_to_datetime(self.date) - datetime.now(timezone.utc)


def fetch(
    bucket: str, key: str, path: str, *, region: str, keys: Credentials, clock_offset: timedelta
) -> int:
    """Write the object to `path`, whole or not at all; returns its size in bytes.

    Raises:
        FetchError, OSError, http.client.HTTPException: what went wrong in this try.
    """
    endpoint = Endpoint.of("s3", region, "S3")
    target = endpoint.base_path + encode_path(f"/{bucket}/{key}")
    headers = sign(
        credentials=keys,
        method="GET",
        host=endpoint.host_header,
        path=target,
        headers={},
        service="s3",
        region=region,
        now=datetime.now(timezone.utc) + clock_offset,
    )
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=TIMEOUT_S)
    if endpoint.secure:
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=TIMEOUT_S, context=context
        )
    try:
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            code = answer.read().decode(errors="replace").partition("<Code>")[2].partition("</Code>")[0]
            final = answer.status == http.client.NOT_FOUND
            raise FetchError(f"status {answer.status} {code}", final, code, answer.headers.get("Date", ""))
        if "ETag" not in answer.headers:
            raise FetchError(f"something else answered in the place of S3: {answer.read(60)!r}")
        size = 0
        with open(f"{path}.part", "wb") as file:
            while True:
                chunk = answer.read(CHUNK_BYTES)
                if not chunk:
                    break
                size += file.write(chunk)
        expected = answer.headers.get("Content-Length", str(size))
        if str(size) != expected:
            raise FetchError(f"{size} of {expected} bytes arrived")
        os.replace(f"{path}.part", path)
        return size
    finally:
        connection.close()


def main(arguments: List[str]) -> int:
    if len(arguments) != 3 or not arguments[0].startswith("s3://"):
        sys.stderr.write("usage: fetch.py s3://BUCKET/KEY FILE REGION\n")
        return 2
    url, path, region = arguments
    bucket, _, key = url[len("s3://") :].partition("/")
    metadata = InstanceMetadata()
    give_up_at = time.monotonic() + PATIENCE_S
    wait_s = 0.5
    renew, clock_offset = False, timedelta(0)
    while True:
        try:
            keys = metadata.credentials(renew)
            size = fetch(bucket, key, path, region=region, keys=keys, clock_offset=clock_offset)
        except (FetchError, MetadataError, OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in LOCAL_ERRORS:
                sys.stderr.write(f"{path} cannot be written: {error.strerror}; see df -h on the node\n")
                return 1
            sys.stderr.write(f"{url}: {error or type(error).__name__}\n")
            if isinstance(error, FetchError):
                renew, clock_offset = error.code == "ExpiredToken", clock_offset + error.clock_offset()
            if getattr(error, "final", False) or time.monotonic() + wait_s > give_up_at:
                # The last error stands last: the stack's event shows the end of what is said here.
                step = (
                    "; check that it is there, that the role may s3:GetObject it, and that the node reaches "
                    f"s3 in {region}: a gateway endpoint, or egress on port 443"
                )
                own = isinstance(error, MetadataError)  # which says what to do, and it is not that
                sys.stderr.write(f"gave up: {error or type(error).__name__}{'' if own else step}\n")
                return 1
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 8.0)
        else:
            sys.stdout.write(f"{url}: {size} bytes\n")
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
