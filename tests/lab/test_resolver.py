"""lab.resolver: what names stand for."""

from __future__ import annotations

import pytest
from dnslib import DNSRecord  # type: ignore[import-untyped]

from lab import fabric, resolver
from lab.directory import Directory
from tests.lab.test_metadata import A, facts

DIRECTORY = Directory(region="us-east-1", instances=(facts(A),))


def ask(name: str, kind: str) -> tuple[str, list[str]]:
    """The status of an answer and its records."""
    packed = resolver.answer(DNSRecord.question(name, kind).pack(), DIRECTORY)
    assert packed is not None
    reply = DNSRecord.parse(packed)
    status = {0: "NOERROR", 3: "NXDOMAIN"}[reply.header.rcode]
    return status, [str(record.rdata) for record in reply.rr]


@pytest.mark.parametrize(
    ("name", "kind", "status", "records"),
    [
        ("ip-10-42-0-10.ec2.internal", "A", "NOERROR", [A]),
        ("IP-10-42-0-10.EC2.internal", "A", "NOERROR", [A]),
        ("ip-10-42-0-10.ec2.internal", "AAAA", "NOERROR", []),
        ("10.0.42.10.in-addr.arpa", "PTR", "NOERROR", ["ip-10-42-0-10.ec2.internal."]),
        ("aws.fullmesh.internal", "A", "NOERROR", [fabric.RELAY_ADDRESS]),
        ("a-bucket.aws.fullmesh.internal", "A", "NOERROR", [fabric.RELAY_ADDRESS]),
        ("ip-10-42-0-11.ec2.internal", "A", "NXDOMAIN", []),
        ("11.0.42.10.in-addr.arpa", "PTR", "NXDOMAIN", []),
        ("example.org", "A", "NXDOMAIN", []),
        ("xaws.fullmesh.internal", "A", "NXDOMAIN", []),
    ],
)
def test_answer(name: str, kind: str, status: str, records: list[str]) -> None:
    """Nodes and the services have names, both ways; nothing else exists."""
    assert ask(name, kind) == (status, records)


@pytest.mark.parametrize("data", [b"", b"\x00" * 11, b"\xff" * 40])
def test_garbage_gets_no_answer(data: bytes) -> None:
    """What is no query is dropped and does not end the server."""
    assert resolver.answer(data, DIRECTORY) is None


def test_other_regions_have_their_own_domain() -> None:
    """Only us-east-1 is ec2.internal."""
    assert Directory(region="us-east-1").domain == "ec2.internal"
    assert Directory(region="eu-central-1").domain == "eu-central-1.compute.internal"
