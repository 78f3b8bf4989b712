"""Asking twice: when an answer is late, no more often than allowed, and never both answers mixed."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from aiostream_data.errors import StoreUnreachableError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.hedging import LEAST, SHARE, USUAL, Hedging
from aiostream_data.storage.hedging_store import HedgingStore

SHARD = ShardRef("s3://bucket/key", 1 << 20, "v")
NBYTES = 1000


@dataclass
class Answers:
    """A store whose answers are let go by the test: each call waits for its own event, and writes its number."""

    gates: list[asyncio.Event] = field(default_factory=list)
    failing: set[int] = field(default_factory=set)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: list[int] = field(default_factory=list)
    opened: Callable[[int], bool] = lambda number: False

    async def info(self, url: str) -> ShardRef:
        raise AssertionError

    async def glob(self, pattern: str) -> list[ShardRef]:
        raise AssertionError

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        number = len(self.gates)
        gate = asyncio.Event()
        self.gates.append(gate)
        buffer[:1] = bytes([255])  # half an answer
        if self.opened(number):
            gate.set()
        try:
            self.begun.set()
            await gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        if number in self.failing:
            raise StoreUnreachableError(shard.url, f"attempt {number}")
        buffer[:] = bytes([number]) * len(buffer)

    async def aclose(self) -> None:
        return


def ready(doubled: int = 0) -> Hedging:
    """Return what has seen quick answers enough to hedge after the least wait."""
    hedging = Hedging(doubled=doubled)
    for _ in range(4 * LEAST):
        hedging.answered(NBYTES, 0.001)
    return hedging


async def both_begun(answers: Answers) -> None:
    while len(answers.gates) < 2:
        answers.begun.clear()
        await answers.begun.wait()


def test_nothing_is_asked_twice_before_enough_is_known_or_beyond_the_share() -> None:
    hedging = Hedging()
    assert hedging.wait_s(NBYTES) is None
    for _ in range(LEAST):
        hedging.answered(NBYTES, 0.2)
    assert hedging.wait_s(NBYTES) is None  # one more would be more than a fiftieth of 32
    for _ in range(LEAST):
        hedging.answered(NBYTES, 0.2)
    assert hedging.wait_s(NBYTES) == pytest.approx(USUAL * 0.2)
    assert hedging.wait_s(64 * NBYTES) is None  # nothing is known of ranges of that size
    assert hedging.begin(NBYTES)
    assert hedging.wait_s(NBYTES) is None
    assert not hedging.begin(NBYTES)
    assert hedging.doubled <= SHARE * hedging.delivered


def test_late_is_what_took_longer_than_95_in_100_and_twice_as_long_as_is_usual() -> None:
    seconds = [0.03] * 40 + [0.5] * 20 + [1.0] * 4  # of 64, three took longer than 95 in 100
    hedging = Hedging()
    for each in seconds:
        hedging.answered(NBYTES, each)
    assert hedging.wait_s(NBYTES) == pytest.approx(1.0)
    near = Hedging()
    for number in range(64):
        near.answered(NBYTES, 0.1 + 0.001 * number)  # all of them wait for each other
    assert near.wait_s(NBYTES) == pytest.approx(USUAL * 0.132)


def test_the_second_answer_is_used_where_the_first_is_late_and_the_first_writes_no_more() -> None:
    async def main() -> None:
        answers = Answers()
        store = HedgingStore(answers, ready())
        buffer = bytearray(NBYTES)
        reading = asyncio.ensure_future(store.read_into(SHARD, 0, memoryview(buffer)))
        await both_begun(answers)
        answers.gates[1].set()
        await reading
        assert buffer == bytes([1]) * NBYTES
        assert answers.cancelled == [0]
        assert (store.hedging.begun, store.hedging.won) == (1, 1)

    asyncio.run(main())


def test_nothing_is_asked_twice_without_room_for_it_and_room_is_kept_until_it_ends() -> None:
    class Lease:
        pass

    leases: list[weakref.ref[Lease]] = []
    has_room = False

    def room(nbytes: int) -> Lease | None:
        assert nbytes == NBYTES
        lease = Lease() if has_room else None
        if lease is not None:
            leases.append(weakref.ref(lease))
        return lease

    async def main() -> None:
        nonlocal has_room
        answers = Answers()
        store = HedgingStore(answers, ready(), room)
        reading = asyncio.ensure_future(store.read_into(SHARD, 0, memoryview(bytearray(NBYTES))))
        await asyncio.sleep(0.05)  # ten times as long as an answer may take before it is late
        assert len(answers.gates) == 1
        answers.gates[0].set()
        await reading
        has_room = True
        answers.gates.clear()
        reading = asyncio.ensure_future(store.read_into(SHARD, 0, memoryview(bytearray(NBYTES))))
        await both_begun(answers)
        assert leases[0]() is not None
        answers.gates[1].set()
        await reading
        assert leases[0]() is None
        counters = store.counters
        assert (counters.hedges, counters.hedges_won, counters.hedged_nbytes) == (1, 1, NBYTES)

    asyncio.run(main())


@pytest.mark.parametrize("winner", [0, 1])
def test_the_other_answer_is_used_where_one_fails(winner: int) -> None:
    async def main() -> None:
        answers = Answers(failing={1 - winner})
        store = HedgingStore(answers, ready())
        buffer = bytearray(NBYTES)
        reading = asyncio.ensure_future(store.read_into(SHARD, 0, memoryview(buffer)))
        await both_begun(answers)
        answers.gates[1 - winner].set()
        await asyncio.sleep(0)
        answers.gates[winner].set()
        await reading
        assert buffer == bytes([winner]) * NBYTES

    asyncio.run(main())


def test_where_both_fail_the_first_error_is_raised() -> None:
    async def main() -> None:
        answers = Answers(failing={0, 1})
        store = HedgingStore(answers, ready())
        reading = asyncio.ensure_future(store.read_into(SHARD, 0, memoryview(bytearray(NBYTES))))
        await both_begun(answers)
        for gate in answers.gates:
            gate.set()
        with pytest.raises(StoreUnreachableError, match="attempt 0"):
            await reading

    asyncio.run(main())


def test_a_cancelled_read_ends_both_requests() -> None:
    async def main() -> None:
        answers = Answers()
        store = HedgingStore(answers, ready())
        reading = asyncio.ensure_future(store.read_into(SHARD, 0, memoryview(bytearray(NBYTES))))
        await both_begun(answers)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert sorted(answers.cancelled) == [0, 1]

    asyncio.run(main())
