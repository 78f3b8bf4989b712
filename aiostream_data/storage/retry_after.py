"""How long a store asks to be left alone, by the Retry-After header of its answer: in seconds, or until a date."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from aiostream_data.errors import StorageError, StoreBusyError

MAX_RETRY_AFTER_S: Final = 120.0
"""A store that asks for a longer rest is asked again by then."""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds a store asks for rest; None where it does not say, or cannot be believed.

    A date is compared with that of the answer, since the clock of this machine may be wrong.

    Args:
        headers: Must look names up without regard to case, or hold them in lower case.
    """
    told = headers.get("retry-after", "").strip()
    if told.isascii() and told.isdecimal() and len(told) < 10:
        return min(float(told), MAX_RETRY_AFTER_S)
    until = _date(told)
    if until is None:
        return None
    left_s = (until - (_date(headers.get("date", "")) or datetime.now(UTC))).total_seconds()
    return min(max(left_s, 0.0), MAX_RETRY_AFTER_S)


def with_retry_after(error: StorageError, headers: Mapping[str, str]) -> StorageError:
    """Return ``error``, with what the answer says of when to come back where it is that the store is busy."""
    if isinstance(error, StoreBusyError):
        error.retry_after_s = retry_after_s(headers)
    return error


def _date(told: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(told)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
