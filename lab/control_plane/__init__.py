"""The embedded control plane: ministack plus what a Gloo cluster's stack needs beyond it.

It answers on 127.0.0.1 only. Nodes reach it under another name and port (a relay of the
lab's network forwards them), and only what nodes must be able to call, the wait condition's
handle, carries that name. See docs/architecture.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from lab import CHECKOUT

DEFAULT_PUBLIC_HOST = "aws.fullmesh.internal"
DEFAULT_PUBLIC_PORT = 443
HEALTH_PATH = "/_ministack/health"


class ControlPlaneError(RuntimeError):
    """The control plane did not come up."""


def start(
    port: int,
    log: Path,
    scratch: Path,
    public_host: str = DEFAULT_PUBLIC_HOST,
    public_port: int = DEFAULT_PUBLIC_PORT,
) -> subprocess.Popen[bytes]:
    """Start the control plane on 127.0.0.1:`port`; it ends with the calling process.

    log: file that takes all its output; scratch: folder for temporary files, which it makes anew.
    public_host, public_port: how nodes reach it.
    The child leads a process group of its own (Lambda functions are its members): end it
    with `terminate`, wait, or let it die with the caller.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "lab.control_plane", "--port", str(port)]
    command += ["--public-host", public_host, "--public-port", str(public_port)]
    command += ["--parent", str(os.getpid()), "--scratch", str(scratch)]
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_healthy(url: str, timeout_s: float, process: subprocess.Popen[bytes] | None = None) -> None:
    """Return once the control plane at `url` answers.

    process: what `start` returned; its early end is then told at once.

    Raises:
        ControlPlaneError: it ended, or did not answer within `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        if process is not None and process.poll() is not None:
            raise ControlPlaneError(
                f"the control plane ended with status {process.returncode} before it answered: read its log"
            )
        try:
            with opener.open(url + HEALTH_PATH, timeout=2):
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() >= deadline:
                raise ControlPlaneError(
                    f"no control plane answers at {url} after {timeout_s:g} s ({error}): read its log"
                ) from error
        time.sleep(0.05)
