"""Ask object stores before a loader runs: from code without an event loop, or under an event loop of the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from aiostream_data.storage.stores import StoreSet

Answer = TypeVar("Answer")


def ask_stores(options: Mapping[str, Any] | None, question: Callable[[StoreSet], Awaitable[Answer]]) -> Answer:
    """Open stores with these options, await ``question(stores)``, and close the stores. Blocks.

    The question runs on a thread of its own, because the current thread may already have an event loop.
    """
    # needed by few sources only
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from aiostream_data.storage.stores import StoreSet

    async def answer() -> Answer:
        stores = StoreSet(dict(options or {}), asyncio.to_thread)
        try:
            return await question(stores)
        finally:
            await stores.aclose()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer()).result()
