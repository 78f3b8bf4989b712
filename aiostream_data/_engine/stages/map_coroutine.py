"""Await a user's coroutine function for every element, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from aiostream_data._engine.context import settle
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.hops import Hops
from aiostream_data._engine.pacing import CHUNK_ROWS
from aiostream_data._engine.stages.base import OneToOne
from aiostream_data._engine.user_code import summary
from aiostream_data._engine.window import Window
from aiostream_data.executors.base import Outcome
from aiostream_data.plan.operators import Map, function_name
from aiostream_data.records import Ids
from aiostream_data.transforms.collate import collate
from aiostream_data.transforms.randomness import RecordGenerator, key_of

AUTO_CONCURRENCY = 64
"""Coroutines awaited at once with AUTO: they wait far more than they work."""

FLUSH_S = 0.005
"""Results that are ready are handed on together, but are not held longer than this."""


@dataclass(frozen=True, slots=True)
class _Row:
    element: Any
    ids: Ids


@dataclass
class CoroutineMapStage(OneToOne):
    """Running form of ``Map`` for coroutine functions, which are awaited on the engine's loop."""

    _ready: list[Any] = field(default_factory=list)
    _ids: list[Ids] = field(default_factory=list)
    _since: float = 0.0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Map = self.node
        limit = node.concurrency if isinstance(node.concurrency, int) else AUTO_CONCURRENCY
        self.counters.waits_for = "user"
        self.counters.workers = limit
        pending = 0

        async with asyncio.TaskGroup() as group:

            def begin(row: _Row) -> asyncio.Future[Outcome]:
                nonlocal pending
                pending += 1
                return group.create_task(self._attempt(row))

            async def emit(row: _Row, outcome: Outcome) -> None:
                nonlocal pending
                pending -= 1
                self._ready.append(settle(self.counters, outcome))
                self._ids.append(row.ids)
                if pending == 0 or len(self._ready) >= CHUNK_ROWS or perf_counter() - self._since > FLUSH_S:
                    await self._flush(outlet)

            await Hops(begin, emit, Window(limit), node.ordered).run(_rows(inlets[0]))
        await self._flush(outlet)

    async def _flush(self, outlet: Outlet) -> None:
        results, ids = self._ready, self._ids
        self._ready, self._ids, self._since = [], [], perf_counter()
        if results:
            await outlet.send_work(collate, results, np.concatenate(ids))

    async def _attempt(self, row: _Row) -> Outcome:
        node: Map = self.node
        started = perf_counter()
        options = {"rng": self._rng(row)} if node.wants_rng else {}
        try:
            if type(row.element) is tuple:
                value = await node.function(*row.element, **options)
            else:
                value = await node.function(row.element, **options)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            error.add_note(f"function: {function_name(node.function)}")
            error.add_note(f"record: {self.context.services.origins.describe(row.ids, 0)}")
            error.add_note(f"element: {summary(row.element)}")
            return Outcome(None, error, perf_counter() - started)
        return Outcome(value, None, perf_counter() - started)

    def _rng(self, row: _Row) -> np.random.Generator:
        node: Map = self.node
        source, epoch, split = self.context.services.origins.stable(int(row.ids[0, 0]))
        key = key_of(int(self.context.key(node, node.seed, "rng", self.context.epoch)), source, epoch)
        # A generator of its own: other rows are awaited meanwhile.
        return RecordGenerator(key).at(split, int(row.ids[0, 1]))


async def _rows(inlet: Inlet) -> AsyncIterator[_Row]:
    async for chunk in inlet:
        for row, element in enumerate(chunk.elements()):
            yield _Row(element, chunk.ids[row : row + 1])
