"""What the lab asks the control plane, over HTTP, with an ordinary client.

Only documents come back; what they mean is for `cluster.snapshot` and the fleet.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import itertools
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lab.directory import Credentials
from lab.fabric import RELAY_ADDRESS

Documents = Dict[str, Any]
_EVERY_TIME = {
    "instances": "describe_instances",
    "security-groups": "describe_security_groups",
    "network-acls": "describe_network_acls",
    "route-tables": "describe_route_tables",
}
_NOW_AND_THEN = {
    "subnets": "describe_subnets",
    "vpcs": "describe_vpcs",
    "vpc-endpoints": "describe_vpc_endpoints",
    "managed-prefix-lists": "describe_managed_prefix_lists",
}
_NOW_AND_THEN_EVERY = 3  # polls: still within a second
_CREDENTIALS_S = 3600

REFUSED = ClientError
"""What a call raises when the control plane answers with an error of its own."""

UNREACHABLE = (BotoCoreError, ClientError)
"""What a call of this module raises when the control plane does not answer, or refuses."""


class Observer:
    """Reads one region of one control plane."""

    def __init__(self, endpoint_url: str, region: str) -> None:
        session = boto3.session.Session(
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - the control plane takes any
            region_name=region,
        )
        config = Config(
            proxies={},
            connect_timeout=5,
            read_timeout=30,
            retries={"mode": "standard", "total_max_attempts": 2},
        )

        def client(name: str) -> Any:
            return session.client(name, endpoint_url=endpoint_url, config=config)

        self._ec2, self._iam, self._sts = client("ec2"), client("iam"), client("sts")
        self._polls = itertools.count()
        self._documents: Documents = {}
        self._entries: Dict[Tuple[str, int], List[str]] = {}

    def documents(self) -> Documents:
        """The describe-* documents that the data plane depends on, complete.

        Raises:
            BotoCoreError, ClientError: see UNREACHABLE; nothing is taken over from a half-read picture.
        """
        wanted = dict(_EVERY_TIME)
        if next(self._polls) % _NOW_AND_THEN_EVERY == 0 or self._holds_unknown_subnets():
            wanted |= _NOW_AND_THEN
        fresh = {key: self._describe(call) for key, call in wanted.items()}
        if "managed-prefix-lists" in fresh:
            fresh["prefix-list-entries"] = self._prefix_lists(fresh["managed-prefix-lists"]["PrefixLists"])
        self._documents = {**self._documents, **fresh}
        if self._holds_unknown_subnets():
            for key, call in _NOW_AND_THEN.items():
                self._documents[key] = self._describe(call)
        return self._documents

    def _holds_unknown_subnets(self) -> bool:
        known = {item["SubnetId"] for item in self._documents.get("subnets", {}).get("Subnets", ())}
        return any(item["SubnetId"] not in known for item in running_instances(self._documents))

    def _describe(self, call: str) -> Any:
        if self._ec2.can_paginate(call):
            return self._ec2.get_paginator(call).paginate().build_full_result()
        answer = getattr(self._ec2, call)()
        answer.pop("ResponseMetadata", None)
        return answer

    def _prefix_lists(self, lists: Sequence[Mapping[str, Any]]) -> Dict[str, List[str]]:
        """Entries by list. AWS's own lists hold the relay: in the lab, all of AWS's services are there."""
        found: Dict[str, List[str]] = {}
        for item in lists:
            list_id, version = item["PrefixListId"], item.get("Version", 0)
            if item.get("OwnerId") == "AWS":
                found[list_id] = [f"{RELAY_ADDRESS}/32"]
                continue
            if (list_id, version) not in self._entries:
                answer = self._ec2.get_managed_prefix_list_entries(PrefixListId=list_id)
                self._entries[list_id, version] = sorted(entry["Cidr"] for entry in answer["Entries"])
            found[list_id] = self._entries[list_id, version]
        return found

    def user_data(self, instance_id: str) -> bytes:
        """The instance's user data, decoded as cloud-init does (base64, and gzip if it is)."""
        answer = self._ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        data = base64.b64decode(answer.get("UserData", {}).get("Value") or "")
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data

    def profile(self, arn: str) -> Mapping[str, Any]:
        """An instance profile: its id, and its role's name and ARN."""
        answer = self._iam.get_instance_profile(InstanceProfileName=arn.rsplit("/", 1)[1])
        found: Mapping[str, Any] = answer["InstanceProfile"]
        return found

    def credentials(self, role_arn: str, instance_id: str) -> Credentials:
        """Fresh credentials of a role for an instance: their session is named after it, as on EC2."""
        answer = self._sts.assume_role(
            RoleArn=role_arn, RoleSessionName=instance_id, DurationSeconds=_CREDENTIALS_S
        )
        held = answer["Credentials"]
        return Credentials(
            access_key_id=held["AccessKeyId"],
            secret_access_key=held["SecretAccessKey"],
            session_token=held["SessionToken"],
            updated=utc_text(held["Expiration"].timestamp() - _CREDENTIALS_S),
            expiration=utc_text(held["Expiration"].timestamp()),
        )


def running_instances(documents: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """The running instances of describe-instances, each as the document has it."""
    reservations = documents.get("instances", {}).get("Reservations", ())
    return [
        {"ReservationId": reservation.get("ReservationId", ""), **instance}
        for reservation in reservations
        for instance in reservation["Instances"]
        if instance["State"]["Name"] == "running"
    ]


def utc_text(seconds: float) -> str:
    """A moment as AWS writes it: 2025-01-31T12:00:00Z."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
