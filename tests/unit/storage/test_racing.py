"""Two reads of the same: the first to come counts, the other has ended, and the caller can still be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from aiostream_data.errors import StoreUnreachableError
from aiostream_data.storage.alarms import Alarms
from aiostream_data.storage.racing import first_of_two


@dataclass
class Reads:
    """A first and a second read that end when the test says so."""

    gates: dict[int, asyncio.Event] = field(default_factory=lambda: {1: asyncio.Event(), 2: asyncio.Event()})
    begun: dict[int, asyncio.Event] = field(default_factory=lambda: {1: asyncio.Event(), 2: asyncio.Event()})
    failing: set[int] = field(default_factory=set)
    stubborn: bool = False
    ended: list[int] = field(default_factory=list)

    async def read(self, number: int) -> None:
        self.begun[number].set()
        try:
            await self.gates[number].wait()
            if number in self.failing:
                raise StoreUnreachableError("s3://bucket/key", f"attempt {number}")
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
        finally:
            self.ended.append(number)

    def second(self) -> Coroutine[Any, Any, None]:
        return self.read(2)

    def race(self) -> asyncio.Task[bool]:
        return asyncio.create_task(first_of_two(self.read(1), 0.0, self.second, Alarms()))


def test_the_first_in_time_begins_no_second() -> None:
    async def main() -> None:
        reads = Reads()
        reads.gates[1].set()
        assert await first_of_two(reads.read(1), 30.0, reads.second, Alarms()) is False
        assert reads.ended == [1]

    asyncio.run(main())


@pytest.mark.parametrize("winner", [1, 2])
def test_the_first_to_come_counts_and_the_other_has_ended(winner: int) -> None:
    async def main() -> None:
        reads = Reads()
        racing = reads.race()
        await reads.begun[2].wait()
        reads.gates[winner].set()
        assert await racing is (winner == 2)
        assert sorted(reads.ended) == [1, 2]
        assert racing.cancelling() == 0

    asyncio.run(main())


def test_a_caller_that_is_cancelled_while_the_second_comes_is_cancelled() -> None:
    async def main() -> None:
        reads = Reads()
        racing = reads.race()
        await reads.begun[2].wait()
        reads.gates[2].set()
        await asyncio.sleep(0)
        racing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await racing
        assert sorted(reads.ended) == [1, 2]

    asyncio.run(main())


def test_a_first_one_that_cannot_be_cancelled_counts_and_leaves_no_cancellation_behind() -> None:
    async def main() -> None:
        reads = Reads(stubborn=True)

        async def then_goes_on() -> bool:
            second_won = await first_of_two(reads.read(1), 0.0, reads.second, Alarms())
            await asyncio.sleep(0)  # where a cancellation left behind would come out
            return second_won

        racing = asyncio.create_task(then_goes_on())
        await reads.begun[2].wait()
        reads.gates[2].set()
        assert await racing is False
        assert racing.cancelling() == 0

    asyncio.run(main())


def test_a_first_one_that_fails_waits_for_the_second_and_its_error_counts_where_both_fail() -> None:
    async def main(failing: set[int]) -> bool:
        reads = Reads(failing=failing)
        racing = reads.race()
        await reads.begun[2].wait()
        reads.gates[1].set()
        await asyncio.sleep(0)
        assert not racing.done()
        reads.gates[2].set()
        return await racing

    assert asyncio.run(main({1})) is True
    with pytest.raises(StoreUnreachableError, match="attempt 1"):
        asyncio.run(main({1, 2}))


def test_there_is_no_second_where_there_must_not_be_one() -> None:
    async def main() -> None:
        reads = Reads()
        asked = asyncio.Event()

        def none() -> None:
            asked.set()

        racing = asyncio.create_task(first_of_two(reads.read(1), 0.0, none, Alarms()))
        await asked.wait()
        reads.gates[1].set()
        assert await racing is False
        assert reads.ended == [1]

    asyncio.run(main())
