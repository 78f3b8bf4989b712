"""FastestRequest keeps the shortest time of the largest requests. A kept time doubles every 30 seconds."""

from __future__ import annotations

import pytest

from aiostream_data.storage.fastest_request import DOUBLES_S, FastestRequest

MIB = 1 << 20


def test_no_request_takes_no_time() -> None:
    fastest = FastestRequest()
    assert not fastest.is_known
    assert fastest.seconds(1e9) == 0.0


def test_the_shortest_of_equally_large_requests_counts() -> None:
    fastest = FastestRequest()
    for seconds in (0.3, 0.1, 0.2):
        fastest.took(8 * MIB, seconds, 0.0)
    assert fastest.is_known
    assert fastest.seconds(0.0) == 0.1


def test_small_requests_are_ignored_and_larger_ones_replace_smaller_ones() -> None:
    fastest = FastestRequest()
    fastest.took(1 * MIB, 0.02, 0.0)
    fastest.took(8 * MIB, 0.1, 0.0)
    assert fastest.seconds(0.0) == 0.1
    fastest.took(4 * MIB, 0.05, 0.0)
    assert fastest.seconds(0.0) == 0.1
    fastest.took(6 * MIB, 0.09, 0.0)
    assert fastest.seconds(0.0) == 0.09


def test_an_old_measurement_grows_until_a_newer_one_is_shorter() -> None:
    fastest = FastestRequest()
    fastest.took(8 * MIB, 0.1, 0.0)
    assert fastest.seconds(DOUBLES_S) == pytest.approx(0.2)
    fastest.took(8 * MIB, 0.3, DOUBLES_S)
    assert fastest.seconds(DOUBLES_S) == pytest.approx(0.2)
    fastest.took(8 * MIB, 0.15, DOUBLES_S)
    assert fastest.seconds(DOUBLES_S) == 0.15
    assert 1e3 < fastest.seconds(1e9) < 1e6
