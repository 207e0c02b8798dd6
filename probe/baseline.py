"""What EC2 guarantees to an instance type: its baseline bandwidth, where EC2 tells it.

DescribeInstanceTypes, NetworkInfo.NetworkCards[].BaselineBandwidthInGbps
(docs.aws.amazon.com/AWSEC2/latest/APIReference/API_NetworkCardInfo.html). The field is optional.
"""

from __future__ import annotations

from typing import Dict, Iterable, Optional

from probe.account import API_VERSION, POLICY
from probe.aws import FORM, xml_error
from probe.credentials import CredentialChain
from probe.endpoints import Endpoint
from probe.signing import encode_query
from probe.transport import CredentialSource, Request, Transport

OPERATION = "DescribeInstanceTypes"
TYPES_AT_MOST = 100  # that one request may name


def read_baselines(
    region: str, instance_types: Iterable[str], credentials: Optional[CredentialSource] = None
) -> Dict[str, float]:
    """Instance type -> Gbit/s of its first network card; a type whose baseline EC2 does not tell is left out.

    Raises:
        AwsError: EC2 refused, or did not answer.
        ValueError: the answer does not read.
    """
    wanted = sorted(set(instance_types))[:TYPES_AT_MOST]
    if not wanted:
        return {}
    transport = Transport(
        service="ec2",
        region=region,
        endpoint=Endpoint.of("ec2", region, "EC2"),
        credentials=credentials or CredentialChain(),
        parse_error=xml_error,
        policy=POLICY,
    )
    form = {"Action": OPERATION, "Version": API_VERSION}
    form.update({f"InstanceType.{position}": name for position, name in enumerate(wanted, 1)})
    try:
        answer = transport.call(
            Request(
                operation=OPERATION,
                permission=f"ec2:{OPERATION}",
                method="POST",
                headers=FORM,
                body=encode_query(form.items()).encode(),
            )
        )
    finally:
        transport.close()
    return parse_baselines(answer.body)


def parse_baselines(xml: bytes) -> Dict[str, float]:
    """
    Raises:
        ValueError: `xml` is not XML, or a bandwidth in it is no number.
    """
    from xml.etree import ElementTree  # noqa: PLC0415 - loads expat, needed after the collective only

    try:
        root = ElementTree.fromstring(xml)  # noqa: S314 - AWS's own answer over a verified channel
    except ElementTree.ParseError as error:
        raise ValueError(f"the answer of ec2 is not XML ({error})") from None
    found: Dict[str, float] = {}
    for item in root.findall("./{*}instanceTypeSet/{*}item"):
        cards = item.findall("./{*}networkInfo/{*}networkCards/{*}item")
        card = next((one for one in cards if one.findtext("{*}networkCardIndex") == "0"), None)
        name = item.findtext("{*}instanceType")
        baseline = card.findtext("{*}baselineBandwidthInGbps") if card is not None else None
        if name and baseline:
            found[name] = float(baseline)
    return found
