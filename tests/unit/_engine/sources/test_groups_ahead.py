"""The groups of small shards that are read ahead: those that arrived early do not stop the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiostream_data._engine.sources.group_limits import (
    GROUP_SHARDS,
    REQUESTS_OF_A_GROUP,
    SEPARATE_REMOTE_GROWTH,
    GroupSize,
)
from aiostream_data._engine.sources.groups_ahead import (
    EARLY_GROUPS,
    FIRST,
    GROUPS_OF_A_LANE,
    LOCAL_NBYTES_AHEAD,
    QUICK_S,
    SLOW_S,
    GroupsAhead,
    adapted_size,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.bytes_ahead import LEAST, MOST
from aiostream_data.storage.lanes import Lane

REMOTE, LOCAL = ShardRef("s3://bucket/a", 1), ShardRef("/folder/a", 1)


class Reads:
    """Groups that are read until they are told that their bytes have arrived."""

    def __init__(self, groups: GroupsAhead, nbytes: int = 1, shards: int = 1) -> None:
        self._groups = groups
        self.nbytes = nbytes
        self._shards = shards
        self._arrived: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    def fill(self, first: ShardRef, lane: Lane | None = None) -> int:
        """Begin as many groups as possible. Return how many."""
        began = 0
        while self._groups.may_begin(first, lane):
            self.begin()
            began += 1
            assert began < 1000
        return began

    def begin(self) -> None:
        async def read(arrived: asyncio.Event) -> None:
            await arrived.wait()

        event = asyncio.Event()
        self._arrived.append(event)
        self.tasks.append(asyncio.create_task(read(event)))
        self._groups.begun(self.tasks[-1], self._shards, self.nbytes)

    async def arrive(self, *places: int) -> None:
        for place in places:
            self._arrived[place].set()
            await self.tasks[place]
        await asyncio.sleep(0)  # the callbacks of the tasks

    async def arrive_all(self) -> None:
        await self.arrive(*range(len(self.tasks)))


def run(case: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await case()

    asyncio.run(main())


def test_groups_that_arrived_behind_a_late_one_are_replaced_up_to_a_limit() -> None:
    async def case() -> None:
        groups = GroupsAhead()
        reads = Reads(groups)
        most = reads.fill(REMOTE)
        await reads.arrive(*range(1, most))
        assert reads.fill(REMOTE) == most - 1
        await reads.arrive(*range(most, 2 * most - 1))
        assert reads.fill(REMOTE) == EARLY_GROUPS * most - (2 * most - 1)
        await reads.arrive_all()

    run(case)


@pytest.mark.parametrize(("first", "crowd"), [(LOCAL, 1), (REMOTE, 4)])
def test_all_groups_of_local_files_and_of_mixtures_count(first: ShardRef, crowd: int) -> None:
    async def case() -> None:
        reads = Reads(GroupsAhead(crowd))
        most = reads.fill(first)
        await reads.arrive(*range(1, most))
        assert reads.fill(first) == 0
        await reads.arrive_all()

    run(case)


def test_a_group_that_was_taken_makes_room_for_another() -> None:
    async def case() -> None:
        groups = GroupsAhead()
        reads = Reads(groups)
        reads.fill(LOCAL)
        await reads.arrive(0)
        groups.needs(reads.tasks[0], is_local=True)
        groups.took(4, 1, 0.001, is_local=True)
        assert reads.fill(LOCAL) == 1
        await reads.arrive_all()

    run(case)


@pytest.mark.parametrize(
    ("first", "nbytes", "began"),
    [(LOCAL, LOCAL_NBYTES_AHEAD, 1), (REMOTE, LOCAL_NBYTES_AHEAD, 2), (REMOTE, MOST, 1)],
)
def test_large_groups_are_limited_by_their_bytes(first: ShardRef, nbytes: int, began: int) -> None:
    async def case() -> None:
        groups = GroupsAhead()
        reads = Reads(groups, nbytes)
        assert reads.fill(first) == began
        await reads.arrive(0)
        groups.needs(reads.tasks[0], is_local=first is LOCAL)
        groups.took(4, nbytes, 0.001, is_local=first is LOCAL)
        assert reads.fill(first) == 1
        await reads.arrive_all()

    run(case)


@pytest.mark.parametrize(
    ("limit", "shards", "began"), [(None, 64, 16), (16, 64, 2), (16, 32, 2), (16, 8, 5), (64, 64, 3), (1000, 64, 16)]
)
def test_groups_have_no_more_requests_than_the_store_may_answer_soon(
    limit: int | None, shards: int, began: int
) -> None:
    async def case() -> None:
        groups = GroupsAhead()
        lane = None
        if limit is not None:
            lane = Lane()
            lane.aimd.limit = limit
        for _ in range(4):
            groups._reads.took(16, was_there=False)
        reads = Reads(groups, shards=shards)
        assert reads.fill(REMOTE, lane) == began
        await reads.arrive(0)
        assert reads.fill(REMOTE, lane) == 1
        await reads.arrive_all()

    run(case)


def test_groups_of_a_near_store_are_smaller_and_take_less_memory() -> None:
    async def case() -> None:
        groups = GroupsAhead(size=GroupSize(64, SEPARATE_REMOTE_GROWTH * FIRST.nbytes))
        lane = Lane()
        assert groups.next_size(None) == groups.next_size(lane) == groups.size
        lane.answered(0.001, 0.001, nbytes=1000)
        assert groups.next_size(lane) == (64, LEAST // GROUPS_OF_A_LANE)
        reads = Reads(groups, LEAST)
        assert reads.fill(REMOTE, lane) == 1
        assert reads.fill(REMOTE) > 0
        await reads.arrive_all()

    run(case)


def test_a_needed_group_begins_even_if_groups_that_were_taken_still_count_as_being_read() -> None:
    async def case() -> None:
        groups = GroupsAhead()
        lane = Lane()
        lane.aimd.limit = 1
        reads = Reads(groups, shards=64)
        reads.begin()
        reads.begin()
        for task in reads.tasks:
            groups.needs(task, is_local=False)
            groups.took(64, 1, 0.001, is_local=False)
        assert groups.may_begin(REMOTE, lane, is_needed=True)
        await reads.arrive_all()

    run(case)


def test_late_groups_increase_the_number_of_groups() -> None:
    async def case() -> None:
        groups = GroupsAhead()
        reads = Reads(groups)
        before = reads.fill(REMOTE)
        groups.needs(reads.tasks[0], is_local=False)
        assert reads.fill(REMOTE) == before
        await reads.arrive_all()

    run(case)


def test_more_groups_are_opened_whenever_one_arrives_while_the_first_is_awaited() -> None:
    async def case() -> None:
        groups = GroupsAhead()
        reads = Reads(groups)
        reads.fill(REMOTE)
        opened: list[int] = []
        waiting = asyncio.create_task(groups.until_read(reads.tasks[0], lambda: opened.append(reads.fill(REMOTE))))
        await asyncio.sleep(0)
        assert opened == [0]
        await reads.arrive(1)
        await asyncio.sleep(0)
        assert opened == [0, 1]
        assert not waiting.done()
        await reads.arrive(0)
        await waiting
        await reads.arrive_all()

    run(case)


@pytest.mark.parametrize("is_local", [True, False])
def test_groups_double_their_shards_and_bytes_up_to_a_limit(is_local: bool) -> None:
    sizes = [FIRST]
    for _ in range(10):
        sizes.append(adapted_size(sizes[-1], QUICK_S / 2, is_local=is_local))
    assert sizes[1] == (2 * FIRST.shards, 2 * FIRST.nbytes)
    assert sizes[-1] == (GROUP_SHARDS if is_local else REQUESTS_OF_A_GROUP, SEPARATE_REMOTE_GROWTH * FIRST.nbytes)


def test_only_groups_of_local_files_stay_small_if_they_are_read_slowly() -> None:
    size = adapted_size(FIRST, 0, is_local=True)
    assert adapted_size(size, 2 * SLOW_S, is_local=True) == FIRST
    assert adapted_size(size, 2 * QUICK_S, is_local=True) == size
    assert adapted_size(size, 2 * SLOW_S, is_local=False).shards == 2 * size.shards


@pytest.mark.parametrize(("shards", "nbytes", "grows"), [(4, 1, True), (1, FIRST.nbytes, True), (1, 1, False)])
def test_groups_grow_if_their_shards_or_bytes_filled_the_last_one(shards: int, nbytes: int, grows: bool) -> None:
    async def case() -> None:
        groups = GroupsAhead()
        reads = Reads(groups, nbytes)
        reads.fill(REMOTE)
        await reads.arrive_all()
        groups.took(shards, nbytes, 0.001, is_local=False)
        assert (groups.size != FIRST) == grows

    run(case)
