"""What the account says about this cluster: the describe-* documents, where the role may read them.

A judging node reads them to name the rule behind a broken pair. Being refused is no fault of
the cluster: it leaves a table incomplete, and `missing_permissions` says what to allow.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cluster.keys import CLUSTER_TAG
from cluster.snapshot import ClusterSnapshot
from probe.aws import FORM, xml_error
from probe.credentials import CredentialChain
from probe.ec2_query import OPERATIONS, parse_answer
from probe.endpoints import Endpoint
from probe.signing import encode_query
from probe.transport import AwsError, CredentialSource, Request, RetryPolicy, Transport

API_VERSION = "2016-11-15"
PAGE_SIZES = {"route-tables": 100}  # the largest each operation takes; 1,000 for all others
LARGEST_PAGE = 1000
FILTER_VALUES = 200  # the most values one filter takes
POLICY = RetryPolicy(total_s=6.0, timeout_s=3.0, attempts=4)
"""Shorter than for rows: the verdict must not wait for an EC2 endpoint that cannot be reached."""


class AccountReader:
    """Reads the rules around a cluster's instances.

    Attributes:
        missing_permissions: IAM actions that were refused in the last reading.
        problems: document -> why it was not read in the last reading.
    """

    def __init__(
        self,
        *,
        region: str,
        credentials: Optional[CredentialSource] = None,
        policy: RetryPolicy = POLICY,
    ) -> None:
        self.missing_permissions: Tuple[str, ...] = ()
        self.problems: Dict[str, str] = {}
        self._silent = False
        self._transport = Transport(
            service="ec2",
            region=region,
            endpoint=Endpoint.of("ec2", region, "EC2"),
            credentials=credentials or CredentialChain(),
            parse_error=xml_error,
            policy=policy,
        )

    def describe_cluster_snapshot(
        self, instance_ids: Sequence[str], cluster: str = ""
    ) -> Optional[ClusterSnapshot]:
        """Read the instances, and what else their VPCs hold.

        cluster: read the other instances of that cluster too, those that did not register.

        Returns:
            None when the instances could not be read; `problems` and `missing_permissions` say why.
            Otherwise a snapshot whose unread tables are incomplete, never empty.
        """
        documents, problems = self.describe_cluster(instance_ids, cluster)
        return ClusterSnapshot.from_documents(documents, problems) if "instances" in documents else None

    def describe_cluster(
        self, instance_ids: Sequence[str], cluster: str = ""
    ) -> Tuple[Dict[str, Any], Dict[str, str]]:
        """The documents by name, and for those that could not be read why."""
        self.missing_permissions, self.problems, self._silent = (), {}, False
        documents: Dict[str, Any] = {}
        self._read(documents, "instances", "instance-id", instance_ids)
        if cluster and "instances" in documents:
            tagged: Dict[str, Any] = {}
            self._read(tagged, "instances", f"tag:{CLUSTER_TAG}", [cluster])
            _add_unknown(documents["instances"], tagged.get("instances", {}))
        vpc_ids = _vpc_ids(documents.get("instances", {}))
        for name in OPERATIONS:
            if name == "instances":
                continue
            if vpc_ids:
                self._read(documents, name, "vpc-id", vpc_ids)
            else:
                self.problems[name] = "the VPC is not known, because the instances could not be read"
        return documents, dict(self.problems)

    def close(self) -> None:
        self._transport.close()

    def _read(self, documents: Dict[str, Any], name: str, filter_name: str, values: Sequence[str]) -> None:
        """Put the whole document into `documents`, or the reason into `problems`."""
        if self._silent:
            self.problems[name] = "not tried: ec2 had not answered before"
            return
        document: Dict[str, Any] = {}
        try:
            for start in range(0, len(values), FILTER_VALUES):
                for page in self._pages(name, filter_name, values[start : start + FILTER_VALUES]):
                    for key, entries in page.items():
                        document[key] = [*document.get(key, []), *entries]
            documents[name] = document
        except AwsError as error:
            self.problems[name] = str(error)
            self._silent = error.status is None
            if error.denied:
                self.missing_permissions += (f"ec2:{OPERATIONS[name]}",)
        except ValueError as error:
            self.problems[name] = str(error)

    def _pages(self, name: str, filter_name: str, values: Sequence[str]) -> Iterator[Dict[str, Any]]:
        operation = OPERATIONS[name]
        form = {
            "Action": operation,
            "Version": API_VERSION,
            "MaxResults": str(PAGE_SIZES.get(name, LARGEST_PAGE)),
            "Filter.1.Name": filter_name,
            **{f"Filter.1.Value.{position}": value for position, value in enumerate(values, 1)},
        }
        while True:
            answer = self._transport.call(
                Request(
                    operation=operation,
                    permission=f"ec2:{operation}",
                    method="POST",
                    headers=FORM,
                    body=encode_query(form.items()).encode(),
                )
            )
            page = parse_answer(answer.body)
            token = page.pop("NextToken", None)
            yield page
            if token is None:
                return
            form["NextToken"] = token


def _vpc_ids(instances: Mapping[str, Any]) -> List[str]:
    found = {
        instance["VpcId"]
        for reservation in instances.get("Reservations", [])
        for instance in reservation.get("Instances", [])
        if instance.get("VpcId")
    }
    return sorted(found)


def _add_unknown(known: Dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the instances of another describe-instances document that this one does not hold."""
    reservations = known.setdefault("Reservations", [])
    ids = {item["InstanceId"] for reservation in reservations for item in reservation.get("Instances", [])}
    for reservation in more.get("Reservations", []):
        unknown = [item for item in reservation.get("Instances", []) if item["InstanceId"] not in ids]
        if unknown:
            reservations.append({**reservation, "Instances": unknown})
