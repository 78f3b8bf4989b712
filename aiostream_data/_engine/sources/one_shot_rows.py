"""Keep rows of one-shot iterables (iterables that can be read only once)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiostream_data.plan.base import Node


class OneShotRows:
    """Rows that a resumed run skipped in one-shot iterables. The rows are stored for recalls (recomputation)."""

    def __init__(self) -> None:
        self._kept: dict[Node, asyncio.Future[dict[int, Any]]] = {}

    def of(self, node: Node) -> asyncio.Future[dict[int, Any]]:
        """Return a future that maps row numbers to the stored elements. Call this method on the event loop's thread."""
        if node not in self._kept:
            self._kept[node] = asyncio.get_running_loop().create_future()
        return self._kept[node]
