"""Read many parts at once, for clients that await and for those that block: the same loop for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from benchmarks.pipeline.cloud_work import Cell, Check, Part, Pass, Place

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
    """A buffer for each lane, made when it is first asked for and used again from then on."""

    def __init__(self) -> None:
        self._buffers: dict[int, bytearray] = {}

    def of(self, lane: int, nbytes: int) -> memoryview:
        """Return a lane's buffer."""
        if len(self._buffers.get(lane, b"")) != nbytes:
            self._buffers[lane] = bytearray(nbytes)
        return memoryview(self._buffers[lane])


@asynccontextmanager
async def our_store(options: dict[str, Any], url_of: Callable[[Part], str]) -> AsyncIterator[ReadOne]:
    """Lend reads through the stores of a loader: routes, hedging, retries and all."""
    from aiostream_data.records import ShardRef
    from aiostream_data.storage.stores import StoreSet

    loop, memory = asyncio.get_running_loop(), ReusedMemory()

    async def run_blocking(function: Callable[..., Any], *arguments: Any) -> Any:
        return await loop.run_in_executor(None, function, *arguments)

    stores = StoreSet(options, run_blocking)
    known: dict[str, ShardRef] = {}

    async def read_one(part: Part, lane: int) -> memoryview:
        shard = known.get(part.key)
        if shard is None:
            shard = known[part.key] = ShardRef(url_of(part), part.total)
        buffer = memory.of(lane, part.nbytes)
        await stores.read_into(shard, part.start, buffer)
        return buffer

    try:
        yield read_one
    finally:
        await stores.aclose()


def path_of(place: Place, part: Part) -> str:
    """Return the plain URL of a part's object."""
    return f"{place.url}/bench/{part.key}"
