"""lab.metadata: every path and status of the metadata service that nodes and AWS clients rely on."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from cluster.snapshot import ClusterSnapshot
from lab import metadata
from lab.directory import Credentials, Directory, InstanceFacts
from lab.facts import facts_of
from lab.observe import running_instances
from tests.lab import vpc

A, B = "10.42.0.10", "10.42.0.11"
NIC = "meta-data/network/interfaces/macs/0a:00:00:00:00:0a"
HELD = Credentials(
    access_key_id="ASIAEXAMPLE",
    secret_access_key="secret",  # noqa: S106 - an example
    session_token="token",  # noqa: S106 - an example
    updated="2025-01-31T12:00:00Z",
    expiration="2025-01-31T13:00:00Z",
)
PROFILE = {
    "Arn": "arn:aws:iam::000000000000:instance-profile/p",
    "InstanceProfileId": "AIPAEXAMPLE",
    "Roles": [{"RoleName": "node", "Arn": "arn:aws:iam::000000000000:role/node"}],
}


def facts(address: str = A, **changes: object) -> InstanceFacts:
    """An instance of the small VPC with a role."""
    documents = vpc.documents({A: ["sg-1"], B: ["sg-1"]}, [vpc.group("sg-1", [])])
    (instance,) = (i for i in running_instances(documents) if i["PrivateIpAddress"] == address)
    found = facts_of(
        {**instance, "IamInstanceProfile": {"Arn": PROFILE["Arn"]}},
        ClusterSnapshot.from_documents(documents),
        region="us-east-1",
        user_data=b"#!/bin/sh\n",
        profile=PROFILE,
        credentials=HELD,
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def service(*instances: InstanceFacts, clock: Clock | None = None) -> metadata.MetadataService:
    """A service that knows these instances."""
    made = metadata.MetadataService(clock or Clock())
    made.update(Directory(region="us-east-1", instances=instances or (facts(),)))
    return made


def token(of: metadata.MetadataService, source: str = A, ttl: str = "60") -> str:
    """A fresh token."""
    answer = of.answer("PUT", metadata.TOKEN_PATH, {metadata.TTL_HEADER: ttl}, source)
    assert (answer.status, answer.headers[metadata.TTL_HEADER]) == (200, ttl)
    return answer.body.decode()


def get(of: metadata.MetadataService, path: str, source: str = A) -> tuple[int, str]:
    """Status and body of a request with a token of its own."""
    answer = of.answer("GET", f"/latest/{path}", {metadata.TOKEN_HEADER: token(of, source)}, source)
    return answer.status, answer.body.decode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("meta-data/instance-id", "i-10-42-0-10"),
        ("meta-data/ami-id", "ami-1"),
        ("meta-data/instance-type", "c6i.large"),
        ("meta-data/local-ipv4", A),
        ("meta-data/public-ipv4", "203.0.113.10"),
        ("meta-data/local-hostname", "ip-10-42-0-10.ec2.internal"),
        ("meta-data/hostname", "ip-10-42-0-10.ec2.internal"),
        ("meta-data/mac", "0a:00:00:00:00:0a"),
        ("meta-data/placement/availability-zone", "us-east-1a"),
        ("meta-data/placement/region", "us-east-1"),
        ("meta-data/placement/group-name", "pg"),
        ("meta-data/security-groups", "name-of-sg-1"),
        ("meta-data/network/interfaces/macs/", "0a:00:00:00:00:0a/"),
        (f"{NIC}/security-group-ids", "sg-1"),
        (f"{NIC}/subnet-id", "subnet-a"),
        (f"{NIC}/subnet-ipv4-cidr-block", "10.42.0.0/20"),
        (f"{NIC}/vpc-id", "vpc-1"),
        (f"{NIC}/vpc-ipv4-cidr-blocks", "10.42.0.0/16"),
        (f"{NIC}/local-ipv4s", A),
        ("meta-data/iam/security-credentials/", "node"),
        ("user-data", "#!/bin/sh\n"),
        ("", "dynamic/\nmeta-data/\nuser-data"),
    ],
)
def test_item(path: str, body: str) -> None:
    """Each item has exactly the text that EC2 would give for the instance."""
    assert get(service(), path) == (200, body)


def test_credentials_are_those_of_the_role() -> None:
    """The document has the fields, and the expiry, that AWS clients read."""
    status, body = get(service(), "meta-data/iam/security-credentials/node")
    assert (status, json.loads(body)) == (
        200,
        {
            "Code": "Success",
            "LastUpdated": "2025-01-31T12:00:00Z",
            "Type": "AWS-HMAC",
            "AccessKeyId": "ASIAEXAMPLE",
            "SecretAccessKey": "secret",
            "Token": "token",
            "Expiration": "2025-01-31T13:00:00Z",
        },
    )


def test_instance_without_a_role_has_no_iam_items() -> None:
    """No profile: no iam folder at all, as on EC2."""
    bare = facts(profile_arn="", role="", credentials=None)
    assert get(service(bare), "meta-data/iam/")[0] == 404


def test_instance_identity_names_the_account_and_region() -> None:
    """The identity document is what SDKs take the region and account from."""
    document = json.loads(get(service(), "dynamic/instance-identity/document")[1])
    assert {key: document[key] for key in ("accountId", "region", "instanceId", "privateIp")} == {
        "accountId": "000000000000",
        "region": "us-east-1",
        "instanceId": "i-10-42-0-10",
        "privateIp": A,
    }


def test_callers_are_told_apart_by_their_address() -> None:
    """Each node gets its own id, and an address that no instance has gets nothing."""
    both = service(facts(A), facts(B))
    assert get(both, "meta-data/instance-id", B) == (200, "i-10-42-0-11")
    assert both.answer("GET", "/latest/meta-data/instance-id", {}, "10.42.0.99").status == 403


def test_required_token() -> None:
    """Without a token: 401 when one is required, the item when it is optional; a wrong one is never taken."""
    assert service().answer("GET", "/latest/meta-data/mac", {}, A).status == 401
    optional = service(facts(token_required=False))
    assert optional.answer("GET", "/latest/meta-data/mac", {}, A).status == 200
    assert optional.answer("GET", "/latest/meta-data/mac", {metadata.TOKEN_HEADER: "x"}, A).status == 401


def test_token_of_another_instance_is_refused() -> None:
    """Tokens are bound to the instance they were given to."""
    both = service(facts(A), facts(B))
    headers = {metadata.TOKEN_HEADER: token(both, A)}
    assert both.answer("GET", "/latest/meta-data/mac", headers, B).status == 401


def test_token_ends_with_its_time_to_live() -> None:
    """A token is good for its seconds, and survives a change of the directory until then."""
    clock = Clock()
    made = service(clock=clock)
    headers = {metadata.TOKEN_HEADER: token(made, ttl="10")}
    made.update(Directory(region="us-east-1", instances=(facts(),)))
    clock.now += 9.5
    assert made.answer("GET", "/latest/meta-data/mac", headers, A).status == 200
    clock.now += 0.5
    assert made.answer("GET", "/latest/meta-data/mac", headers, A).status == 401


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("PUT", metadata.TOKEN_PATH, {}, 400),
        ("PUT", metadata.TOKEN_PATH, {metadata.TTL_HEADER: "21601"}, 400),
        ("PUT", metadata.TOKEN_PATH, {metadata.TTL_HEADER: "60", "x-forwarded-for": "10.0.0.1"}, 403),
        ("POST", "/latest/meta-data/mac", {}, 405),
        ("PUT", "/latest/meta-data/mac", {}, 405),
    ],
)
def test_refusals(method: str, path: str, headers: dict[str, str], status: int) -> None:
    """What the real service refuses is refused with the same status."""
    assert service().answer(method, path, headers, A).status == status


def test_disabled_endpoint_answers_nothing() -> None:
    """HttpEndpoint=disabled: 403, for tokens too."""
    off = service(facts(metadata_enabled=False))
    assert off.answer("PUT", metadata.TOKEN_PATH, {metadata.TTL_HEADER: "60"}, A).status == 403


def test_http_keeps_the_connection_and_ends_it_when_asked() -> None:
    """Two requests go over one connection; `Connection: close` ends it; the source is the peer's address."""

    async def talk() -> bytes:
        made = service(dataclasses.replace(facts(token_required=False), address="127.0.0.1"))
        server = await asyncio.start_server(
            lambda r, w: metadata.serve_connection(made, r, w), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET /latest/meta-data/ami-id HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.write(b"HEAD /latest/meta-data/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        server.close()
        return answer

    first, _, rest = asyncio.run(talk()).partition(b"\r\n\r\n")
    assert first.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert rest.startswith(b"ami-1HTTP/1.1 404 Not Found\r\n")
    assert rest.endswith(b"Connection: close\r\n\r\n")
