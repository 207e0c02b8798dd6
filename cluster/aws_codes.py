"""AWS's codes of errors, by what they mean for whoever asked.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html and the services' own
lists; they differ by service and protocol, so each set holds all spellings.
"""

from __future__ import annotations

FORBIDDEN = frozenset(("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AllAccessDisabled"))
EXPIRED = frozenset(("ExpiredToken", "ExpiredTokenException", "RequestExpired"))
BAD_CREDENTIALS = frozenset(
    ("AuthFailure", "InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClientException")
)
THROTTLED = frozenset(
    (
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
    )
)
