"""Where AWS services answer: regional host names by partition, or what AWS_ENDPOINT_URL says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

PARTITION_SUFFIXES = (  # region prefix -> DNS suffix of its partition, longest prefix first
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("us-iso-", "c2s.ic.gov"),
    ("eusc-", "amazonaws.eu"),
    ("cn-", "amazonaws.com.cn"),
)


@dataclass(frozen=True)
class Endpoint:
    """Where a service answers. `custom`: set by AWS_ENDPOINT_URL or AWS_ENDPOINT_URL_<SERVICE>."""

    secure: bool
    host: str
    port: int
    base_path: str = ""
    custom: bool = False

    @property
    def host_header(self) -> str:
        return self.host if self.port == (443 if self.secure else 80) else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, url: str, custom: bool = False) -> Endpoint:
        """Read an http:// or https:// URL; query and fragment do not belong to an endpoint.

        Raises:
            ValueError: `url` is no such URL. Its query is not shown: it may hold a signature.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"endpoint {url.partition('?')[0]!r} is no http:// or https:// URL")
        secure = parts.scheme == "https"
        return cls(
            secure=secure,
            host=parts.hostname,
            port=parts.port or (443 if secure else 80),
            base_path=parts.path.rstrip("/"),
            custom=custom,
        )

    @classmethod
    def of(cls, name: str, region: str, variable: str) -> Endpoint:
        """The endpoint of the service whose host names begin with `name`.

        Args:
            variable: the service's part in AWS_ENDPOINT_URL_<SERVICE>, e.g. CLOUDWATCH_LOGS.
        """
        if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
            for key in (f"AWS_ENDPOINT_URL_{variable}", "AWS_ENDPOINT_URL"):
                if os.environ.get(key):
                    return cls.parse(os.environ[key], custom=True)
        suffix = next((s for prefix, s in PARTITION_SUFFIXES if region.startswith(prefix)), "amazonaws.com")
        return cls.parse(f"https://{name}.{region}.{suffix}")
