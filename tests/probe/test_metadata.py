"""The metadata client against a real service on a loopback port."""

from __future__ import annotations

import socket
import time
from datetime import datetime, timedelta, timezone

import pytest

from probe.metadata import ATTEMPTS, InstanceMetadata, MetadataError
from tests.probe.imds_server import Instance, serving


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of this machine, and proxies that would break every request if they were used."""
    for name in ("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")


def test_facts_are_those_of_the_service() -> None:
    """Every accessor reads its own path, through one token, whatever proxy is set."""
    instance = Instance()
    with serving(instance) as url:
        metadata = InstanceMetadata(url)
        facts = (
            metadata.instance_id(),
            metadata.private_ipv4(),
            metadata.local_hostname(),
            metadata.security_group_ids(),
            metadata.region(),
        )
    assert facts == (
        "i-0123456789abcdef0",
        "10.9.0.5",
        "ip-10-9-0-5.eu-central-1.compute.internal",
        ("sg-1", "sg-2"),
        "eu-central-1",
    )
    assert [asked for asked in instance.requests if asked.startswith("PUT")] == ["PUT /latest/api/token"]


def test_an_ended_token_is_replaced() -> None:
    """A token that the service no longer takes is renewed, once, and the fact is read all the same."""
    instance = Instance(token_lives=1)
    with serving(instance) as url:
        metadata = InstanceMetadata(url)
        assert [metadata.instance_id(), metadata.region()] == ["i-0123456789abcdef0", "eu-central-1"]
    assert instance.requests.count("PUT /latest/api/token") == 2


def test_credentials_are_kept_until_they_are_about_to_expire() -> None:
    """Keys with hours to live are fetched once; keys with minutes are fetched again on every use."""
    instance = Instance(lives=timedelta(hours=6))
    with serving(instance) as url:
        metadata = InstanceMetadata(url)
        assert {metadata.credentials().access_key_id for _ in range(3)} == {"ASIA1"}
        assert metadata.credentials(renew=True).access_key_id == "ASIA2"
        instance.lives = timedelta(minutes=4)
        assert metadata.credentials(renew=True).access_key_id == "ASIA3"
        found = metadata.credentials()
    assert (found.access_key_id, found.secret_access_key) == ("ASIA4", "wJalrXUtnFEMI")
    assert found.session_token == "session-wJalrXUtnFEMI"  # noqa: S105 - made up
    assert found.expires_at is not None
    assert timedelta(minutes=3) < found.expires_at - datetime.now(timezone.utc) <= timedelta(minutes=4)


def test_old_credentials_serve_while_new_ones_cannot_be_had() -> None:
    """A refresh that fails is no failure as long as the old keys are still valid."""
    instance = Instance(lives=timedelta(minutes=4))
    with serving(instance) as url:
        metadata = InstanceMetadata(url)
        first = metadata.credentials()
        instance.answers["iam/security-credentials/"] = (404, "")
        assert metadata.credentials() == first


def test_an_instance_without_a_role_says_so() -> None:
    """No role is told as such, with what to attach."""
    instance = Instance(answers={"iam/security-credentials/": (404, "")})
    with serving(instance) as url, pytest.raises(MetadataError) as caught:
        InstanceMetadata(url).credentials()
    assert str(caught.value) == "no role is attached to this instance; attach an instance profile"
    assert caught.value.status == 404


def test_a_broken_document_does_not_show_its_secret() -> None:
    """Credentials that cannot be read are an error that quotes none of them."""
    broken = '{"AccessKeyId": "ASIA", "SecretAccessKey": "do-not-show", "Token": '
    instance = Instance(answers={"iam/security-credentials/mesh-role": (200, broken)})
    with serving(instance) as url, pytest.raises(MetadataError) as caught:
        InstanceMetadata(url).credentials()
    assert str(caught.value) == "the credentials document cannot be read (JSONDecodeError)"


def test_a_disabled_service_says_how_to_enable_it() -> None:
    """Status 403 for a token means that the instance has its metadata switched off."""
    instance = Instance(answers={"token": (403, "")})
    with serving(instance) as url, pytest.raises(MetadataError) as caught:
        InstanceMetadata(url).instance_id()
    assert "modify-instance-metadata-options --http-endpoint enabled" in str(caught.value)


def test_the_environment_can_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_EC2_METADATA_DISABLED=true is honoured before anything is sent."""
    instance = Instance()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with serving(instance) as url, pytest.raises(MetadataError, match="AWS_EC2_METADATA_DISABLED"):
        InstanceMetadata(url).instance_id()
    assert instance.requests == []


def test_a_service_that_is_silent_is_given_up_soon() -> None:
    """A socket that takes connections and never answers ends in an error after a few short tries."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(
            MetadataError, match=f"did not answer PUT /latest/api/token in {ATTEMPTS} tries"
        ) as caught:
            InstanceMetadata(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1).instance_id()
        assert time.monotonic() - began < 10
    assert caught.value.status is None
    assert "this is no EC2 instance" in str(caught.value)


def test_server_errors_are_tried_again() -> None:
    """Status 500 is repeated, and told when it stays."""
    instance = Instance(answers={"token": (500, "")})
    with serving(instance) as url, pytest.raises(MetadataError, match="status 500"):
        InstanceMetadata(url).instance_id()
    assert instance.requests == ["PUT /latest/api/token"] * ATTEMPTS
