"""A control plane of a test's own, and clients that speak to it."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from lab import control_plane, toolchain

REGION = "us-east-1"


@dataclass(frozen=True)
class Plane:
    """A running control plane."""

    url: str
    pid: int
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        return toolchain.environment(self.url, REGION)

    def client(self, service: str) -> Any:
        """A boto3 client that needs nothing of the caller's environment."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106  (the control plane takes any)
            config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
        )

    def limit_capacity(self, limits: dict[str, int]) -> None:
        put(f"{self.url}/_fullmesh/capacity", limits)

    def signal(self, handle_url: str, status: str, reason: str, data: str = "") -> None:
        """Signal a wait condition from the host, where the handle's name has no address."""
        path = handle_url[len("http://aws.fullmesh.internal:443") :]
        document = {"Status": status, "Reason": reason, "UniqueId": "verdict", "Data": data}
        put(self.url + path, document)


def put(url: str, document: dict[str, Any]) -> None:
    request = urllib.request.Request(  # noqa: S310  (the control plane's own address)
        url, data=json.dumps(document).encode(), method="PUT", headers={"Content-Type": ""}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(request, timeout=10).close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_plane(folder: Path) -> Iterator[Plane]:
    """Start a control plane, and end it."""
    port, log = free_port(), folder / "control-plane.log"
    process = control_plane.start(port, log, log.parent / "scratch")
    try:
        url = f"http://127.0.0.1:{port}"
        control_plane.wait_healthy(url, 30, process)
        yield Plane(url=url, pid=process.pid, log=log)
    finally:
        process.terminate()
        process.wait(10)
