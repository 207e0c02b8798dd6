"""A control plane for the tests of the node's AWS client, and boto3 to look at it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.probe.aws_server import REGION


@pytest.fixture(scope="package")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A control plane of its own on a free loopback port."""
    folder = tmp_path_factory.mktemp("ministack")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "HOME": str(folder),
        "TMPDIR": str(folder),  # it leaves a file named after its port there
    }
    with (folder / "log").open("w") as log:
        program = str(Path(sys.executable).with_name("ministack"))
        server = subprocess.Popen([program], env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/_ministack/health", timeout=1).close()  # noqa: S310 - http, loopback
                break
            time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def cloud(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sends our client there by the environment, and gives boto3 clients of it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"):
        monkeypatch.delenv(name, raising=False)
    return lambda service: boto3.client(service, region_name=REGION)
