"""Signed HTTP to AWS: keep-alive connections, retries and errors that name the next step.

Connections are opened by http.client, which never reads proxy variables: what a node can
reach directly is what is being found out. Slow imports wait until a connection is needed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import TYPE_CHECKING, Callable, Iterator, List, Mapping, Optional, Tuple

from cluster import aws_codes
from probe.endpoints import Endpoint
from probe.signing import Credentials, sign

if TYPE_CHECKING:
    import http.client
    import ssl

RETRIED_CODES = aws_codes.THROTTLED | {
    "InternalError",
    "InternalFailure",
    "LimitExceededException",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "ServiceUnavailableException",
}
RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
SKEWED_CODES = frozenset({"RequestTimeTooSkewed"})
NEXT_STEPS = {
    "NoSuchBucket": "deploy the evidence stack first, or correct the name in /etc/fullmesh/config.json or "
    "--meet",
    "NoSuchKey": "check the key; a row is there only once its node has written it",
    "RequestTimeTooSkewed": "set this host's clock: chronyc makestep",
    "SignatureDoesNotMatch": "check the region and the keys; if this host's clock is off: chronyc makestep",
    "InvalidClientTokenId": "check AWS_ACCESS_KEY_ID, or unset it so that the instance's role is used",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID, or unset it so that the instance's role is used",
    "ResourceNotFoundException": "deploy the evidence stack first, or correct `log_group` in "
    "/etc/fullmesh/config.json",
}


class AwsError(RuntimeError):
    """A call that failed for good. `status` is None when no answer came; `code` is then `Unreachable`.

    answer: what the service said, where it said anything.
    """

    def __init__(
        self, *, service: str, operation: str, code: str, status: Optional[int], message: str, next_step: str
    ) -> None:
        self.service = service
        self.operation = operation
        self.code = code
        self.status = status
        self.next_step = next_step
        self.answer: Optional[Response] = None
        shown = f" (status {status})" if status is not None else ""
        super().__init__(f"{service} {operation} failed: {code}{shown}: {message[:300]}; {next_step}")

    @property
    def denied(self) -> bool:
        """Whether it failed for want of a permission, and for nothing else."""
        return self.code in aws_codes.FORBIDDEN


@dataclass(frozen=True)
class RetryPolicy:
    """How long a call may take in all, and how its tries are spaced.

    total_s: no try begins, and no wait ends, later than this after the call began.
    timeout_s: of one socket operation; a resolver's own time-out comes on top.
    base_s, cap_s: the wait before try n is random between 0 and min(cap_s, base_s * 2**n),
        so that 64 nodes throttled together do not come back together.
    """

    total_s: float = 20.0
    timeout_s: float = 5.0
    attempts: int = 6
    base_s: float = 0.2
    cap_s: float = 4.0


@dataclass(frozen=True)
class Request:
    """One operation. permission: the IAM action it needs; path and query: as sent, percent-encoded."""

    operation: str
    permission: str
    method: str
    path: str = "/"
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Optional[bytes] = field(default=None, repr=False)


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


CredentialSource = Callable[[bool], Credentials]  # argument: get new ones even if the old look valid
ErrorParser = Callable[[Response], Tuple[str, str]]  # -> code, message


class Transport:
    """Calls to one service. Idle connections are kept and shared between threads.

    Args:
        credentials: None for calls that carry their own signature (a pre-signed URL).
        parse_error: finds code and message in an answer that is not 2xx.
    """

    def __init__(
        self,
        *,
        service: str,
        region: str,
        endpoint: Endpoint,
        credentials: Optional[CredentialSource],
        parse_error: ErrorParser,
        policy: Optional[RetryPolicy] = None,
    ) -> None:
        self._service = service
        self._region = region
        self._endpoint = endpoint
        self._credentials = credentials
        self._parse_error = parse_error
        self._policy = policy or RetryPolicy()
        self._idle: List[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self.clock_offset_s: Optional[float] = None
        """The service's clock minus this host's, to about a second; None before the first answer."""
        self._correction = timedelta(0)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def call(self, request: Request) -> Response:
        """Send a request, again while that can help, and return its 2xx answer.

        A repeat after a lost answer can be a second delivery; S3 writes and signals bear that.

        Raises:
            AwsError: with the answer's code, or `Unreachable` when none came in time.
        """
        deadline = time.monotonic() + self._policy.total_s
        renew = False
        error = self._unreachable(request, "no time was left for a first try")
        for attempt in range(self._policy.attempts):
            if attempt and not self._pause(attempt, deadline):
                break
            try:
                response = self._send(request, renew, deadline)
            except _NoAnswer as failure:
                error = self._unreachable(request, str(failure))
                if failure.final:
                    break
                continue
            if 200 <= response.status < 300:
                return response
            error = self._refused(request, response)
            if error.code in aws_codes.EXPIRED and not renew:
                renew = True
            elif error.code in SKEWED_CODES and self.clock_offset_s is not None and not self._correction:
                self._correction = timedelta(seconds=self.clock_offset_s)
            elif error.code not in RETRIED_CODES and response.status not in RETRIED_STATUSES:
                break
        raise error

    def _pause(self, attempt: int, deadline: float) -> bool:
        longest = min(self._policy.cap_s, self._policy.base_s * 2**attempt)
        wait = random.uniform(0, longest)  # noqa: S311 - spreads retries, keeps no secret
        if time.monotonic() + wait >= deadline:
            return False
        time.sleep(wait)
        return True

    def _send(self, request: Request, renew: bool, deadline: float) -> Response:
        import http.client  # noqa: PLC0415 - several MB that a probe without AWS does not need

        path = self._endpoint.base_path + request.path
        headers = self._signed_headers(request, path, renew)
        target = f"{path}?{request.query}" if request.query else path
        while True:
            with self._connection(deadline) as (connection, reused):
                try:
                    connection.request(request.method, target, body=request.body, headers=headers)
                    answer = connection.getresponse()
                    response = Response(answer.status, dict(answer.headers.items()), answer.read())
                except (OSError, http.client.HTTPException, UnicodeError) as error:
                    connection.close()
                    if reused and isinstance(error, ConnectionError):
                        continue  # the service closed an idle connection: no fault, try a new one at once
                    raise _no_answer(error) from None
                if answer.will_close:
                    connection.close()
                self._note_clock(response)
                return response

    def _signed_headers(self, request: Request, path: str, renew: bool) -> Mapping[str, str]:
        if self._credentials is None:
            return {**request.headers, "Host": self._endpoint.host_header}
        return sign(
            credentials=self._credentials(renew),
            method=request.method,
            host=self._endpoint.host_header,
            path=path,
            query=request.query,
            headers=request.headers,
            body=request.body or b"",
            service=self._service,
            region=self._region,
            now=datetime.now(timezone.utc) + self._correction,
        )

    @contextmanager
    def _connection(self, deadline: float) -> Iterator[Tuple[http.client.HTTPConnection, bool]]:
        """An idle connection or a new one; kept afterwards unless it was closed."""
        timeout_s = max(0.1, min(self._policy.timeout_s, deadline - time.monotonic()))
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        reused = connection is not None
        if connection is None:
            connection = self._new_connection()
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        yield connection, reused
        if connection.sock is not None:
            with self._lock:
                self._idle.append(connection)

    def _new_connection(self) -> http.client.HTTPConnection:
        import http.client  # noqa: PLC0415 - as above

        if not self._endpoint.secure:
            return http.client.HTTPConnection(self._endpoint.host, self._endpoint.port)
        return http.client.HTTPSConnection(self._endpoint.host, self._endpoint.port, context=_tls_context())

    def _note_clock(self, response: Response) -> None:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - as http.client

        for name, value in response.headers.items():
            if name.lower() == "date":
                try:
                    # the header has whole seconds: half a one more is right on average
                    self.clock_offset_s = parsedate_to_datetime(value).timestamp() + 0.5 - time.time()
                except (TypeError, ValueError):
                    return

    def _unreachable(self, request: Request, reason: str) -> AwsError:
        return AwsError(
            service=self._service,
            operation=request.operation,
            code="Unreachable",
            status=None,
            message=f"no answer from {self._endpoint.host_header}: {reason}",
            next_step="check that this node reaches it: a route (gateway endpoint, NAT or internet gateway), "
            f"the resolver, and egress on port {self._endpoint.port}",
        )

    def _refused(self, request: Request, response: Response) -> AwsError:
        code, message = self._parse_error(response)
        if code in aws_codes.FORBIDDEN:
            next_step = f"allow {request.permission} in this node's role"
        elif code in aws_codes.EXPIRED:
            next_step = (
                "renew the credentials, or unset AWS_SESSION_TOKEN so that the instance's role is used"
            )
        else:
            next_step = NEXT_STEPS.get(code, "see the service's message")
        error = AwsError(
            service=self._service,
            operation=request.operation,
            code=code,
            status=response.status,
            message=message,
            next_step=next_step,
        )
        error.answer = response
        return error


class _NoAnswer(Exception):
    """No whole answer came. `final`: another try cannot help."""

    def __init__(self, message: str, final: bool) -> None:
        super().__init__(message)
        self.final = final


def _no_answer(error: Exception) -> _NoAnswer:
    import ssl  # noqa: PLC0415 - as above

    # UnicodeError: a blank or overlong part of the host name, so a wrong bucket or region.
    final = isinstance(error, (ssl.SSLCertVerificationError, UnicodeError))
    return _NoAnswer(str(error) or type(error).__name__, final)


@cache
def _tls_context() -> ssl.SSLContext:
    """Verification by the system's store; a Python built elsewhere may not know where that is."""
    import ssl  # noqa: PLC0415 - as above

    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None:
        for bundle in ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt"):
            if os.path.exists(bundle):
                context.load_verify_locations(bundle)
                break
    return context
