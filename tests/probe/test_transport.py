"""Retries, connections and errors, against a server that misbehaves on demand."""

from __future__ import annotations

import socket
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from probe.aws import S3Client
from probe.signing import Credentials
from probe.transport import AwsError, RetryPolicy
from tests.probe.aws_server import Answer, Asked, answering

QUICK = RetryPolicy(total_s=5.0, timeout_s=2.0, base_s=0.01, cap_s=0.02)
KEYS = Credentials(access_key_id="AKID", secret_access_key="hidden-secret", session_token="hidden-token")  # noqa: S106 - made up
OK = Answer(body=b"row", headers={"ETag": '"of-a-row"'})


def error(status: int, code: str, message: str = "said the service") -> Answer:
    """An S3 error answer."""
    return Answer(
        status=status, body=f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    )


def client(monkeypatch: pytest.MonkeyPatch, url: str, policy: RetryPolicy = QUICK) -> S3Client:
    """A client of one bucket, with proxies set that would break every call if they were used."""
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    return S3Client(bucket="rows", region="eu-central-1", credentials=lambda renew: KEYS, policy=policy)


@pytest.mark.parametrize(
    "bad",
    [
        error(503, "SlowDown"),
        error(500, "InternalError"),
        error(400, "RequestTimeout"),
        Answer(status=502, body=b"<html>"),
        Answer(status=504),
        Answer(silent=True),
        Answer(body=b"0123456789", sent=4),
    ],
)
def test_what_passes_is_tried_again(monkeypatch: pytest.MonkeyPatch, bad: Answer) -> None:
    """Throttling, server errors, a lost answer and one cut short are repeated until the whole answer came."""
    with answering(lambda _, number: bad if number < 2 else OK) as (url, asked):
        assert client(monkeypatch, url).get_object("key") == b"row"
    assert len(asked) == 3


def test_a_refusal_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Access denied is not repeated; the error names service, operation, code, status and the permission."""
    with (
        answering(lambda *_: error(403, "AccessDenied", "Access Denied")) as (url, asked),
        pytest.raises(AwsError) as caught,
    ):
        client(monkeypatch, url).put_object("rows/r/me/mesh.json", b"{}")
    assert str(caught.value) == (
        "s3 PutObject failed: AccessDenied (status 403): Access Denied; "
        "allow s3:PutObject on rows/rows/r/me/mesh.json in this node's role"
    )
    assert (caught.value.denied, caught.value.status, caught.value.operation) == (True, 403, "PutObject")
    assert len(asked) == 1


def test_tries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that stays unavailable is given up after the policy's tries, with its own words."""
    with (
        answering(lambda *_: error(503, "SlowDown")) as (url, asked),
        pytest.raises(AwsError, match=r"SlowDown \(status 503\): said the service"),
    ):
        client(monkeypatch, url).get_object("key")
    assert len(asked) == QUICK.attempts


def test_the_total_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No try and no wait begins that would go beyond the policy's total."""
    policy = RetryPolicy(total_s=0.5, timeout_s=0.2, attempts=100, base_s=0.05, cap_s=0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(
            AwsError, match=r"no answer from 127\.0\.0\.1:.*timed out; check that this node reaches it"
        ):
            client(monkeypatch, url, policy).get_object("key")
        assert time.monotonic() - began < 3
    assert silent.fileno() == -1


def test_a_closed_port_is_unreachable_not_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listening is told as such, with what to check."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(AwsError) as caught:
        client(monkeypatch, f"http://127.0.0.1:{port}").list_keys("rows/")
    assert (caught.value.code, caught.value.status, caught.value.denied) == ("Unreachable", None, False)
    assert f"egress on port {port}" in caught.value.next_step


def test_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten calls in a row share one connection."""
    with answering(lambda *_: OK) as (url, asked):
        s3 = client(monkeypatch, url)
        for _ in range(10):
            s3.get_object("key")
        s3.close()
    assert len(asked) == 10
    assert len({request.connection for request in asked}) == 1


def test_an_idle_connection_that_was_closed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept connection that the service has closed meanwhile costs no try: one try is enough."""
    policy = RetryPolicy(total_s=5.0, timeout_s=2.0, attempts=1)

    def closes_once(_: Asked, number: int) -> Answer:
        return Answer(silent=True) if number == 1 else OK

    with answering(closes_once) as (url, asked):
        s3 = client(monkeypatch, url, policy)
        assert s3.get_object("first") == b"row"
        assert s3.get_object("second") == b"row"
    assert [request.target for request in asked] == ["/rows/first", "/rows/second", "/rows/second"]


def test_a_wrong_clock_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request refused for its time is signed again by the service's clock, and the offset is known."""
    ahead = datetime.now(timezone.utc) + timedelta(hours=2)
    date = {"Date": format_datetime(ahead, usegmt=True)}

    def strict(request: Asked, _: int) -> Answer:
        signed = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(
            tzinfo=timezone.utc
        )
        good = abs(signed - ahead) < timedelta(minutes=15)
        given = OK if good else error(403, "RequestTimeTooSkewed")
        return Answer(status=given.status, body=given.body, headers={**given.headers, **date})

    with answering(strict) as (url, asked):
        s3 = client(monkeypatch, url)
        assert s3.get_object("key") == b"row"
        assert s3.get_object("key") == b"row"
        assert s3.clock_offset_s == pytest.approx(7200, abs=5)
    assert len(asked) == 3


def test_expired_credentials_are_renewed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ExpiredToken makes the client ask its source for new keys, and no more than once."""
    renewals: list[bool] = []

    def source(renew: bool) -> Credentials:
        renewals.append(renew)
        return KEYS

    with answering(lambda *_: error(400, "ExpiredToken")) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        s3 = S3Client(bucket="rows", region="eu-central-1", credentials=source, policy=QUICK)
        with pytest.raises(AwsError, match="renew the credentials"):
            s3.get_object("key")
    assert renewals == [False, True]


def test_errors_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the secret key nor the session token appears in an error, its repr or its cause."""
    with (
        answering(lambda *_: error(403, "SignatureDoesNotMatch")) as (url, asked),
        pytest.raises(AwsError) as caught,
    ):
        client(monkeypatch, url).get_object("key")
    assert asked[0].headers["x-amz-security-token"] == "hidden-token"
    assert "hidden" not in f"{caught.value}{caught.value!r}{caught.value.__cause__}{vars(caught.value)}"
