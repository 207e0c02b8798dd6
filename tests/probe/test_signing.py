"""Signatures are compared with botocore's, request by request."""

from __future__ import annotations

import string
from datetime import datetime, timezone
from unittest import mock
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given
from hypothesis import strategies as st

from probe.signing import Credentials, encode_path, encode_query, sign

NAMES = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=12)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SEGMENT = st.one_of(st.sampled_from(["..", ".", "", "a:b", "AROAX:i-0", "member~10.0.0.1~29500~1,2"]), TEXT)
PATHS = st.lists(SEGMENT, max_size=5).map(lambda parts: "/" + "/".join(parts))
HEADER_VALUES = st.text(string.ascii_letters + string.digits + " ;=/,:", max_size=30)
HEADERS = st.dictionaries(NAMES.map(lambda name: f"x-amz-meta-{name.lower()}"), HEADER_VALUES, max_size=3)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1))


def botocore_headers(
    service: str,
    region: str,
    keys: Credentials,
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes,
    now: datetime,
) -> dict[str, str]:
    """What botocore would send for the same request at the same moment."""
    signer = (S3SigV4Auth if service == "s3" else SigV4Auth)(
        BotocoreCredentials(keys.access_key_id, keys.secret_access_key, keys.session_token), service, region
    )
    request = AWSRequest(method=method, url=url, headers=headers, data=body)
    with mock.patch("botocore.auth.get_current_datetime", return_value=now):
        signer.add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


@given(
    service=st.sampled_from(["s3", "ec2", "monitoring", "logs"]),
    region=st.sampled_from(["eu-central-1", "cn-north-1", "us-gov-west-1"]),
    token=st.one_of(st.none(), st.text(string.ascii_letters + "+/=", min_size=1, max_size=40)),
    secret=st.text(string.ascii_letters + string.digits + "+/", min_size=1, max_size=40),
    method=st.sampled_from(["GET", "PUT", "POST", "HEAD", "DELETE", "get"]),
    host=st.sampled_from(["bucket.s3.eu-central-1.amazonaws.com", "127.0.0.1:4566"]),
    path=PATHS,
    query=st.lists(st.tuples(TEXT, TEXT), max_size=4),
    headers=HEADERS,
    body=st.binary(max_size=200),
    now=MOMENTS,
)
def test_headers_equal_those_of_botocore(
    service: str,
    region: str,
    token: str | None,
    secret: str,
    method: str,
    host: str,
    path: str,
    query: list[tuple[str, str]],
    headers: dict[str, str],
    body: bytes,
    now: datetime,
) -> None:
    """Any method, path, query, header and body gives exactly the headers that botocore gives."""
    keys = Credentials(access_key_id="AKIDEXAMPLE", secret_access_key=secret, session_token=token)
    path, encoded = encode_path(path), encode_query(query)
    url = f"http://{host}{path}" + (f"?{encoded}" if encoded else "")
    assert urlsplit(url).path == path
    ours = sign(
        credentials=keys,
        method=method,
        host=host,
        path=path,
        query=encoded,
        headers=headers,
        body=body,
        service=service,
        region=region,
        now=now,
    )
    ours = {name.lower(): value for name, value in ours.items() if name != "Host"}
    assert ours == botocore_headers(service, region, keys, method, url, headers, body, now)


def test_the_documented_example_of_s3() -> None:
    """The GET example in the S3 reference is signed with the documented signature."""
    headers = sign(
        credentials=Credentials(
            access_key_id="AKIAIOSFODNN7EXAMPLE",
            secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",  # noqa: S106 - AWS's own published example
        ),
        method="GET",
        host="examplebucket.s3.amazonaws.com",
        path="/test.txt",
        headers={"Range": "bytes=0-9"},
        service="s3",
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=timezone.utc),
    )
    assert headers["Authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_secrets_do_not_show() -> None:
    """Neither the secret key nor the session token appears in the repr of credentials."""
    shown = repr(Credentials(access_key_id="AKID", secret_access_key="hidden-1", session_token="hidden-2"))  # noqa: S106 - made up
    assert "hidden" not in shown
    assert "AKID" in shown
