"""A gate that stops functions at one record, so that a stage is stuck for as long as a test wants it to be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

PATIENCE_S = 10.0
"""After which a gate that nobody opens fails the function that waits at it."""


class Gate:
    """Stops whatever checks record 7, until it is opened.

    Args:
        for_coroutines: False keeps coroutines at it until they are cancelled, whether it is opened or not. Threads
            cannot be cancelled.
    """

    def __init__(self, *, for_coroutines: bool = True) -> None:
        self.opened = threading.Event()
        self._for_coroutines = for_coroutines

    def check(self, number: int) -> int:
        if number == 7:
            assert self.opened.wait(PATIENCE_S)
        return number

    def is_past(self, number: int) -> bool:
        return self.check(number) >= 0

    async def check_later(self, number: int) -> int:
        while number == 7 and not (self._for_coroutines and self.opened.is_set()):
            await asyncio.sleep(0.01)
        return number

    async def block_the_loop(self, number: int) -> int:
        return self.check(number)

    def generate(self) -> Iterator[int]:
        yield from map(self.check, range(20))

    async def generate_async(self) -> AsyncIterator[int]:
        for number in range(20):
            yield await self.check_later(number)
