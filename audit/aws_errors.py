"""What AWS's refusals mean for whoever looks: which permission is missing, whose credentials ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSOError,
    TokenRetrievalError,
)

from cluster import aws_codes

AWS_ERRORS = (BotoCoreError, ClientError)
"""What a call raises when AWS does not answer, or refuses."""

SIGN_IN = "sign in again, e.g. aws sso login, or set AWS_PROFILE"


class Reach(str, Enum):
    """What else would fail alike, so that asking on only costs time."""

    CALL = "call"
    SERVICE = "service"
    SESSION = "session"


@dataclass(frozen=True)
class Refusal:
    """Why a document could not be read. action: the IAM action that is missing; blank = it is not that."""

    text: str
    action: str = ""
    reach: Reach = Reach.CALL


def code_of(error: Exception) -> str:
    """AWS's own code of a refusal; blank where it is none."""
    response: Any = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,
)
NO_ANSWER = (EndpointConnectionError, ConnectTimeoutError, ReadTimeoutError)


def refusal(error: Exception, action: str, region: str) -> Refusal:
    """Explain what a call raised. action: the IAM action that the call needs."""
    code = code_of(error)
    text, reach = f"{action}: {' '.join(str(error).split())}", Reach.CALL
    if code in aws_codes.FORBIDDEN:
        return Refusal(f"not permitted: {action}", action=action)
    if code in aws_codes.EXPIRED:
        text, reach = f"the credentials have expired ({code}); {SIGN_IN}", Reach.SESSION
    elif code in aws_codes.BAD_CREDENTIALS:
        text, reach = f"the credentials are not accepted ({code}); {SIGN_IN}", Reach.SESSION
    elif code in aws_codes.THROTTLED:
        text = f"{action} was throttled until the retries were used up ({code}); run it again later"
    elif isinstance(error, NoRegionError):
        text, reach = "no region is set; set AWS_REGION to the cluster's", Reach.SESSION
    elif isinstance(error, NO_CREDENTIALS):
        text, reach = f"there are no credentials that work ({error}); {SIGN_IN}", Reach.SESSION
    elif isinstance(error, NO_ANSWER):
        text, reach = f"{action.partition(':')[0]} in {region} did not answer ({error})", Reach.SERVICE
    return Refusal(text, reach=reach)
