"""Run coroutines to a standstill, so that tests order by events and not by sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def settle() -> None:
    """Let every task of the loop run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


def run(case: Coroutine[Any, Any, None]) -> None:
    """Run a test case in debug mode, and see that no task is left."""

    async def main() -> None:
        try:
            await asyncio.wait_for(case, 10)
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks leaked"

    asyncio.run(main(), debug=True)
