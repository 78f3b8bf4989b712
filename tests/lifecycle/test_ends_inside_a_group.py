"""A run that ends at any moment of a group of small shards leaves no task, thread, file or memory charge behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from leaks import leaves_nothing
from many_shards import COMPRESS, CONTENT
from memory_budgets import living_budgets

from aiostream_data import Dataset
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.sources import group_limits, groups_ahead
from aiostream_data._engine.sources.group_rows import GroupSplitter
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data._engine.sources.small_shards import SmallShards
from aiostream_data.storage.file_reads import FileReader
from aiostream_data.storage.stores import StoreSet

PATIENCE_S = 10.0
SHARDS = 100


class Moment(NamedTuple):
    """A call that is made for a group.

    Attributes:
        owner, name: Class and name of the method.
        on_thread: True if a worker thread makes the call.
    """

    owner: Any
    name: str
    on_thread: bool = False


MOMENTS = [
    Moment(StoreSet, "infos"),
    Moment(Budget, "admit"),
    Moment(StoreSet, "read_objects"),
    Moment(FileReader, "read_objects", on_thread=True),
    Moment(ShardSiblings, "evidence"),
    Moment(Budget, "room_for_step"),
    Moment(GroupSplitter, "split_unless_compressed", on_thread=True),
    Moment(GroupSplitter, "split_compressed", on_thread=True),
    Moment(SmallShards, "read_rest"),
]


@pytest.fixture(autouse=True)
def small_shards_in_groups_or_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the fixture of all tests: these read in groups that are so small that some have a rest.

    Groups grow on machines of any speed.
    """
    monkeypatch.setattr(group_limits, "GROUP_NBYTES", 1 << 11)
    monkeypatch.setattr(groups_ahead, "QUICK_S", 60.0)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset[Any]:
    """Return a data set of files of unknown sizes. Some files are compressed or empty. They fill several groups."""
    for number in range(SHARDS):
        data = 7 * CONTENT["from_text"](number) if number % 3 else b""
        (tmp_path / f"{number:03}").write_bytes(COMPRESS["gzip" if number % 2 else ""](data))
    names = [str(path) for path in sorted(tmp_path.iterdir())]
    return Dataset.from_text(Dataset.from_tensor_slices(names), cycle_length=2)


class Stop:
    """Stops calls from number ``after`` on, before or after their work, until the run cancels them or ``end()``."""

    def __init__(self, moment: Moment, after: int, *, works_first: bool) -> None:
        self.reached, self._released = threading.Event(), threading.Event()
        self.budgets: list[Budget] = []
        self._moment, self._left, self._works_first = moment, after, works_first
        self._counting = threading.Lock()
        self._method = getattr(moment.owner, moment.name)

    def __enter__(self) -> Stop:
        self._before = living_budgets()  # of earlier tests
        self._patch = pytest.MonkeyPatch()
        stopped = self._stopped_on_thread() if self._moment.on_thread else self._stopped()
        self._patch.setattr(self._moment.owner, self._moment.name, stopped)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def end(self) -> None:
        """Let the worker threads go on."""
        self._released.set()

    def _is_due(self) -> bool:
        with self._counting:
            self._left -= 1
            if self._left >= 0:
                return False
        self.budgets += living_budgets() - self._before
        self.reached.set()
        return True

    def _stopped_on_thread(self) -> Callable[..., Any]:
        def stopped(*args: Any) -> Any:
            done = self._method(*args) if self._works_first else None
            if self._is_due():
                assert self._released.wait(PATIENCE_S)
            return done if self._works_first else self._method(*args)

        return stopped

    def _stopped(self) -> Callable[..., Any]:
        async def stopped(*args: Any) -> Any:
            done = await self._method(*args) if self._works_first else None
            if self._is_due():
                await asyncio.get_running_loop().create_future()
            return done if self._works_first else await self._method(*args)

        return stopped


async def read(dataset: Dataset[Any], stop: Stop, leave: asyncio.Event) -> None:
    """Read rows until the run stops, and leave the loader when the event is set."""
    async with dataset.open() as loader:

        async def take() -> None:
            async for _ in loader:
                pass

        taking = asyncio.create_task(take())
        try:
            await leave.wait()
        finally:
            taking.cancel()
            with suppress(asyncio.CancelledError):
                await taking
            asyncio.get_running_loop().call_soon(stop.end)  # while the loader closes


@pytest.mark.parametrize("works_first", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("ending", ["leave", "cancel"])
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name if isinstance(moment, Moment) else None)
def test_a_run_that_ends_at_a_moment_of_a_group_leaves_nothing(
    dataset: Dataset[Any], moment: Moment, ending: str, works_first: bool
) -> None:
    async def main(stop: Stop) -> None:
        leave = asyncio.Event()
        reading = asyncio.create_task(read(dataset, stop, leave))
        assert await asyncio.to_thread(stop.reached.wait, PATIENCE_S)
        if ending == "leave":
            leave.set()
            await reading
        else:
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

    for after in (0, 2):
        with leaves_nothing(), Stop(moment, after, works_first=works_first) as stop:
            asyncio.run(main(stop))
            gc.collect()
            assert [budget.used for budget in stop.budgets] == [0] * len(stop.budgets)
            assert stop.budgets
