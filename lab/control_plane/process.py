"""The control plane's process: ministack's settings, and dying with whoever started it."""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import NoReturn

HOST = "127.0.0.1"


def settings(port: int, public_host: str, scratch: Path) -> dict[str, str]:
    """ministack's environment: loopback only, nothing persisted, nothing beside HTTP.

    scratch: where it unpacks the code of Lambda functions.

    MINISTACK_HOST makes `BUCKET.public_host` an S3 address, as nodes use it. The proxy lets
    a Lambda function, which runs on the host where `public_host` has no address, follow an
    URL meant for nodes: every plain HTTP request that is not for loopback comes here.
    """
    here = f"http://{HOST}:{port}"
    return {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": HOST,
        "MINISTACK_HOST": public_host,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "PERSIST_STATE": "0",
        "S3_PERSIST": "0",
        "LAMBDA_EXECUTOR": "local",
        "CLOUDTRAIL_RECORDING": "1",
        "LOG_LEVEL": os.environ.get("FULLMESH_LAB_LOG_LEVEL", "INFO"),
        "TMPDIR": str(scratch),
        "AWS_ENDPOINT_URL": here,
        "AWS_EC2_METADATA_DISABLED": "true",
        "http_proxy": here,
        "no_proxy": "127.0.0.1,localhost",
    }


def fresh_scratch(folder: Path | None) -> Path:
    """An empty folder for temporary files: `folder`, emptied of what a killed process left, or a new one."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="fullmesh-control-plane-"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def leave(scratch: Path, status: int) -> NoReturn:
    """End the process now, with every function it runs, and its temporary files.

    An orderly end would wait for stacks in the making, and so for their wait conditions.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(status)


def die_with(parent: int) -> None:
    """End this process, and its whole group, when `parent` ends: also when it is killed.

    A process descriptor is watched instead of asking for a death signal, because that one is
    sent when the thread that started us ends, not the process.
    """
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        raise SystemExit(f"process {parent} that wanted a control plane is gone") from None

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="dies-with-parent").start()
