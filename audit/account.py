"""One AWS account, asked read-only: pages, retries, and what a refusal means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from botocore.config import Config

from audit.aws_errors import AWS_ERRORS, Reach, Refusal, code_of, refusal
from audit.documents import LIST_KEYS, Json
from audit.readings import Reading

PATIENCE = Config(
    connect_timeout=5,
    read_timeout=20,
    retries={"mode": "standard", "total_max_attempts": 6},
    max_pool_connections=16,
)
"""Standard retries back off from throttling up to 20 s a time; adaptive ones would also hold back the
calls that are not throttled (boto3's guide, "Retries")."""

FILTER_VALUES = 200
"""The most values that one filter of EC2 takes."""


class Unread(Exception):
    """A document could not be read; `refusal` says why."""

    def __init__(self, refused: Refusal) -> None:
        self.refusal = refused
        super().__init__(refused.text)


class Account:
    """Calls of one session. After a refusal that holds for more than its call, the rest is not tried.

    session: a boto3 session with the region to look in.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self.region = str(session.region_name or "")
        self._silent: dict[str, Refusal] = {}
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """The client of a service.

        Raises:
            Unread: there is no region, or no credentials that could be found.
        """
        if service not in self._clients:
            try:
                self._clients[service] = self._session.client(service, config=PATIENCE)
            except AWS_ERRORS as error:
                raise self._refused(error, f"{service}:*") from error
        return self._clients[service]

    def pages(self, reading: Reading, **arguments: Any) -> Json:
        """The whole document of a call that lists, all pages joined; an empty one for nothing.

        Raises:
            Unread: AWS did not answer, or refused.
        """
        with self._asked(reading) as client:
            try:
                if not client.can_paginate(reading.operation):
                    return self._plain(getattr(client, reading.operation)(**arguments))
                pages = client.get_paginator(reading.operation).paginate(**arguments)
                found: Json = {LIST_KEYS.get(reading.name, reading.name): []}
                found.update(pages.build_full_result())
                return found
            except AWS_ERRORS as error:
                if code_of(error) in reading.missing:
                    return {LIST_KEYS.get(reading.name, reading.name): []}
                raise

    def filtered(self, reading: Reading, name: str, values: list[str], **arguments: Any) -> Json:
        """`pages` of everything that one filter takes, in as many calls as its values need.

        Raises:
            Unread: see `pages`.
        """
        key = "Filter" if reading.operation in ("describe_flow_logs", "describe_nat_gateways") else "Filters"
        joined: Json = {LIST_KEYS[reading.name]: []}
        for start in range(0, len(values), FILTER_VALUES):
            wanted = [{"Name": name, "Values": values[start : start + FILTER_VALUES]}]
            found = self.pages(reading, **{key: wanted}, **arguments)
            joined[LIST_KEYS[reading.name]] += found[LIST_KEYS[reading.name]]
        return joined

    def call(self, reading: Reading, **arguments: Any) -> Json | None:
        """One answer; None where AWS says that there is no such thing.

        Raises:
            Unread: see `pages`.
        """
        with self._asked(reading) as client:
            try:
                return self._plain(getattr(client, reading.operation)(**arguments))
            except AWS_ERRORS as error:
                if code_of(error) in reading.missing:
                    return None
                raise

    @contextlib.contextmanager
    def _asked(self, reading: Reading) -> Iterator[Any]:
        """The service's client; what it raises becomes `Unread`."""
        before = self._silent.get("") or self._silent.get(reading.service)
        if before is not None:
            raise Unread(Refusal(f"not tried: {before.text}"))
        try:
            yield self.client(reading.service)
        except AWS_ERRORS as error:
            raise self._refused(error, reading.action) from error

    def _refused(self, error: Exception, action: str) -> Unread:
        found = refusal(error, action, self.region)
        if found.reach is not Reach.CALL:
            self._silent["" if found.reach is Reach.SESSION else action.partition(":")[0]] = found
        return Unread(found)

    @staticmethod
    def _plain(answer: Any) -> Json:
        return {key: value for key, value in answer.items() if key != "ResponseMetadata"}
