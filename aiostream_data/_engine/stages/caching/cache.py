"""Keep the rows of a completed pass in memory. Later passes replay the cached rows without reading the input."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.recall import in_epochs
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.cached_epochs import CachedEpochs
from aiostream_data._engine.resume.damaged_state import resuming
from aiostream_data._engine.resume.epochs import epoch_within
from aiostream_data._engine.resume.lineage_reader import TABLE
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import Cached, Namespace, Origins, Rename, source_of
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import Position, State, in_order_only, taken_up
from aiostream_data._engine.stages.caching.cache_pass import CachePass, CachePasses
from aiostream_data._engine.stages.caching.shared_caches import FilledElsewhere, SharedCaches
from aiostream_data._native import Charge
from aiostream_data.errors import MemoryBudgetError, StateMismatchError
from aiostream_data.plan.base import gives_one_order, walk
from aiostream_data.plan.operators import Cache, CacheToken
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.lineage import Lineage, rows_behind
from aiostream_data.rows.records import Chunk, Columns, Items, lineage_of
from aiostream_data.rows.row_ids import CACHED
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.copy_element import fresh

HOLDER = "cache"
"""Name under which the memory budget counts cached rows."""

ROWS_AT_ONCE = 256
"""Number of rows that one recall recomputes."""


@dataclass(frozen=True)
class _Kept:
    """Cached rows of a completed pass, with the origins and the epoch of their row ids.

    Attributes:
        order: Unique name of the row order; None if every pass over the input has the same order.
    """

    chunks: list[Chunk]
    origins: Origins
    epoch: int
    held: Charge
    order: str | None


_complete: weakref.WeakKeyDictionary[CacheToken, _Kept] = weakref.WeakKeyDictionary()
"""Completed cache passes of this process.

An entry is removed when the last dataset with the entry's token is deleted.
"""


@dataclass
class CacheStage(Stage):
    """Stage of a ``Cache`` plan node: caches and replays rows.

    All iterators share the cached rows. The stage discards an incomplete first pass, as in tf.data. If a first pass is
    in progress, a second run of the same loader waits for that pass.

    If the input order is not deterministic, the row order differs between passes. The saved state then stores the name
    of the pass's row order. Other processes may not have the cached rows. Therefore a state saved during the first pass
    also stores the input position. A state saved during a replay stores the lineage of the remaining rows.
    """

    kind: ClassVar[str] = "cache"

    def __post_init__(self) -> None:
        self._state: State = None
        self._order: str | None = None
        self._left: Sequence[Lineage] | None = None  # nondeterministic order: rows emitted after _before_left
        self._before_left = 0
        self._given = 0
        self._skip = 0
        self._read_epoch = self.context.services.features.of(CachedEpochs).get(self._key, self.context.epoch)
        self._position: Position | None = None

    @property
    def _key(self) -> tuple[int, int]:
        """Key of the cached input. All nodes that read the same cache have the same key."""
        return self.context.path, self.context.keys[self.node.input]

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Cache = self.node
        passes = self.context.services.features.of(CachePasses)
        self.context.services.features.of(CachedEpochs).setdefault(self._key, self._read_epoch)
        if self._given and self._kept() is None and await self._gone_on(outlet):
            return
        while node.token in passes:
            await passes[node.token].wait_over()
        cached = self._kept()
        if cached is not None:
            await self._replay(cached, outlet)
            return
        first = passes[node.token] = CachePass()
        self._order = self._new_order()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(first, outlet))
                try:
                    held = await self._read(node, first)
                except Exception as error:  # noqa: BLE001 - raised behind the rows before
                    first.fail(error)
                    del passes[node.token]  # waiting runs restart now: the rows before may depend on their rows
                    first.end()
                    return
                origins = self.context.services.origins
                _complete[node.token] = _Kept(first.kept, origins, self._read_epoch, held, self._order)
                del passes[node.token]
                first.end()
        finally:
            if passes.get(node.token) is first:  # the pass was abandoned, so waiting runs restart
                del passes[node.token]
                first.end()

    def _new_order(self) -> str | None:
        return None if gives_one_order(self.node.input) else uuid.uuid4().hex

    def _kept(self) -> _Kept | None:
        """Return the rows of a completed cache pass, if this run can resume in the same row order."""
        kept = _complete.get(self.node.token)
        if kept is None or self._given == 0 or kept.order == self._state.get("order"):
            return kept
        return None

    async def _gone_on(self, outlet: Outlet) -> bool:
        """Emit the remaining rows of a cache pass that another process began.

        Return False if the saved state stores only a row count.
        """
        if self._state["input"] is not None:
            await self._read_rest(self.node, outlet)
        elif "left" in self._state:
            await self._make_again(self.context.services.book.rows(self._state["left"]), outlet)
        elif self._new_order() is not None:
            raise in_order_only("rows of a complete cache")
        else:
            return False
        return True

    async def _send(self, first: CachePass, outlet: Outlet) -> None:
        moved: dict[int, int] = {}
        while (chunk := await first.to_send()) is not None:
            if self._read_epoch != self.context.epoch:
                chunk = self._renamed(chunk, self.context.services.origins, moved)
            await self._send_rest(chunk, outlet)
            first.sent()

    async def _replay(self, kept: _Kept, outlet: Outlet) -> None:
        self._read_epoch = self.context.services.features.of(CachedEpochs)[self._key] = kept.epoch
        self._charge(kept)
        moved: dict[int, int] = {}
        given: Iterable[Chunk] = (self._of_now(chunk, kept, moved) for chunk in kept.chunks)
        if kept.order is not None:
            given = await self.hop(list, given)
            self._order, self._left = kept.order, await self.hop(self._names, given)
        for chunk in given:
            await self._send_rest(chunk, outlet)

    def _of_now(self, chunk: Chunk, kept: _Kept, moved: dict[int, int]) -> Chunk:
        if (kept.origins, kept.epoch) == (self.context.services.origins, self.context.epoch):
            return chunk
        return self._renamed(chunk, kept.origins, moved)

    def _names(self, chunks: Iterable[Chunk]) -> list[Lineage]:
        return [lineage_of(self._marked(chunk)) for chunk in chunks]

    def _charge(self, kept: _Kept) -> None:
        """Charge cached rows that another loader has read to the memory budget of this loader."""
        services = self.context.services
        if kept.held.ledger is not services.budget:
            services.features.of(FilledElsewhere).setdefault(
                self.node.token, services.budget.charge(kept.held.nbytes, HOLDER)
            )

    def _renamed(self, chunk: Chunk, then: Origins, moved: dict[int, int]) -> Chunk:
        """Return the chunk with the row ids of the current epoch."""
        return _with_origins(chunk, self.context.services.origins, then, moved, self._name_now)

    def _name_now(self, known: Namespace) -> Namespace:
        """Convert a namespace from the epoch that filled the cache to the current epoch."""
        context = self.context
        if known.source != source_of(context.path, known.number):
            return known  # namespace of an inner dataset: the outer row identifies the epoch
        epoch = epoch_within(self.node.input, context.keys, known.number, known.epoch, context.epoch)
        if epoch == known.epoch:
            return known
        return replace(known, epoch=epoch, cached=(Cached(self._name, known.epoch), *known.cached))

    def _name_then(self, given: Namespace) -> Namespace:
        """Undo :meth:`_name_now`."""
        if not given.cached or given.cached[0].cache != self._name:
            return given
        return replace(given, epoch=given.cached[0].epoch, cached=given.cached[1:])

    @property
    def _name(self) -> int:
        """Number of this cache node. The number is the same in every run, and small enough for exact JSON."""
        return source_of(self.context.path, self.context.keys[self.node]) & MAX_COUNT

    def _marked(self, chunk: Chunk) -> Chunk:
        """If several nodes read the same cache, append this node's key to the row ids."""
        if not self._is_shared:
            return chunk
        return chunk.with_ids(chunk.ids.with_pair(CACHED, self.context.keys[self.node]))

    @property
    def _is_shared(self) -> bool:
        return self.context.path == 0 and self.node.token in self.context.services.features.of(SharedCaches)

    async def _send_rest(self, chunk: Chunk, outlet: Outlet) -> None:
        """Send the rows of a chunk that the saved run had not emitted yet."""
        cut = min(self._skip, len(chunk))
        self._skip -= cut
        rest = chunk.slice(cut, len(chunk)) if cut else chunk
        await outlet.send(self._marked(await self._copy(rest)))

    async def _read_rest(self, node: Cache, outlet: Outlet) -> None:
        """Resume a first pass that another process began.

        A resumed pass cannot fill the cache, so the next pass fills the cache.
        """
        moved: dict[int, int] = {}
        self._order = self._new_order()
        async with self._reading().open(node.input, self._state["input"]) as receiver:
            self._position = receiver.position
            rows = 0
            async for chunk in receiver:
                rows += len(chunk)
                if self._read_epoch != self.context.epoch:
                    chunk = self._renamed(chunk, self.context.services.origins, moved)
                await outlet.send(self._marked(chunk))
            receiver.check(rows)

    async def _make_again(self, left: Lineage, outlet: Outlet) -> None:
        """Resume a replay of rows cached by another process: recompute the remaining rows."""
        if any(getattr(node, "one_shot", False) for node in walk(self.node.input)):
            raise StateMismatchError(
                ["the state needs rows that a cache held in another process, but their source can be read only once"],
                "Pass a re-iterable object, or use from_generator() with a function.",
            )
        self._order = uuid.uuid4().hex
        self._left, self._before_left = [left], self._given
        for first in range(0, len(left), ROWS_AT_ONCE):
            with resuming(TABLE.path, "lists rows that cannot be read into the cache again"):
                rows = await self.recall(left.slice(first, min(first + ROWS_AT_ONCE, len(left))))
            await outlet.send(rows)

    def _reading(self) -> RunContext:
        """Return the run context of the epoch that fills the cache, for reading the input."""
        if self._read_epoch == self.context.epoch:
            return self.context
        return self.context.for_epoch(self._read_epoch)

    # -- saved position: a row number of the pass, and the data that identifies the pass

    def at(self, rows: int, book: BookWriter) -> State:
        if rows == 0 and self._state is not None and self._position is None and self._left is None:  # not started
            return self.context.services.book.carried_over(self._state, book)
        given = self._given + rows
        place = None if self._position is None else self._position.at(rows, book)
        state = {"op": "cache", "given": given, "epoch": self._read_epoch, "input": place}
        if self._order is not None:
            state["order"] = self._order
        if self._left is not None:
            state["left"] = book.rows(rows_behind(self._left, given - self._before_left))
        return state

    def forget(self, rows: int) -> None:
        if self._position is not None:
            self._position.forget(rows)

    def resume(self, state: State) -> Sequence[State]:
        self._state = taken_up(state, "cache")
        self._given = self._skip = self._state["given"]
        self._read_epoch = self.context.services.features.of(CachedEpochs)[self._key] = self._state["epoch"]
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "given", "epoch", "input", optional=("order", "left"))
        given = place.counted(fields["given"])
        epoch = fields["epoch"].epoch()
        if "order" in fields:
            fields["order"].text()
        if "left" in fields:
            place.held(fields["left"])
        if fields["input"].value is not None:  # None if all rows have been read
            yield replace(place.of_input(fields["input"], rows=Rows(given, given)), epoch=epoch)

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute rows with the run context of the epoch that filled the cache."""
        node: Cache = self.node
        if self._is_shared:
            lineage = Lineage(lineage.ids.without_pair(), lineage.made_of)
        origins = self.context.services.origins
        read = origins.adopt_lineage(lineage, origins, {}, self._name_then)
        chunk = await in_epochs(read, node.input, self.context)
        return self._marked(self._renamed(chunk, origins, {}))

    async def _copy(self, chunk: Chunk) -> Chunk:
        # Columns are read-only. Consumers may modify other elements, so these are copied.
        return await self.hop(_copied, chunk) if isinstance(chunk, Items) else chunk

    async def _read(self, node: Cache, first: CachePass) -> Charge:
        """Read and cache every row of the input. Return the memory charge for the rows."""
        budget = self.context.services.budget
        held = Charge(budget, 0, HOLDER)
        async with self._reading().open(node.input) as receiver:
            if self._skip == 0 and self._given == 0:
                self._position = receiver.position
            rows = 0
            async for chunk in receiver:
                rows += len(chunk)
                own = await self.hop(_owned, chunk)
                del chunk
                held.resize(held.nbytes + chunk_nbytes(own))
                if held.nbytes > budget.limit:
                    raise MemoryBudgetError(
                        f"cannot fill cache(): its rows already take {held.nbytes} bytes, more than the memory limit "
                        f"of {budget.limit} bytes. Cache an earlier, smaller stage, or open the dataset with a larger "
                        "memory_limit."
                    )
                await first.keep(own.with_lease(held))
            receiver.check(rows)
        return held


def _with_origins(chunk: Chunk, origins: Origins, then: Origins, moved: dict[int, int], name: Rename) -> Chunk:
    if chunk.made_of is not None:
        chunk = chunk.with_made_of([origins.adopt_made_of(entry, then, moved, name) for entry in chunk.made_of])
    return chunk.with_ids(origins.adopt(chunk.ids, then, moved, name))


def _copied(chunk: Items) -> Chunk:
    return replace(chunk, values=[fresh(value) for value in chunk.values], lease=None)


def _owned(chunk: Chunk) -> Chunk:
    """Copy the rows of a chunk into read-only arrays.

    The function does not copy ``Items`` chunks (lists of Python objects).
    """
    if not isinstance(chunk, Columns):
        return chunk.with_lease(None)
    leaves = tuple(leaf.compact() if isinstance(leaf, VarColumn) else np.array(leaf) for leaf in chunk.leaves)
    for leaf in leaves:
        (leaf.values if isinstance(leaf, VarColumn) else leaf).setflags(write=False)
    return Columns(chunk.structure, leaves, chunk.ids).with_made_of(chunk.made_of)
