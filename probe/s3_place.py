"""`--meet s3://BUCKET/PREFIX`: any bucket that all members may read and write, in any region.

A member needs s3:ListBucket on the bucket for the prefix, and s3:PutObject and s3:GetObject below it.
"""

from __future__ import annotations

import os
import re
from typing import Optional

from cluster.keys import run_prefix
from probe.aws import S3Client, xml_texts
from probe.credentials import CredentialChain
from probe.metadata import InstanceMetadata, MetadataError
from probe.place import DiscoverError
from probe.s3_board import S3Board
from probe.transport import AwsError

SCHEME = "s3://"
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ANY_REGION = "us-east-1"  # it knows where every bucket of the partition is
_PREFIX_BYTES = 512  # of S3's 1,024 for a key; a registration's name takes up to 200


def s3_board(meet: str, run: str, member_id: str) -> S3Board:
    """The board of a run below the prefix.

    Raises:
        DiscoverError: `meet` is no s3://BUCKET/PREFIX.
    """
    bucket, _, prefix = meet[len(SCHEME) :].partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(bucket) or len(prefix.encode()) > _PREFIX_BYTES:
        raise DiscoverError(
            f"--meet {meet} is not s3://BUCKET/PREFIX with a bucket's name and at most {_PREFIX_BYTES} bytes "
            "of prefix"
        )
    return bucket_board(bucket, prefix, run_prefix(run), member_id)


def bucket_board(bucket: str, prefix: str, run: str, member_id: str = "") -> S3Board:
    """The board of a run's folder below a prefix ("" = none), in whatever region the bucket is.

    member_id: who posts; "" where one only reads.
    """
    whole = (prefix + "/" if prefix else "") + run
    return S3Board(_client(bucket, whole), whole, member_id, patient=False)


def _client(bucket: str, prefix: str) -> S3Client:
    """In the bucket's own region, which S3 tells to whoever asks in another one."""
    credentials = CredentialChain()
    region = _own_region()
    client = S3Client(bucket=bucket, region=region, credentials=credentials)
    try:
        client.list_keys(prefix)
    except AwsError as error:
        other = bucket_region(error)
        if other is not None and other != region:
            client.close()
            return S3Client(bucket=bucket, region=other, credentials=credentials)
    return client  # what else is wrong is told when the member tries to register


def _own_region() -> str:
    """The environment's, else the instance's, else one that knows all buckets."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named or os.environ.get("AWS_ACCESS_KEY_ID"):
        return named or _ANY_REGION
    try:
        return InstanceMetadata(timeout_s=1.0).region()
    except MetadataError:
        return _ANY_REGION


def bucket_region(error: AwsError) -> Optional[str]:
    """The region that a refusal names as the bucket's.

    PermanentRedirect has it in a header, AuthorizationHeaderMalformed in the body
    (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
    """
    if error.answer is None:
        return None
    headers = {name.lower(): value for name, value in error.answer.headers.items()}
    if headers.get("x-amz-bucket-region"):
        return headers["x-amz-bucket-region"]
    try:
        return next(iter(xml_texts(error.answer.body, ("Region",)).get("Region", [])), None)
    except SyntaxError:  # ElementTree.ParseError is one
        return None
