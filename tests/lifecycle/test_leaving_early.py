"""A consumer that leaves early, in any way and at any moment, leaves nothing behind.

Every stage is left in two of the ways, and each way leaves several stages; with ``ASD_ENDINGS=all`` in the environment
every stage is left in every way. Other moments, and pairs, are those of ``test_random_endings.py``.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import os
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from leaks import leaves_nothing
from pipelines import ROWS, STAGES, same

from aiostream_data import Dataset, Loader
from aiostream_data._engine import engine
from aiostream_data._engine.resources import Resources
from aiostream_data.errors import LoaderClosedError

Leave = Callable[[Dataset[Any], int], None]


def by_break(dataset: Dataset[Any], after: int) -> None:
    with dataset.open() as loader:
        for _ in itertools.islice(loader, after):
            pass


def by_an_exception_in_the_loop_body(dataset: Dataset[Any], after: int) -> None:
    def train() -> None:
        with dataset.open() as loader:
            for number, _ in enumerate(loader):
                if number == after:
                    raise KeyError("training step")

    with pytest.raises(KeyError, match="training step"):
        train()


def by_dropping_the_iterator(dataset: Dataset[Any], after: int) -> None:
    iterator = iter(dataset)
    for _ in itertools.islice(iterator, after):
        pass
    del iterator
    gc.collect()


def by_closing_the_iterator(dataset: Dataset[Any], after: int) -> None:
    iterator: Any = iter(dataset)
    for _ in itertools.islice(iterator, after):
        pass
    iterator.close()
    assert not list(iterator)


def by_dropping_the_loader(dataset: Dataset[Any], after: int) -> None:
    loader = dataset.open()
    for _ in itertools.islice(loader, after):
        pass
    del loader
    gc.collect()


def by_closing_it(dataset: Dataset[Any], after: int) -> None:
    loader = dataset.open()
    for _ in itertools.islice(loader, after):
        pass
    loader.close()
    loader.close()
    with pytest.raises(LoaderClosedError):
        next(iter(loader))


def by_leaving_an_async_loop(dataset: Dataset[Any], after: int) -> None:
    async def main() -> None:
        async with dataset.open() as loader:
            number = 0
            async for _ in loader:
                number += 1
                if number > after:
                    break
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main(), debug=True)


def by_dropping_an_async_iterator(dataset: Dataset[Any], after: int) -> None:
    async def main() -> None:
        iterator = aiter(dataset)
        for _ in range(after):
            await anext(iterator)
        del iterator

    asyncio.run(main(), debug=True)


def by_cancelling_its_task(dataset: Dataset[Any], after: int) -> None:
    async def consume(reached: asyncio.Event) -> None:
        try:
            async with dataset.open() as loader:
                number = 0
                async for _ in loader:
                    number += 1
                    if number > after:
                        reached.set()
        finally:
            reached.set()  # so that nobody waits for one that has failed

    async def main() -> None:
        reached = asyncio.Event()
        task = asyncio.create_task(consume(reached))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main(), debug=True)


def by_closing_the_consumers_event_loop(dataset: Dataset[Any], after: int) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> Loader[Any]:
        loader = await dataset.open().__aenter__()
        for _ in range(after):
            await anext(loader)
        return loader

    loader = loop.run_until_complete(begin())
    loop.close()
    del loader
    gc.collect()


WAYS: list[Leave] = [
    by_break,
    by_an_exception_in_the_loop_body,
    by_dropping_the_iterator,
    by_closing_the_iterator,
    by_dropping_the_loader,
    by_closing_it,
    by_leaving_an_async_loop,
    by_dropping_an_async_iterator,
    by_cancelling_its_task,
    by_closing_the_consumers_event_loop,
]


WAYS_OF_EACH = len(WAYS) if os.environ.get("ASD_ENDINGS") == "all" else 2
PAIRS = [
    pytest.param(stage, WAYS[(WAYS_OF_EACH * number + nth) % len(WAYS)])
    for number, stage in enumerate(STAGES)
    for nth in range(len(WAYS) if stage == "the whole chain" else WAYS_OF_EACH)
]
"""A stage, and a way of leaving it."""


@pytest.mark.parametrize(("stage", "leave"), PAIRS, ids=lambda part: getattr(part, "__name__", part))
def test_r06_leaving_early_leaves_nothing(stage: str, leave: Leave, shards: list[str]) -> None:
    with leaves_nothing():
        for after in (0, 1, 30):  # while buffers are filled, at the first element, in the middle
            leave(STAGES[stage](shards), after)


@pytest.mark.parametrize("leave", [by_break, by_dropping_the_loader, by_cancelling_its_task], ids=lambda w: w.__name__)
def test_leaving_a_map_in_processes_ends_the_processes(leave: Leave) -> None:
    with leaves_nothing():
        leave(Dataset.range(ROWS).map(same, executor="process", concurrency=2), 3)


def test_a_stop_that_comes_while_the_finished_run_closes_its_stores_leaves_no_file_open(
    shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Resources.aclose

    async def stopped_meanwhile(resources: Resources) -> None:
        loader._engine.stop_soon()
        await asyncio.sleep(0)  # the loop hears of it now
        await close(resources)

    monkeypatch.setattr(Resources, "aclose", stopped_meanwhile)
    with leaves_nothing(), Dataset.from_tfrecord(shards).open() as loader:
        assert len(list(loader)) == 8_000


def test_a_loader_that_was_never_iterated_leaves_nothing(shards: list[str]) -> None:
    with leaves_nothing():
        STAGES["the whole chain"](shards).open().close()
    with leaves_nothing():
        STAGES["the whole chain"](shards).open()
        gc.collect()


@pytest.mark.parametrize("stage", ["shuffle", "slow generator", "interleave", "tfrecord"])
def test_closing_from_another_thread_at_any_moment_ends_the_loop_with_an_error(stage: str, shards: list[str]) -> None:
    rng = random.Random(stage)
    with leaves_nothing():
        for _ in range(8):
            loader = STAGES[stage](shards).repeat().open()
            closer = threading.Timer(rng.random() * 0.03, loader.close)
            closer.start()
            with pytest.raises(LoaderClosedError):
                for _ in loader:
                    pass
            closer.join()


def test_a_coroutine_that_refuses_to_be_cancelled_does_not_keep_the_loader_open() -> None:
    entered, released = threading.Event(), threading.Event()

    async def stubborn(value: int) -> int:
        entered.set()
        while not released.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return value

    loader = Dataset.range(100).map(stubborn, concurrency=1).open()
    entered.wait()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threading.Timer(2.2, released.set).start()  # after it has been given up, so that the test leaves nothing
        loader.close()
    assert any("still running" in str(warning.message) for warning in caught)
    assert "aiostream-engine" not in {thread.name for thread in threading.enumerate()}


def test_an_event_loop_that_cannot_be_made_is_an_error_of_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(engine, "loop_maker", lambda: refuse)
    with leaves_nothing(), pytest.raises(OSError, match="too many open files"):
        Dataset.range(10).open()


def test_an_interrupt_while_the_loaders_thread_is_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "aiostream-engine":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with leaves_nothing(), pytest.raises(KeyboardInterrupt):
        Dataset.from_generator(itertools.count).open()


def test_a_thread_that_cannot_be_started_is_an_error_of_open(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "aiostream-engine":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with leaves_nothing(), pytest.raises(RuntimeError, match="new thread"):
        Dataset.range(10).open()


def test_closing_while_an_async_consumer_waits_wakes_it_with_an_error() -> None:
    entered, go = threading.Event(), threading.Event()

    def one_then_wait() -> Any:
        yield 1
        entered.set()
        go.wait()

    async def main() -> None:
        async with Dataset.from_generator(one_then_wait).open() as loader:
            assert await anext(loader) == 1
            waiting = asyncio.ensure_future(anext(loader))
            await asyncio.to_thread(entered.wait)
            closing = asyncio.ensure_future(loader.aclose())
            await asyncio.sleep(0)
            go.set()
            await closing
            with pytest.raises(LoaderClosedError):
                await waiting

    with leaves_nothing():
        asyncio.run(main())
