"""What a node says to AWS, without boto3: rows and the signal (`cloudwatch` has metrics and log events).

Why not boto3: docs/decisions/0003-node-aws-client.md. Every client reads AWS_ENDPOINT_URL and
AWS_ENDPOINT_URL_<SERVICE>, keeps its connections, and raises `AwsError` with the next step.
"""

from __future__ import annotations

import json
from typing import Dict, List, Optional, Sequence, Tuple
from urllib.parse import unquote_plus, urlsplit

from cluster.keys import SIGNAL_UNIQUE_ID
from probe.credentials import CredentialChain
from probe.endpoints import Endpoint
from probe.signing import encode_path, encode_query
from probe.transport import AwsError, CredentialSource, Request, Response, RetryPolicy, Transport

SIGNAL_DATA_BYTES = 4096  # CloudFormation's limit
LISTING = ("Key", "EncodingType", "IsTruncated", "NextContinuationToken")
FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


class S3Client:
    """Objects of one bucket. Path-style addresses where the endpoint is a custom one."""

    def __init__(
        self,
        *,
        bucket: str,
        region: str,
        credentials: Optional[CredentialSource] = None,
        policy: Optional[RetryPolicy] = None,
    ) -> None:
        endpoint = Endpoint.of("s3", region, "S3")
        self._prefix = "/"
        if endpoint.custom or "." in bucket:  # a dot in the name would not match the certificate
            self._prefix = f"/{encode_path(bucket)}/"
        else:
            endpoint = Endpoint.parse(f"https://{bucket}.{endpoint.host}")
        self.bucket = bucket
        self._transport = Transport(
            service="s3",
            region=region,
            endpoint=endpoint,
            credentials=credentials or CredentialChain(),
            parse_error=xml_error,
            policy=policy,
        )

    @property
    def clock_offset_s(self) -> Optional[float]:
        """S3's clock minus this host's, to about a second, as of the last answer."""
        return self._transport.clock_offset_s

    def put_object(self, key: str, body: bytes, content_type: str = "application/json") -> None:
        self._object(
            Request(
                operation="PutObject",
                permission=f"s3:PutObject on {self.bucket}/{key}",
                method="PUT",
                path=self._prefix + encode_path(key),
                headers={"Content-Type": content_type},
                body=body,
            )
        )

    def get_object(self, key: str) -> bytes:
        """Raises AwsError `NoSuchKey`: there is none (or, without s3:ListBucket, `AccessDenied`)."""
        return self._object(
            Request(
                operation="GetObject",
                permission=f"s3:GetObject on {self.bucket}/{key}",
                method="GET",
                path=self._prefix + encode_path(key),
            )
        ).body

    def _object(self, request: Request) -> Response:
        """An answer about an object, which has an ETag, or it is not S3's."""
        response = self._transport.call(request)
        if not any(name.lower() == "etag" for name in response.headers):
            raise _not_s3(request.operation, response, "it has no ETag")
        return response

    def list_keys(self, prefix: str) -> List[str]:
        """Every key below `prefix`, in the order S3 gives: by bytes."""
        keys: List[str] = []
        token: Optional[str] = None
        while True:
            query = [("list-type", "2"), ("prefix", prefix), ("encoding-type", "url")]
            if token is not None:
                query.append(("continuation-token", token))
            response = self._transport.call(
                Request(
                    operation="ListObjectsV2",
                    permission=f"s3:ListBucket on {self.bucket} for prefix {prefix}",
                    method="GET",
                    path=self._prefix,
                    query=encode_query(query),
                )
            )
            try:
                fields = xml_texts(response.body, LISTING)
            except SyntaxError:  # as in `xml_error`
                fields = {}
            if "IsTruncated" not in fields:
                raise _not_s3("ListObjectsV2", response, "it is no listing")
            encoded = fields.get("EncodingType") == ["url"]
            keys += [unquote_plus(key) if encoded else key for key in fields.get("Key", [])]
            if fields.get("IsTruncated") != ["true"]:
                return keys
            token = "".join(fields.get("NextContinuationToken", []))
            if not token:
                raise _not_s3("ListObjectsV2", response, "it is cut short and has no token for the rest")

    def close(self) -> None:
        self._transport.close()


def _not_s3(operation: str, response: Response, why: str) -> AwsError:
    """A page of a proxy or captive portal has status 200, too, and would pass for an empty bucket."""
    begins = " ".join(response.body[:120].decode(errors="replace").split())
    return AwsError(
        service="s3",
        operation=operation,
        code="NotS3",
        status=response.status,
        message=f"something else answered in the place of S3: {why}, and begins with {begins[:60]!r}",
        next_step="check for a proxy or a captive portal on the way, and AWS_ENDPOINT_URL_S3 on this node",
    )


def signal(
    *,
    handle_url: str,
    status: str,
    reason: str,
    unique_id: str = SIGNAL_UNIQUE_ID,
    data: str = "",
    policy: Optional[RetryPolicy] = None,
) -> None:
    """Signal a CloudFormation wait condition; the URL is pre-signed, so no role is needed.

    The Content-Type must be empty: it is part of what was signed.
    `data` beyond CloudFormation's 4,096 bytes is cut.

    Raises:
        ValueError: status is neither SUCCESS nor FAILURE.
        AwsError: the signal was not taken. The URL is never shown: whoever has it can signal.
    """
    if status not in ("SUCCESS", "FAILURE"):
        raise ValueError(f"signal status {status!r} is neither SUCCESS nor FAILURE")
    parts = urlsplit(handle_url)
    cut = data.encode()[:SIGNAL_DATA_BYTES].decode(errors="ignore")
    document = {"Status": status, "Reason": reason, "UniqueId": unique_id, "Data": cut}
    transport = Transport(
        service="cloudformation",
        region="",
        endpoint=Endpoint.parse(f"{parts.scheme}://{parts.netloc}"),
        credentials=None,
        parse_error=xml_error,
        policy=policy,
    )
    try:
        transport.call(
            Request(
                operation="SignalWaitCondition",
                permission="the wait condition's bucket in the S3 endpoint's policy (or the handle expired)",
                method="PUT",
                path=parts.path,
                query=parts.query,
                headers={"Content-Type": ""},
                body=json.dumps(document).encode(),
            )
        )
    finally:
        transport.close()


def xml_texts(body: bytes, names: Sequence[str]) -> Dict[str, List[str]]:
    """The texts of the named elements, wherever they stand, in document order."""
    from xml.etree import ElementTree  # noqa: PLC0415 - loads expat; AWS's own answers over a verified channel

    found: Dict[str, List[str]] = {}
    for element in ElementTree.fromstring(body).iter():  # noqa: S314 - as above
        name = element.tag.rpartition("}")[2]
        if name in names:
            found.setdefault(name, []).append(element.text or "")
    return found


def xml_error(response: Response) -> Tuple[str, str]:
    """Code and message of an error answer of S3 and of the query services."""
    try:
        fields = xml_texts(response.body, ("Code", "Message"))
    except SyntaxError:  # ElementTree.ParseError is one: a proxy's page, or nothing at all
        fields = {}
    code = fields.get("Code", [f"Http{response.status}"])[0]
    return code, fields.get("Message", ["no message"])[0]
