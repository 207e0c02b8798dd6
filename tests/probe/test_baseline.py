"""Baselines of instance types as EC2 tells them, and as it does not."""

from __future__ import annotations

import pytest

from probe.baseline import parse_baselines, read_baselines
from probe.transport import AwsError
from tests.probe.aws_server import REGION, Answer, Asked, answering

XML = b"""<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>r</requestId>
  <instanceTypeSet>
    <item><instanceType>c7i.large</instanceType><networkInfo>
      <networkPerformance>Up to 12.5 Gigabit</networkPerformance>
      <networkCards><item><networkCardIndex>0</networkCardIndex>
        <baselineBandwidthInGbps>0.781</baselineBandwidthInGbps>
        <peakBandwidthInGbps>12.5</peakBandwidthInGbps></item></networkCards></networkInfo></item>
    <item><instanceType>p5.48xlarge</instanceType><networkInfo><networkCards>
      <item><networkCardIndex>1</networkCardIndex><baselineBandwidthInGbps>200.0</baselineBandwidthInGbps></item>
      <item><networkCardIndex>0</networkCardIndex><baselineBandwidthInGbps>100.0</baselineBandwidthInGbps></item>
      </networkCards></networkInfo></item>
    <item><instanceType>c8gn.medium</instanceType><networkInfo><networkCards><item>
      <networkCardIndex>0</networkCardIndex></item></networkCards></networkInfo></item>
    <item><instanceType>bare.metal</instanceType></item>
  </instanceTypeSet>
</DescribeInstanceTypesResponse>"""


def test_the_first_cards_baseline_counts() -> None:
    """A type whose card has none (EC2 has left it out at times) is unknown, not zero."""
    assert parse_baselines(XML) == {"c7i.large": 0.781, "p5.48xlarge": 100.0}


def test_an_answer_that_is_none() -> None:
    """Neither XML nor a number: it says so."""
    with pytest.raises(ValueError, match="not XML"):
        parse_baselines(b"<html")
    with pytest.raises(ValueError, match="fast"):
        parse_baselines(XML.replace(b"0.781", b"fast"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("keys")
def test_each_type_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request names all types; without any none is made."""
    asked: list[str] = []

    def answer(request: Asked, _: int) -> Answer:
        asked.append(request.body.decode())
        return Answer(body=XML)

    with answering(answer) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        found = read_baselines(REGION, ["p5.48xlarge", "c7i.large", "c7i.large"])
        assert read_baselines(REGION, []) == {}
    assert found["c7i.large"] == 0.781
    assert len(asked) == 1
    assert "Action=DescribeInstanceTypes" in asked[0]
    assert "InstanceType.1=c7i.large&InstanceType.2=p5.48xlarge" in asked[0]


@pytest.mark.usefixtures("keys")
def test_a_refusal_names_the_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role that may not ask says which action to allow."""
    error = b"<Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error>"
    body = b"<Response><Errors>" + error + b"</Errors></Response>"
    with answering(lambda _, __: Answer(status=403, body=body)) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(AwsError, match="ec2:DescribeInstanceTypes"):
            read_baselines(REGION, ["c7i.large"])
