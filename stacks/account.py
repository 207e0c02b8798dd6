"""One way to ask an account: an answer, "there is no such thing", or why it was not told."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, TokenRetrievalError

from cluster import aws_codes

_PATIENCE = Config(connect_timeout=5, read_timeout=15, retries={"total_max_attempts": 2})


class UnreadError(Exception):
    """AWS did not answer the question; the check is None."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found, self.remedy = found, remedy
        super().__init__(found)


class Account:
    """One client a service, and one way to tell a missing permission from an answer."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.region = str(session.region_name or "")

    def ask(self, service: str, operation: str, *, absent: tuple[str, ...] = (), **arguments: Any) -> Any:
        """The answer; None when AWS says, with one of the codes in `absent`, that there is no such thing.

        Raises:
            UnreadError: the question was not answered.
        """
        words = operation.replace("_", " ").title().replace(" ", "")
        action = f"{service.replace('-', '')}:{words}"
        by_hand = f"aws {service} {operation.replace('_', '-')}"
        try:
            client = self._session.client(service, config=_PATIENCE)
            return getattr(client, operation)(**arguments)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in absent:
                return None
            if code in aws_codes.FORBIDDEN:
                raise UnreadError(
                    f"not permitted: {action}", f"allow {action}, or look by hand: {by_hand}"
                ) from error
            raise UnreadError(f"{action}: {error}", f"look by hand: {by_hand}") from error
        except BotoCoreError as error:
            raise UnreadError(f"{action}: {error}", f"look by hand: {by_hand}") from error


def refuses_credentials(error: UnreadError) -> bool:
    """Whether nothing else will be answered either: there are no credentials, or AWS takes them no more."""
    cause = error.__cause__
    if isinstance(cause, (NoCredentialsError, TokenRetrievalError)):
        return True
    code = cause.response["Error"]["Code"] if isinstance(cause, ClientError) else ""
    return code in aws_codes.BAD_CREDENTIALS | aws_codes.EXPIRED
