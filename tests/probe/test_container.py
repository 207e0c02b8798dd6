"""A container's role: where its keys are fetched, what is refused, and what no error ever shows."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path

import pytest

from probe.container import ContainerError, fetch, offered
from probe.credentials import CredentialChain
from probe.transport import AwsError
from tests.probe.aws_server import Answer, Asked, answering

DOCUMENT = {
    "AccessKeyId": "ASIAEXAMPLE",
    "SecretAccessKey": "hidden-secret",
    "Token": "hidden-token",
    "Expiration": "2030-01-01T00:00:00Z",
}


def serving(
    document: object = DOCUMENT, status: int = 200
) -> AbstractContextManager[tuple[str, list[Asked]]]:
    return answering(lambda asked, number: Answer(status=status, body=json.dumps(document).encode()))


def test_keys_come_with_the_token_of_the_file(tmp_path: Path) -> None:
    """The file's token goes before the variable's: EKS renews the file."""
    (tmp_path / "token").write_text("from-the-file\n")
    with serving() as (url, asked):
        found = fetch(
            {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/v1/credentials?x=1",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
                "AWS_CONTAINER_AUTHORIZATION_TOKEN": "from-the-variable",
            }
        )
    assert (found.access_key_id, found.session_token) == ("ASIAEXAMPLE", "hidden-token")
    assert found.expires_at == datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert (asked[0].target, asked[0].headers["authorization"]) == ("/v1/credentials?x=1", "from-the-file")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http://10.0.0.5/x", "names 10.0.0.5 without TLS"),
        ("http://169.254.169.254/x", "names 169.254.169.254 without TLS"),
        ("http://metadata.example/x", "without TLS; only loopback, ECS and EKS"),
        ("ftp://127.0.0.1/x", "is no http:// or https:// address"),
        ("http://127.0.0.1:port/x", "is no http:// or https:// address"),
        ("x", "is no http:// or https:// address"),
    ],
)
def test_a_token_is_sent_to_no_other_host(uri: str, words: str) -> None:
    """An address that is not the container's agent would get the token in plain text."""
    with pytest.raises(ContainerError, match=words):
        fetch({"AWS_CONTAINER_CREDENTIALS_FULL_URI": uri, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "t"})


@pytest.mark.parametrize(
    ("document", "status", "words"),
    [
        ({"AccessKeyId": "A", "SecretAccessKey": None, "Expiration": 7}, 200, "cannot be read"),
        ({"SecretAccessKey": "hidden-secret"}, 200, "cannot be read \\(KeyError\\)"),
        (["hidden-secret"], 200, "cannot be read"),
        ({"message": "hidden-secret"}, 403, "refused them \\(status 403\\)"),
    ],
)
def test_an_answer_that_cannot_be_used_never_shows(document: object, status: int, words: str) -> None:
    """The error names the agent and the kind of trouble, and nothing of what was sent."""
    with serving(document, status) as (url, _), pytest.raises(ContainerError, match=words) as caught:
        fetch({"AWS_CONTAINER_CREDENTIALS_FULL_URI": url})
    assert "hidden" not in str(caught.value)


def test_a_token_that_no_header_can_hold_is_refused(tmp_path: Path) -> None:
    """A line break in a token would begin another header."""
    with pytest.raises(ContainerError, match="holds characters that no header can") as caught:
        fetch(
            {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN": "hidden\r\nX: 1",
            }
        )
    assert "hidden" not in str(caught.value)


def test_the_chain_takes_the_container_before_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are fetched once while they are valid, and again when they are refused."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with serving() as (url, asked):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        chain = CredentialChain()
        assert [chain().access_key_id, chain().access_key_id] == ["ASIAEXAMPLE", "ASIAEXAMPLE"]
        assert len(asked) == 1
        chain(renew=True)
        assert len(asked) == 2
    with pytest.raises(AwsError, match="check the task's or the pod's role"):
        chain(renew=True)


def test_only_a_container_offers_any() -> None:
    """Without either variable the instance is asked."""
    assert offered({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"})
    assert not offered({"AWS_CONTAINER_AUTHORIZATION_TOKEN": "t"})
