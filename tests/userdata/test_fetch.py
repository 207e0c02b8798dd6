"""userdata/fetch.py against a server that refuses as S3 does, and keys of a metadata service."""

from __future__ import annotations

import importlib.util
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.probe.aws_server import Answer, Asked, answering
from tests.probe.imds_server import Instance, serving

SOURCE = Path(__file__).resolve().parents[2] / "userdata" / "fetch.py"
OBJECT = Answer(body=b"an archive", headers={"ETag": '"1"'})
AHEAD = timedelta(hours=1)


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program as a module, less patient."""
    spec = importlib.util.spec_from_file_location("fetch", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PATIENCE_S", 3.0)
    return module


def refusal(code: str, status: int, **headers: str) -> Answer:
    return Answer(status=status, body=f"<Error><Code>{code}</Code></Error>".encode(), headers=headers)


def signed_at(asked: Asked) -> datetime:
    return datetime.strptime(asked.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)


def test_a_clock_that_is_off_is_made_up_for(
    fetch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S3 refuses a signature of an hour ago and says its time: the next try is signed with that."""

    def answer(asked: Asked, _: int) -> Answer:
        theirs = datetime.now(timezone.utc) + AHEAD
        if abs(signed_at(asked) - theirs) > timedelta(minutes=15):
            return refusal("RequestTimeTooSkewed", 403, Date=format_datetime(theirs))
        return OBJECT

    with answering(answer) as (url, asked), serving(Instance()) as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service)
        assert fetch.main(["s3://b/k", str(tmp_path / "file"), "eu-central-1"]) == 0
    assert (tmp_path / "file").read_bytes() == b"an archive"
    assert len(asked) == 2


def test_keys_that_ended_are_fetched_again(
    fetch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys may look valid and be refused; the metadata service has newer ones."""

    def answer(asked: Asked, _: int) -> Answer:
        return refusal("ExpiredToken", 400) if "ASIA1/" in asked.headers["authorization"] else OBJECT

    with answering(answer) as (url, asked), serving(Instance()) as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service)
        assert fetch.main(["s3://b/k", str(tmp_path / "file"), "eu-central-1"]) == 0
    assert len(asked) == 2


def test_a_portals_page_is_no_archive(
    fetch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What something else than S3 answers is said, with its beginning, and no file is left."""
    page = Answer(body=b"<html>Welcome to our network</html>")
    with answering(lambda *_: page) as (url, _), serving(Instance()) as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service)
        began = time.monotonic()
        assert fetch.main(["s3://b/k", str(tmp_path / "file"), "eu-central-1"]) == 1
    assert time.monotonic() - began < 30
    assert "something else answered in the place of S3: b'<html>Welcome" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_keys_the_metadata_service_is_named(
    fetch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line, which the stack's event shows, is about the service that failed and not about S3."""
    instance = Instance(answers={"token": (500, "")})
    with answering(lambda *_: OBJECT) as (url, asked), serving(instance) as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service)
        assert fetch.main(["s3://b/k", str(tmp_path / "file"), "eu-central-1"]) == 1
    assert asked == []
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("gave up: instance metadata at 127.0.0.1:")
    assert "(status 500)" in last
    assert "s3" not in last
