"""The instance metadata service, version 2, of every node: 169.254.169.254 in the VPC namespace.

A caller is identified by its source address, which the firewall guarantees to be its own.
`MetadataService.answer` is a function of the request and the directory; the HTTP around it is
small. Not kept of EC2: the hop limit of answers (HttpPutResponseHopLimit).
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Optional, Tuple
from xml.sax.saxutils import escape

from lab.directory import Directory, InstanceFacts

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path
TTL_HEADER = "x-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER = "x-aws-ec2-metadata-token"  # noqa: S105 - a header's name
MAX_TTL_S = 21_600
_VERSION = re.compile(r"/(latest|\d{4}-\d{2}-\d{2})(/.*)?$")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Not Allowed",
}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes = b""
    kind: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


class MetadataService:
    """Answers for all instances of a directory; tokens are bound to the instance they were given to."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._by_address: Dict[str, InstanceFacts] = {}
        self._tokens: Dict[str, Tuple[str, float]] = {}

    def update(self, directory: Directory) -> None:
        """Take over a new directory; tokens of instances that are still there stay valid."""
        self._by_address = {facts.address: facts for facts in directory.instances}
        alive = {facts.instance_id for facts in directory.instances}
        now = self._now()
        self._tokens = {t: v for t, v in self._tokens.items() if v[0] in alive and v[1] > now}

    def answer(self, method: str, path: str, headers: Mapping[str, str], source: str) -> Answer:
        """The answer to a request; `headers` have lower-case names, `source` is the caller's address."""
        facts = self._by_address.get(source)
        if facts is None or not facts.metadata_enabled:
            return _error(403)
        if method == "PUT" and path == TOKEN_PATH:
            return self._new_token(facts, headers)
        if method not in ("GET", "HEAD"):
            return _error(405)
        token = headers.get(TOKEN_HEADER)
        if (token is not None or facts.token_required) and not self._valid(token, facts):
            return _error(401)
        return _lookup(facts, path)

    def _new_token(self, facts: InstanceFacts, headers: Mapping[str, str]) -> Answer:
        if "x-forwarded-for" in headers:
            return _error(403)
        ttl = headers.get(TTL_HEADER, "")
        if not ttl.isdigit() or not 1 <= int(ttl) <= MAX_TTL_S:
            return _error(400)
        token = base64.urlsafe_b64encode(secrets.token_bytes(42)).decode()
        self._tokens[token] = (facts.instance_id, self._now() + int(ttl))
        return Answer(200, token.encode(), headers={TTL_HEADER: ttl})

    def _valid(self, token: Optional[str], facts: InstanceFacts) -> bool:
        instance_id, expires = self._tokens.get(token or "", ("", 0.0))
        return instance_id == facts.instance_id and self._now() < expires


def _error(status: int) -> Answer:
    reason = _REASONS[status]
    body = (
        '<?xml version="1.0" encoding="iso-8859-1"?>\n'
        f"<html><head><title>{status} - {escape(reason)}</title></head>"
        f"<body><h1>{status} - {escape(reason)}</h1></body></html>\n"
    )
    return Answer(status, body.encode(), kind="text/html")


def _lookup(facts: InstanceFacts, path: str) -> Answer:
    path = path.split("?", 1)[0]
    if path == "/":
        return Answer(200, b"latest")
    matched = _VERSION.match(path)
    if not matched:
        return _error(404)
    wanted = (matched.group(2) or "/").strip("/")
    if wanted == "user-data":
        data = base64.b64decode(facts.user_data)
        return Answer(200, data, kind="application/octet-stream") if data else _error(404)
    tree = items(facts)
    if wanted in tree:
        kind = "application/json" if tree[wanted].startswith("{") else "text/plain"
        return Answer(200, tree[wanted].encode(), kind=kind)
    listing = _children(tree, wanted)
    return Answer(200, "\n".join(listing).encode()) if listing else _error(404)


def _children(tree: Mapping[str, str], directory: str) -> List[str]:
    """What a directory holds, as the service lists it: directories end with a slash."""
    start = f"{directory}/" if directory else ""
    names = {}
    for path in tree:
        if path.startswith(start):
            name, slash, _ = path[len(start) :].partition("/")
            names[name + slash] = True
    if not directory:
        names["user-data"] = True
    return sorted(names)


def items(facts: InstanceFacts) -> Dict[str, str]:
    """Every item of an instance's metadata, by its path below /latest."""
    nic = f"meta-data/network/interfaces/macs/{facts.mac}"
    tree = {
        "dynamic/instance-identity/document": json.dumps(_identity_document(facts), indent=2),
        "meta-data/ami-id": facts.image_id,
        "meta-data/ami-launch-index": str(facts.launch_index),
        "meta-data/hostname": facts.host_name,
        "meta-data/instance-action": "none",
        "meta-data/instance-id": facts.instance_id,
        "meta-data/instance-life-cycle": "on-demand",
        "meta-data/instance-type": facts.instance_type,
        "meta-data/local-hostname": facts.host_name,
        "meta-data/local-ipv4": facts.address,
        "meta-data/mac": facts.mac,
        "meta-data/placement/availability-zone": facts.zone,
        "meta-data/placement/region": facts.region,
        "meta-data/reservation-id": facts.reservation_id,
        "meta-data/security-groups": "\n".join(facts.security_group_names),
        "meta-data/services/domain": "amazonaws.com",
        "meta-data/services/partition": "aws",
        f"{nic}/device-number": "0",
        f"{nic}/interface-id": facts.interface_id,
        f"{nic}/local-hostname": facts.host_name,
        f"{nic}/local-ipv4s": facts.address,
        f"{nic}/mac": facts.mac,
        f"{nic}/owner-id": facts.account_id,
        f"{nic}/security-group-ids": "\n".join(facts.security_groups),
        f"{nic}/security-groups": "\n".join(facts.security_group_names),
        f"{nic}/subnet-id": facts.subnet_id,
        f"{nic}/subnet-ipv4-cidr-block": facts.subnet_cidr,
        f"{nic}/vpc-id": facts.vpc_id,
        f"{nic}/vpc-ipv4-cidr-block": facts.vpc_cidrs[0] if facts.vpc_cidrs else "",
        f"{nic}/vpc-ipv4-cidr-blocks": "\n".join(facts.vpc_cidrs),
    }
    if facts.placement_group:
        tree["meta-data/placement/group-name"] = facts.placement_group
    if facts.public_address:
        tree["meta-data/public-ipv4"] = facts.public_address
        tree[f"{nic}/public-ipv4s"] = facts.public_address
        tree[f"{nic}/ipv4-associations/{facts.public_address}"] = facts.address
    for key, value in facts.tags.items():
        tree[f"meta-data/tags/instance/{key}"] = value
    if facts.profile_arn:
        tree["meta-data/iam/info"] = json.dumps(_profile(facts), indent=2)
    if facts.role and facts.credentials:
        tree[f"meta-data/iam/security-credentials/{facts.role}"] = json.dumps(_credentials(facts), indent=2)
    return tree


def _profile(facts: InstanceFacts) -> Dict[str, str]:
    return {
        "Code": "Success",
        "LastUpdated": facts.credentials.updated if facts.credentials else facts.launch_time,
        "InstanceProfileArn": facts.profile_arn,
        "InstanceProfileId": facts.profile_id,
    }


def _credentials(facts: InstanceFacts) -> Dict[str, str]:
    held = facts.credentials
    if held is None:
        return {"Code": "AssumeRoleUnauthorizedAccess"}
    return {
        "Code": "Success",
        "LastUpdated": held.updated,
        "Type": "AWS-HMAC",
        "AccessKeyId": held.access_key_id,
        "SecretAccessKey": held.secret_access_key,
        "Token": held.session_token,
        "Expiration": held.expiration,
    }


def _identity_document(facts: InstanceFacts) -> Dict[str, object]:
    return {
        "accountId": facts.account_id,
        "architecture": facts.architecture,
        "availabilityZone": facts.zone,
        "billingProducts": None,
        "devpayProductCodes": None,
        "marketplaceProductCodes": None,
        "imageId": facts.image_id,
        "instanceId": facts.instance_id,
        "instanceType": facts.instance_type,
        "kernelId": None,
        "pendingTime": facts.launch_time,
        "privateIp": facts.address,
        "ramdiskId": None,
        "region": facts.region,
        "version": "2017-09-30",
    }


async def serve_connection(
    service: MetadataService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the requests of one connection until it ends or says something that is not HTTP."""
    source = writer.get_extra_info("peername")[0]
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            method, path, version = lines[0].split(" ", 2)
            headers = {}
            for line in lines[1:]:
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
            await reader.readexactly(int(headers.get("content-length", "0") or "0"))
            answer = service.answer(method, path, headers, source)
            keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
            writer.write(_encode(answer, head_only=method == "HEAD", keep=keep))
            await writer.drain()
            if not keep:
                return
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, OSError):
        return
    finally:
        writer.close()


def _encode(answer: Answer, *, head_only: bool, keep: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(answer.body)}",
        "Server: EC2ws",
        f"Connection: {'keep-alive' if keep else 'close'}",
        *(f"{name}: {value}" for name, value in answer.headers.items()),
    ]
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head if head_only else head + answer.body
