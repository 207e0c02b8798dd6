"""A small instance metadata service (IMDSv2) on a real socket, for tests."""

from __future__ import annotations

import http.server
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone


@dataclass
class Instance:
    """What one metadata service tells. Tests change it while the service runs.

    answers: status and text for paths below /latest/meta-data/ that are to differ.
    token_lives: how many requests a token is good for. requests: what was asked, in order.
    """

    instance_id: str = "i-0123456789abcdef0"
    address: str = "10.9.0.5"
    role: str = "mesh-role"
    secret: str = "wJalrXUtnFEMI"  # noqa: S105 - made up
    lives: timedelta = timedelta(hours=6)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    token_lives: int = 1_000_000
    requests: list[str] = field(default_factory=list)
    fetched: int = 0

    def text(self, path: str) -> tuple[int, str]:
        """Status and text of a path below /latest/meta-data/."""
        if path in self.answers:
            return self.answers[path]
        mac = "02:29:96:8f:6a:2d"
        known = {
            "instance-id": self.instance_id,
            "local-ipv4": self.address,
            "local-hostname": "ip-" + self.address.replace(".", "-") + ".eu-central-1.compute.internal",
            "mac": mac,
            f"network/interfaces/macs/{mac}/security-group-ids": "sg-1\nsg-2",
            "placement/region": "eu-central-1",
            "iam/security-credentials/": self.role,
        }
        if path == f"iam/security-credentials/{self.role}":
            self.fetched += 1
            ends = datetime.now(timezone.utc) + self.lives
            document = {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "AccessKeyId": f"ASIA{self.fetched}",
                "SecretAccessKey": self.secret,
                "Token": f"session-{self.secret}",
                "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            return 200, json.dumps(document)
        return (200, known[path]) if path in known else (404, "not found")


@contextmanager
def serving(instance: Instance, address: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Run the service; yields its URL."""
    tokens: dict[str, int] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            instance.requests.append(f"PUT {self.path}")
            if self.path != "/latest/api/token" or not ttl.isdigit():
                self._answer(400, "")
                return
            status, text = instance.answers.get("token", (200, secrets.token_urlsafe(16)))
            tokens[text] = instance.token_lives
            self._answer(status, text)

        def do_GET(self) -> None:
            instance.requests.append(f"GET {self.path}")
            token = self.headers.get("X-aws-ec2-metadata-token", "")
            if tokens.get(token, 0) <= 0:
                self._answer(401, "")
                return
            tokens[token] -= 1
            self._answer(*instance.text(self.path.removeprefix("/latest/meta-data/")))

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet: pytest shows what matters."""

    server = http.server.ThreadingHTTPServer((address, port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
