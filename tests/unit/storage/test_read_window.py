"""The window of concurrent ranges grows with latency, and only while growth raises throughput."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiostream_data.storage.read_ahead import LEAST
from aiostream_data.storage.read_window import FREE, ROOM, ReadWindow

MIB = 1 << 20
PART = 8 * MIB


def after(
    ranges: int,
    *,
    latency_s: float,
    per_s: float,
    most: int = 64,
    noise: float = 0.0,
    tells_times: bool = False,
    weight: int = 1,
) -> ReadWindow:
    """Return the window after a store with this latency and bandwidth has delivered so many ranges.

    Args:
        noise: Fraction by which the bandwidth varies.
        tells_times: True to record the time of each request too.
        weight: Number of ranges that each request counts as.
    """
    window, now_s, draw = ReadWindow(), 0.0, random.Random(5)
    nbytes = weight * PART
    for _ in range(ranges):
        body_s = nbytes / (per_s * draw.uniform(1 - noise, 1 + noise))
        in_flight = max(1, window.ranges // weight)
        step_s = max(body_s, (latency_s + body_s) / in_flight)
        now_s += step_s
        if tells_times:
            window.arrived(nbytes, in_flight * step_s, now_s)
        window.took(nbytes, now_s, was_there=False, least=LEAST, most=most, weight=weight)
    return window


def test_the_window_grows_with_the_latency_of_the_store() -> None:
    near = after(400, latency_s=0.0, per_s=2e9).ranges
    far = after(400, latency_s=0.1, per_s=2e9).ranges
    assert near <= 2 * FREE
    assert far > 2 * near


def test_the_window_does_not_grow_while_throughput_does_not() -> None:
    assert max(after(count, latency_s=0.0, per_s=2e9).ranges for count in range(1, 2_000, 7)) <= 2 * FREE


def test_the_window_never_exceeds_what_the_memory_limit_allows() -> None:
    assert max(after(count, latency_s=1.0, per_s=2e9, most=5).ranges for count in range(1, 300)) == 5


def test_the_window_shrinks_while_every_range_arrives_in_time() -> None:
    window = after(400, latency_s=0.1, per_s=2e9)
    for turn in range(10_000):
        window.took(PART, 1e3 + turn, was_there=True, least=LEAST, most=64)
    assert window.ranges == LEAST


@pytest.mark.parametrize("weight", [1, 4])
def test_noise_does_not_grow_the_window_beyond_what_the_store_serves_at_once(weight: int) -> None:
    counts = range(200, 4_000, 300)
    store: dict[str, Any] = {"latency_s": 0.0, "per_s": 2e9, "noise": 1 / 3, "weight": weight}
    unknown = [after(count, **store).ranges for count in counts]
    known = [after(count, **store, tells_times=True).ranges for count in counts]
    assert max(unknown) > 2 * FREE  # otherwise this test shows nothing
    assert max(known) <= max(FREE, 2 * ROOM * weight)


def test_a_distant_store_has_a_large_window_also_if_the_times_of_requests_are_known() -> None:
    window = after(1_000, latency_s=0.2, per_s=2e9, noise=1 / 3, tells_times=True)
    assert 0.2 * 2e9 / PART < window.ranges <= 64
