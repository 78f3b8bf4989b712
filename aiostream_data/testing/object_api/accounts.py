"""Who may read: accounts, whose credentials may end at some time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Credentials that a test server takes. A server without accounts takes everybody, signed or not.

    Attributes:
        key: S3's access key, the user's name under HTTP; "" under GCS.
        secret: S3's secret key, the password under HTTP; "" under GCS.
        token: S3's session token, the bearer token of GCS and HTTP; "" for none.
        expires_s: Since the epoch; None for never.
    """

    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    expires_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """True when the credentials were good once."""
        return self.expires_s is not None and now_s >= self.expires_s


def bearer_refusal(header: str, accounts: Sequence[Account], now_s: float) -> str | None:
    """Return why an ``Authorization: Bearer`` header is refused, None if it is not."""
    scheme, _, token = header.partition(" ")
    if not header or scheme.lower() != "bearer":
        return "unsigned"
    found = [account for account in accounts if account.token == token.strip()]
    if not found:
        return "unknown_key"
    return "expired" if all(account.is_over(now_s) for account in found) else None
