"""Reads that take much longer than the reads beside them are given up; all others have their outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiostream_data.storage import late_reads
from aiostream_data.storage.late_reads import LATE, outcomes_of

Read = Callable[[], Awaitable[None]]


def reading(seconds: float, error: Exception | None = None, ended: list[float] | None = None) -> Read:
    async def read() -> None:
        try:
            await asyncio.sleep(seconds)
            if error is not None:
                raise error
        finally:
            if ended is not None:
                ended.append(seconds)

    return read


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_reads, "LEAST_PATIENCE_S", 0.05)


def test_every_read_has_its_outcome() -> None:
    wrong = ValueError("wrong")
    found = asyncio.run(outcomes_of({3: reading(0.0), 5: reading(0.01, wrong), 8: reading(0.02)}))
    assert found == {3: None, 5: wrong, 8: None}


def test_no_reads_have_no_outcome() -> None:
    assert asyncio.run(outcomes_of({})) == {}


def test_a_read_much_longer_than_the_others_is_late_and_has_ended() -> None:
    ended: list[float] = []
    found = asyncio.run(outcomes_of({0: reading(0.0), 1: reading(60.0, ended=ended), 2: reading(0.01)}))
    assert found == {0: None, 1: LATE, 2: None}
    assert ended == [60.0]


def test_reads_that_are_all_slow_are_not_late() -> None:
    found = asyncio.run(outcomes_of({number: reading(0.2 + 0.01 * number) for number in range(8)}))
    assert found == dict.fromkeys(range(8))


def test_a_single_slow_read_is_not_late() -> None:
    assert asyncio.run(outcomes_of({0: reading(0.2)})) == {0: None}


def test_a_cancelled_call_ends_all_reads_first() -> None:
    ended: list[float] = []

    async def main() -> None:
        call = asyncio.ensure_future(outcomes_of({0: reading(60.0, ended=ended), 1: reading(50.0, ended=ended)}))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert sorted(ended) == [50.0, 60.0]

    asyncio.run(main())
