"""Keep the rows of a completed pass in memory, and give them again without their input."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aiostream_data._engine.budget import Charge
from aiostream_data._engine.cache_pass import CachePass
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.origins import Origins
from aiostream_data._engine.sizes import chunk_nbytes
from aiostream_data._engine.stages.base import Stage
from aiostream_data.errors import MemoryBudgetError
from aiostream_data.plan.operators import Cache, CacheToken
from aiostream_data.ragged import RaggedArray
from aiostream_data.records import Chunk, Columns, Items, VarColumn
from aiostream_data.structure import flatten


@dataclass(frozen=True)
class _Kept:
    """Rows of a completed pass, and what their ids mean."""

    chunks: list[Chunk]
    origins: Origins


_complete: weakref.WeakKeyDictionary[CacheToken, _Kept] = weakref.WeakKeyDictionary()
"""Completed passes of this process. An entry goes when the last data set that holds its token does."""


@dataclass
class CacheStage(Stage):
    """Running form of ``Cache``.

    Iterators share the rows; a pass that is not completed is thrown away, as in tf.data. Another run
    of the same loader that comes while the first pass is on waits until that has read everything,
    instead of reading it again.
    """

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Cache = self.node
        passes = self.context.services.passes
        while node.token in passes:
            await passes[node.token].wait_over()
        cached = _complete.get(node.token)
        if cached is not None:
            await self._replay(cached, outlet)
            return
        first = passes[node.token] = CachePass()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(first, outlet))
                await self._read(node, first)
                _complete[node.token] = _Kept(first.kept, self.context.services.origins)
                del passes[node.token]
                first.end()
        finally:
            if passes.get(node.token) is first:  # given up: whoever waits begins anew
                del passes[node.token]
                first.end()

    async def _send(self, first: CachePass, outlet: Outlet) -> None:
        while (chunk := await first.to_send()) is not None:
            await outlet.send(await self._copy(chunk))
            first.sent()

    async def _replay(self, kept: _Kept, outlet: Outlet) -> None:
        origins = self.context.services.origins
        moved: dict[int, int] = {}
        for chunk in kept.chunks:
            if kept.origins is not origins:
                chunk = _with_origins(chunk, origins, kept.origins, moved)
            await outlet.send(await self._copy(chunk))

    async def _copy(self, chunk: Chunk) -> Chunk:
        # Columns are protected by being read-only; the arrays in a list are the consumer's to change.
        return await self.hop(_copied, chunk) if isinstance(chunk, Items) else chunk

    async def _read(self, node: Cache, first: CachePass) -> None:
        budget = self.context.services.budget
        held = Charge(budget, 0)
        async with self.context.open(node.input) as receiver:
            async for chunk in receiver:
                own = await self.hop(_owned, chunk)
                del chunk
                held.resize(held.nbytes + chunk_nbytes(own))
                if held.nbytes > budget.limit:
                    raise MemoryBudgetError(
                        f"cache() already holds {held.nbytes} bytes, more than the memory limit of {budget.limit} "
                        "bytes; cache a smaller stage of the data, or open the data set with a larger memory_limit"
                    )
                await first.keep(own.with_lease(held))


def _with_origins(chunk: Chunk, origins: Origins, then: Origins, moved: dict[int, int]) -> Chunk:
    if isinstance(chunk, Items) and chunk.row_ids is not None:
        chunk = replace(chunk, row_ids=[origins.adopt(ids, then, moved) for ids in chunk.row_ids])
    return chunk.with_ids(origins.adopt(chunk.ids, then, moved))


def _copied(chunk: Items) -> Chunk:
    return replace(chunk, values=[_copied_element(value) for value in chunk.values], lease=None)


def _copied_element(element: Any) -> Any:
    structure, leaves = flatten(element)
    if not any(isinstance(leaf, (np.ndarray, RaggedArray)) for leaf in leaves):
        return element
    return structure.unflatten([_copied_leaf(leaf) for leaf in leaves])


def _copied_leaf(leaf: Any) -> Any:
    if isinstance(leaf, RaggedArray):
        return RaggedArray(leaf.values.copy(), leaf.row_splits.copy())
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _owned(chunk: Chunk) -> Chunk:
    """Return the rows over memory of their own, which user functions cannot write into."""
    if not isinstance(chunk, Columns):
        return chunk.with_lease(None)
    leaves = tuple(leaf.compact() if isinstance(leaf, VarColumn) else np.array(leaf) for leaf in chunk.leaves)
    for leaf in leaves:
        (leaf.values if isinstance(leaf, VarColumn) else leaf).setflags(write=False)
    return Columns(chunk.structure, leaves, chunk.ids)
