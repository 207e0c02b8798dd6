"""The real stacks on a control plane, without nodes: instances are records, the verdict is signalled."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3

from tests.lab.plane import REGION, Plane, running_plane
from tests.probe.aws_server import Answer, Asked, answering
from tests.stacks.synthesis import ACCOUNT, Synthesis, synthesise

BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
DEPLOY_TIMEOUT_S = 60.0


class Session(boto3.Session):  # type: ignore[misc]
    """A session whose every client speaks to one address."""

    def __init__(self, url: str, region: str = REGION) -> None:
        super().__init__(
            region_name=region,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106  (the control plane takes any)
        )
        self._url = url

    def client(self, service: str, **options: Any) -> Any:
        return super().client(service, endpoint_url=self._url, **options)


@dataclass(frozen=True)
class Account:
    """A control plane on which stacks of ours are deployed."""

    plane: Plane

    @property
    def session(self) -> Session:
        return Session(self.plane.url)

    def client(self, service: str) -> Any:
        return self.plane.client(service)

    def deploy(self, name: str = "fullmesh", **context: Any) -> Synthesis:
        """Create or update both stacks of a context (`cluster__nodes` is cluster.nodes)."""
        made = synthesise(cluster__name=name, **context)
        self._apply(f"{name}-evidence", made.evidence)
        self._apply(name, made.cluster)
        return made

    def _apply(self, name: str, template: dict[str, Any]) -> None:
        client = self.client("cloudformation")
        # By way of S3, as the CDK does: a body holds 51,200 bytes.
        key = f"{name}.template.json"
        self.client("s3").put_object(Bucket=ASSETS, Key=key, Body=json.dumps(template).encode())
        arguments = {
            "StackName": name,
            "TemplateURL": f"{self.plane.url}/{ASSETS}/{key}",
            "Capabilities": ["CAPABILITY_IAM"],
        }
        try:
            client.describe_stacks(StackName=name)
        except client.exceptions.ClientError:
            client.create_stack(**arguments)
        else:
            try:
                client.update_stack(**arguments)
            except client.exceptions.ClientError as error:
                if "No updates" not in str(error):
                    raise
        self._settle(name)

    def _settle(self, name: str) -> None:
        """Wait for the end of an operation, and be the nodes that signal its verdict."""
        client = self.client("cloudformation")
        give_up_at = time.monotonic() + DEPLOY_TIMEOUT_S
        signalled: set[str] = set()
        while True:
            for item in client.describe_stack_resources(StackName=name)["StackResources"]:
                handle = item.get("PhysicalResourceId", "")
                if item["ResourceType"].endswith("WaitConditionHandle") and handle not in signalled:
                    signalled.add(handle)
                    with contextlib.suppress(OSError):  # of a proof before this one
                        self.plane.signal(handle, "SUCCESS", "signalled by a test")
            (stack,) = client.describe_stacks(StackName=name)["Stacks"]
            if "IN_PROGRESS" not in stack["StackStatus"]:
                break
            assert time.monotonic() < give_up_at, stack
            time.sleep(0.1)
        assert stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"), stack

    def outputs(self, name: str = "fullmesh") -> dict[str, str]:
        (stack,) = self.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        return {item["OutputKey"]: item["OutputValue"] for item in stack["Outputs"]}


@contextmanager
def running_account(folder: Path) -> Iterator[Account]:
    """A bootstrapped account on a control plane of its own."""
    with running_plane(folder) as plane:
        plane.client("ssm").put_parameter(Name=BOOTSTRAP, Value="21", Type="String")
        plane.client("s3").create_bucket(Bucket=ASSETS)
        yield Account(plane)


@contextmanager
def refusing(account: Account, fault: Callable[[str, int], Answer | None]) -> Iterator[Session]:
    """A session to the account through a server that may refuse.

    fault: gets the action and how often it was asked before; None = the control plane answers.
    """
    seen: dict[str, int] = {}

    def answer(asked: Asked, _: int) -> Answer:
        target = asked.headers.get("x-amz-target", "").rpartition(".")[2]
        action = target or parse_qs(asked.body.decode(errors="replace")).get("Action", [""])[0]
        action = action or ("ListObjectsV2" if "list-type" in asked.target else "GetObject")
        seen[action] = seen.get(action, 0) + 1
        given = fault(action, seen[action] - 1)
        if given is not None:
            return given
        plane = http.client.HTTPConnection(urlsplit(account.plane.url).netloc, timeout=30)
        headers = {k: v for k, v in asked.headers.items() if k not in ("host", "content-length")}
        plane.request(asked.method, asked.target, asked.body, headers)
        reply = plane.getresponse()
        body = reply.read()
        plane.close()
        kept = {
            k: v for k, v in reply.getheaders() if k.lower() not in ("content-length", "transfer-encoding")
        }
        return Answer(status=reply.status, body=body, headers=kept)

    with answering(answer) as (url, _):
        yield Session(url)


def ec2_error(code: str, status: int = 403) -> Answer:
    """What EC2 answers when it refuses."""
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>refused by a test</Message></Error></Errors>"
        "<RequestID>1</RequestID></Response>"
    )
    return Answer(status=status, body=body.encode(), headers={"Content-Type": "text/xml"})


def query_error(code: str, status: int = 403) -> Answer:
    """What CloudFormation, Auto Scaling and STS answer when they refuse."""
    body = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>refused by a test</Message>"
        "</Error><RequestId>1</RequestId></ErrorResponse>"
    )
    return Answer(status=status, body=body.encode(), headers={"Content-Type": "text/xml"})
