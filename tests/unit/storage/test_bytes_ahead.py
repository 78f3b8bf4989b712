"""Bytes to read ahead from a store: bandwidth times latency, within bounds."""

from __future__ import annotations

import pytest

from aiostream_data.storage.bytes_ahead import (
    LATENCY_WINDOW_S,
    LEAST,
    MOST,
    MULTIPLE,
    RATE_WINDOW_S,
    UNKNOWN,
    BytesAhead,
)

GB = 1_000_000_000


def received(ahead: BytesAhead, latency_s: float, bytes_per_s: float, start_s: float = 0.0, for_s: float = 1.0) -> None:
    """Record a hundred responses per second. One in ten arrives without waiting for others."""
    for number in range(round(100 * for_s)):
        late_s = latency_s * (1 if number % 10 == 0 else 20)
        ahead.took(start_s + number / 100, late_s, round(bytes_per_s / 100))


def test_a_store_without_measurements_gets_a_default() -> None:
    ahead = BytesAhead()
    assert ahead.nbytes == UNKNOWN
    ahead.took(1.0, 0.02, 1000)
    assert ahead.nbytes == UNKNOWN


@pytest.mark.parametrize(
    ("latency_s", "bytes_per_s", "expected"),
    [
        (0.001, 2 * GB, LEAST),
        (0.02, 2 * GB, MULTIPLE * 0.02 * 2 * GB),
        (0.03, 1 * GB, MULTIPLE * 0.03 * 1 * GB),
        (0.2, 5 * GB, MOST),
    ],
)
def test_the_bytes_follow_bandwidth_times_the_shortest_latency(
    latency_s: float, bytes_per_s: float, expected: float
) -> None:
    ahead = BytesAhead()
    received(ahead, latency_s, bytes_per_s)
    assert ahead.nbytes == pytest.approx(expected, rel=0.2)


def test_a_faster_reader_soon_gets_more_and_a_slower_one_gradually_less() -> None:
    ahead = BytesAhead()
    received(ahead, 0.02, GB)
    received(ahead, 0.02, 3 * GB, start_s=1.0, for_s=3 * RATE_WINDOW_S)
    most = ahead.nbytes
    assert most == pytest.approx(MULTIPLE * 0.02 * 3 * GB, rel=0.2)
    received(ahead, 0.02, GB, start_s=2.0, for_s=3 * RATE_WINDOW_S)
    assert 0.4 * most < ahead.nbytes < most
    received(ahead, 0.02, GB, start_s=3.0, for_s=4.0)
    assert ahead.nbytes == pytest.approx(MULTIPLE * 0.02 * GB, rel=0.3)


def test_a_pause_is_no_slow_reader() -> None:
    ahead = BytesAhead()
    received(ahead, 0.02, 2 * GB)
    before = ahead.nbytes
    received(ahead, 0.02, 2 * GB, start_s=100.0, for_s=0.05)
    assert ahead.nbytes == before


def test_a_store_that_moved_away_gets_more_after_a_while() -> None:
    ahead = BytesAhead()
    received(ahead, 0.001, 2 * GB)
    received(ahead, 0.03, 2 * GB, start_s=1.0, for_s=LATENCY_WINDOW_S / 2)
    assert ahead.nbytes == LEAST
    received(ahead, 0.03, 2 * GB, start_s=LATENCY_WINDOW_S + 1, for_s=1.0)
    received(ahead, 0.03, 2 * GB, start_s=2 * LATENCY_WINDOW_S + 3, for_s=1.0)
    assert ahead.nbytes > 4 * LEAST
