"""Rows of iterables that can be read once only."""

from __future__ import annotations

import asyncio
from typing import Any

from aiostream_data.plan.base import Node


class OneShotRows:
    """Rows of iterables that can be read once only: kept by the run that reads past them, for recalls."""

    def __init__(self) -> None:
        self._kept: dict[Node, asyncio.Future[dict[int, Any]]] = {}

    def of(self, node: Node) -> asyncio.Future[dict[int, Any]]:
        """Return the future that gets the elements by ordinal. Call from the loop."""
        if node not in self._kept:
            self._kept[node] = asyncio.get_running_loop().create_future()
        return self._kept[node]
