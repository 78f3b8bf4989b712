"""Await a user's coroutine function for every element, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from aiostream_data._engine.budget import Charge
from aiostream_data._engine.context import settle
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.hops import Hops
from aiostream_data._engine.pacing import CHUNK_ROWS
from aiostream_data._engine.results import Results
from aiostream_data._engine.stages.base import MaybeUnordered
from aiostream_data._engine.user_code import summary
from aiostream_data._engine.window import Window
from aiostream_data.executors.base import Outcome
from aiostream_data.lineage import NO_PAIR, Ids, Lineage, MadeOf, of_one_width
from aiostream_data.plan.operators import Map, function_name
from aiostream_data.records import Chunk, lineage_of, object_nbytes
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
    made_of: MadeOf | None
    number: int
    room: Charge | None = None


@dataclass
class CoroutineMapStage(MaybeUnordered):
    """Running form of ``Map`` for coroutine functions, which are awaited on the engine's loop."""

    _ready: list[Any] = field(default_factory=list)
    _rows: list[_Row] = field(default_factory=list)
    _since: float = 0.0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Map = self.node
        limit = node.concurrency if isinstance(node.concurrency, int) else AUTO_CONCURRENCY
        self.counters.waits_for = "user"
        self.counters.workers = limit
        window = Window(limit)
        results = Results(outlet.budget, lambda: window.taken)

        try:
            await self._await_all(inlets[0], outlet, window, results)
        finally:  # its place is asked for as long as there is a loader, which must not keep rows
            self._ready, self._rows = [], []

    async def _await_all(self, inlet: Inlet, outlet: Outlet, window: Window, results: Results) -> None:
        pending = 0
        async with asyncio.TaskGroup() as group:

            def begin(row: _Row) -> asyncio.Future[Outcome]:
                nonlocal pending
                pending += 1
                task = group.create_task(self._attempt(row))
                task.add_done_callback(lambda done: _returned(results, row, done))
                return task

            async def emit(row: _Row, outcome: Outcome) -> None:
                nonlocal pending
                pending -= 1
                self._ready.append(settle(self.counters, outcome))
                self._rows.append(row)
                if pending == 0 or len(self._ready) >= CHUNK_ROWS or perf_counter() - self._since > FLUSH_S:
                    await self._flush(outlet)

            await Hops(begin, emit, window, self.node.ordered).run(self._each(self.held_then(inlet), results))
        await self._flush(outlet)

    async def _flush(self, outlet: Outlet) -> None:
        results, rows = self._ready, self._rows
        self._ready, self._rows, self._since = [], [], perf_counter()
        if self.log is not None:
            self.log.give_out(np.array([row.number for row in rows], np.int64))
        if results:
            await outlet.send_work(_collated, results, rows)

    async def recall(self, lineage: Lineage) -> Chunk:
        chunk = await self.context.recall(self.node.input, lineage)
        results = []
        for row, element in enumerate(chunk.elements()):
            outcome = await self._attempt(_Row(element, chunk.ids[row : row + 1], None, row))
            results.append(settle(self.counters, outcome))
        return collate(results, chunk.ids).with_made_of(chunk.made_of)

    async def _each(self, chunks: AsyncIterator[Chunk], results: Results) -> AsyncIterator[_Row]:
        async for chunk in chunks:
            first = 0 if self.log is None else self.log.take_in(lineage_of(chunk))
            made_of = chunk.made_of or [None] * len(chunk)
            for row, (element, entry) in enumerate(zip(chunk.elements(), made_of, strict=True)):
                room = await results.room_for(object_nbytes(element))
                yield _Row(element, chunk.ids[row : row + 1], entry, first + row, room)

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
        others = [number for number in row.ids[0, 3::2].tolist() if number != NO_PAIR]
        key = key_of(int(self.context.key(node, node.seed, "rng", self.context.epoch)), source, epoch, *others)
        # A generator of its own: other rows are awaited meanwhile.
        return RecordGenerator(key).at(split, int(row.ids[0, 1]))


def _collated(results: list[Any], rows: list[_Row]) -> Chunk:
    chunk = collate(results, np.concatenate(of_one_width([row.ids for row in rows])))
    if all(row.made_of is None for row in rows):
        return chunk
    return chunk.with_made_of([row.made_of for row in rows])


def _returned(results: Results, row: _Row, done: asyncio.Future[Outcome]) -> None:
    if row.room is not None and not done.cancelled():
        results.returned(row.room, object_nbytes(row.element), object_nbytes(done.result().value))
