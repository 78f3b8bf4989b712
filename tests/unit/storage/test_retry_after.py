"""Retry-After is understood in both its forms, and believed within bounds."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from aiostream_data.errors import AccessDeniedError, StoreBusyError
from aiostream_data.storage.retry_after import MAX_RETRY_AFTER_S, retry_after_s, with_retry_after

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("0", 0.0),
        (" 7 ", 7.0),
        ("100000", MAX_RETRY_AFTER_S),
        ("Wed, 21 Oct 2026 07:28:09 GMT", 9.0),
        ("Wed, 21 Oct 2026 07:28:09 -0000", 9.0),
        ("Wednesday, 21-Oct-26 07:28:09 GMT", 9.0),
        ("Wed Oct 21 07:28:09 2026", 9.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("Thu, 22 Oct 2026 07:28:00 GMT", MAX_RETRY_AFTER_S),
        *((text, None) for text in ("", "-1", "1.5", "soon", "\xb2", "1" * 10, "Wed, 99 Oct 2026 07:28:09 GMT", "1 2")),
    ],
)
def test_seconds_and_dates_are_told_from_anything_else(told: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": told, "date": DATE}) == seconds


def test_a_date_counts_from_now_where_the_answer_has_none() -> None:
    found = retry_after_s({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    assert found is not None
    assert 27 < found <= 30
    assert retry_after_s({}) is None


def test_only_a_busy_store_is_come_back_to() -> None:
    busy, denied = StoreBusyError("s3://b/k", "busy"), AccessDeniedError("s3://b/k", "denied")
    assert with_retry_after(busy, {"retry-after": "3"}) is busy
    assert busy.retry_after_s == 3.0
    assert not hasattr(with_retry_after(denied, {"retry-after": "3"}), "retry_after_s")
