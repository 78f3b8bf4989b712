"""Few bytes are read ahead from a near store, and many from any other store."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from aiostream_data.storage.bytes_ahead import LEAST, MEAN_S, MOST, SHORTEST_S, WINDOW_S, BytesAhead


def after(seconds: Iterable[float], nbytes: int = 1000, step_s: float = 0.001) -> BytesAhead:
    ahead = BytesAhead()
    for number, each in enumerate(seconds):
        ahead.took(100.0 + number * step_s, each, nbytes)
    return ahead


def test_a_store_without_measurements_is_not_near() -> None:
    assert BytesAhead().nbytes == MOST


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([SHORTEST_S] * 10, LEAST),
        ([SHORTEST_S, *[0.9 * MEAN_S] * 1000], LEAST),  # the responses wait for each other
        ([2 * SHORTEST_S] * 1000, MOST),
        ([SHORTEST_S, *[1.5 * MEAN_S] * 1000], MOST),  # few objects come from a cache of the store
    ],
)
def test_a_store_is_near_if_its_responses_are_fast_alone_and_on_average(seconds: list[float], expected: int) -> None:
    assert after(seconds).nbytes == expected


def test_responses_without_data_do_not_count() -> None:
    assert after([SHORTEST_S / 10] * 10, nbytes=0).nbytes == MOST


def test_a_store_that_became_slower_is_not_near_after_a_while() -> None:
    ahead = after([SHORTEST_S] * 10)
    ahead.took(100.0 + 0.9 * WINDOW_S, 2 * SHORTEST_S, 1000)
    assert ahead.nbytes == LEAST
    ahead.took(100.0 + 1.5 * WINDOW_S, 2 * SHORTEST_S, 1000)
    ahead.took(100.0 + 3 * WINDOW_S, 2 * SHORTEST_S, 1000)
    assert ahead.nbytes == MOST
