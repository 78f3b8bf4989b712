"""Accounts of a test server, with credentials that may expire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Credentials that a test server accepts. A server without accounts accepts signed and unsigned requests.

    Attributes:
        key: S3 access key, or HTTP user name; "" for GCS.
        secret: S3 secret key, or HTTP password; "" for GCS.
        token: S3 session token, or bearer token of GCS and HTTP; "" for none.
        expires_s: Expiry time in seconds since the Unix epoch; None for never.
    """

    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    expires_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Return True if these credentials have expired."""
        return self.expires_s is not None and now_s >= self.expires_s


def bearer_refusal(header: str, accounts: Sequence[Account], now_s: float) -> str | None:
    """Return the reason why an ``Authorization: Bearer`` header is rejected, or None if the header is valid."""
    scheme, _, token = header.partition(" ")
    if not header or scheme.lower() != "bearer":
        return "unsigned"
    found = [account for account in accounts if account.token == token.strip()]
    if not found:
        return "unknown_key"
    return "expired" if all(account.is_over(now_s) for account in found) else None
