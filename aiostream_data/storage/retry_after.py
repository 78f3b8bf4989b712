"""Parse the Retry-After header of a response: a number of seconds or a date."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from aiostream_data.errors import StorageError, StoreBusyError

MAX_RETRY_AFTER_S: Final = 120.0
"""Maximum accepted time in a Retry-After header, in seconds. Longer times are reduced to this value."""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait according to the Retry-After header, or None if the header is missing or invalid.

    A date in Retry-After is compared with the Date header of the response, because the local clock may be wrong.

    Args:
        headers: Response headers, as a case-insensitive mapping or with names in lower case.
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
    """Set ``retry_after_s`` on a StoreBusyError from the headers of the response. Return ``error``."""
    if isinstance(error, StoreBusyError):
        error.retry_after_s = retry_after_s(headers)
    return error


def _date(told: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(told)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
