"""Keep rows of iterables that can be read only once."""

from __future__ import annotations

import asyncio
from typing import Any

from aiostream_data.plan.base import Node


class OneShotRows:
    """Rows of one-shot iterables that a resumed run skipped, kept for recalls."""

    def __init__(self) -> None:
        self._kept: dict[Node, asyncio.Future[dict[int, Any]]] = {}

    def of(self, node: Node) -> asyncio.Future[dict[int, Any]]:
        """Return a future of the kept elements by row number. Call this on the event loop's thread."""
        if node not in self._kept:
            self._kept[node] = asyncio.get_running_loop().create_future()
        return self._kept[node]
