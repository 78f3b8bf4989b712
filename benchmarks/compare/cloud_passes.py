"""Read many parts at once, for clients that await and for those that block: the same loop for all of them."""

from __future__ import annotations

import asyncio
import mmap
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from benchmarks.pipeline.cloud_work import MEMORY, Cell, Check, Part, Pass, Place

ReadOne: TypeAlias = Callable[[Part, int], Awaitable[Any]]
"""``await read_one(part, lane)`` returns the bytes of a part; each lane, from 0 on, has one read on its way."""

Opened: TypeAlias = AbstractAsyncContextManager[ReadOne]


def standard_loop() -> asyncio.AbstractEventLoop:
    """Return asyncio's own event loop."""
    return asyncio.new_event_loop()


def uvloop_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's."""
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@contextmanager
def on_loop(
    opened: Opened, cell: Cell, make_loop: Callable[[], asyncio.AbstractEventLoop] = standard_loop
) -> Iterator[Pass]:
    """Lend passes over a client that awaits; it is opened and closed on the loop that it is used on."""

    async def read_all(read_one: ReadOne, parts: Sequence[Part], check: Check | None) -> None:
        left = iter(parts)

        async def read_some(lane: int) -> None:
            for part in left:
                body = await read_one(part, lane)
                if check is not None:
                    check(part, body)
                elif memoryview(body).nbytes != part.nbytes:
                    raise ValueError(f"{part} came short")

        async with asyncio.TaskGroup() as group:
            for lane in range(min(cell.at_once, len(parts))):
                group.create_task(read_some(lane))

    with asyncio.Runner(loop_factory=make_loop) as runner:

        async def enter() -> ReadOne:
            return await opened.__aenter__()

        read_one = runner.run(enter())
        try:
            yield lambda parts, check: runner.run(read_all(read_one, parts, check))
        finally:

            async def leave() -> None:
                await opened.__aexit__(None, None, None)

            runner.run(leave())


@contextmanager
def in_threads(make_read: Callable[[], Callable[[Part], Any]], cell: Cell) -> Iterator[Pass]:
    """Lend passes over a client that blocks: a thread for each read on its way, each with a reader of its own."""
    own = threading.local()

    def read_all(parts: Sequence[Part], check: Check | None) -> None:
        left, lock = iter(parts), threading.Lock()

        def read_some() -> None:
            if not hasattr(own, "read"):
                own.read = make_read()
            while True:
                with lock:
                    part = next(left, None)
                if part is None:
                    return
                body = own.read(part)
                if check is not None:
                    with lock:
                        check(part, body)
                elif memoryview(body).nbytes != part.nbytes:
                    raise ValueError(f"{part} came short")

        for done in [pool.submit(read_some) for _ in range(cell.at_once)]:
            done.result()

    with ThreadPoolExecutor(cell.at_once) as pool:
        yield read_all


class ReusedMemory:
    """A buffer for each lane, used again for every read.

    It is shared with the other clients, which take turns: 64 objects of 64 MiB at once are 4 GB for each otherwise.
    """

    def __init__(self, cell: Cell) -> None:
        self._nbytes = cell.part_nbytes
        needed = cell.at_once * self._nbytes
        descriptor = os.open(os.environ[MEMORY], os.O_RDWR)
        try:
            if os.fstat(descriptor).st_size < needed:
                os.posix_fallocate(descriptor, 0, needed)  # else whoever is first pays for the pages
            self._all = memoryview(mmap.mmap(descriptor, needed, mmap.MAP_SHARED | mmap.MAP_POPULATE))
        finally:
            os.close(descriptor)

    def of(self, lane: int) -> memoryview:
        """Return a lane's buffer, as large as a part."""
        return self._all[lane * self._nbytes : (lane + 1) * self._nbytes]


@asynccontextmanager
async def our_store(options: dict[str, Any], cell: Cell, url_of: Callable[[Part], str]) -> AsyncIterator[ReadOne]:
    """Lend reads through the stores of a loader: routes, hedging, retries and all."""
    from aiostream_data.rows.records import ShardRef
    from aiostream_data.storage.stores import StoreSet

    loop, memory = asyncio.get_running_loop(), ReusedMemory(cell)

    async def run_blocking(function: Callable[..., Any], *arguments: Any) -> Any:
        return await loop.run_in_executor(None, function, *arguments)

    stores = StoreSet(options, run_blocking)
    known: dict[str, ShardRef] = {}

    async def read_one(part: Part, lane: int) -> memoryview:
        shard = known.get(part.key)
        if shard is None:
            shard = known[part.key] = ShardRef(url_of(part), part.total)
        buffer = memory.of(lane)
        await stores.read_into(shard, part.start, buffer)
        return buffer

    try:
        yield read_one
    finally:
        await stores.aclose()


def path_of(place: Place, part: Part) -> str:
    """Return the plain URL of a part's object."""
    return f"{place.url}/bench/{part.key}"
