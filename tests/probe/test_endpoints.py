"""Endpoints are compared with those botocore chooses."""

from __future__ import annotations

import boto3
import pytest

from probe.endpoints import Endpoint

SERVICES = {
    "s3": ("s3", "S3"),
    "ec2": ("ec2", "EC2"),
    "cloudwatch": ("monitoring", "CLOUDWATCH"),
    "logs": ("logs", "CLOUDWATCH_LOGS"),
}
SESSION = boto3.Session()
REGIONS = [
    "eu-central-1",
    "us-west-2",
    "cn-north-1",
    "us-gov-west-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "us-isof-south-1",
    "eu-isoe-west-1",
    "eusc-de-east-1",
]


@pytest.fixture(autouse=True)
def _no_custom_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets."""
    for name in ("", *(f"_{variable}" for _, variable in SERVICES.values())):
        monkeypatch.delenv(f"AWS_ENDPOINT_URL{name}", raising=False)
    monkeypatch.delenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", raising=False)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("service", sorted(SERVICES))
def test_endpoints_are_those_of_botocore(service: str, region: str) -> None:
    """In every partition a service is looked for where botocore looks for it."""
    client = SESSION.client(service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b")  # noqa: S106 - made up
    ours = Endpoint.of(SERVICES[service][0], region, SERVICES[service][1])
    assert f"https://{ours.host_header}" == client.meta.endpoint_url
    assert not ours.custom


def test_the_environment_decides_as_it_does_for_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's own variable goes before the general one, and both can be ignored."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://10.0.0.2:4566/")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://vpce.example:8443/base/")
    s3, logs = Endpoint.of("s3", "eu-central-1", "S3"), Endpoint.of("logs", "eu-central-1", "CLOUDWATCH_LOGS")
    assert s3 == Endpoint(secure=True, host="vpce.example", port=8443, base_path="/base", custom=True)
    assert logs == Endpoint(secure=False, host="10.0.0.2", port=4566, custom=True)
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert Endpoint.of("s3", "eu-central-1", "S3").host == "s3.eu-central-1.amazonaws.com"


def test_what_is_no_url_is_refused_without_its_query() -> None:
    """An endpoint that is none is named, but not what stands behind its question mark."""
    with pytest.raises(ValueError, match="endpoint 'ftp://host/path' is no http") as caught:
        Endpoint.parse("ftp://host/path?Signature=secret")
    assert "secret" not in str(caught.value)
