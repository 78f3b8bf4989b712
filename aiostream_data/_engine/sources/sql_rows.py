"""Source that emits the rows of a SQL query. Every page is a query of its own, which begins after the last key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.carried_error import as_raisable
from aiostream_data._engine.flow.chunk_sizes import CHUNK_NBYTES, CHUNK_ROWS
from aiostream_data._engine.flow.context import hop
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage import NumberedRows
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import Namespace, always, local
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State, taken_up
from aiostream_data._engine.sources.sql_reader import MAX_KEY, Key, SqlPage, SqlReader
from aiostream_data.errors import StateMismatchError
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import OTHER_PIPELINE, RowIds
from aiostream_data.state_fields import MAX_COUNT, Part
from aiostream_data.transforms.collate import collate

FIRST_ROWS: Final = 8
"""Rows of the first page, whose sizes are not known yet."""

GROWTH: Final = 8
"""Maximum ratio of the rows of a page and of the page before."""

GAP_ROWS: Final = 1_024
"""Rows between two requested rows that are read together with them."""

_SAVED_KEY: Final = re.compile(r"int:-?[0-9]{1,39}|str:.*", re.DOTALL)


@dataclass
class SqlSource(NumberedRows):
    """Stage of a ``SqlQuery`` node. One thread opens a connection, and runs all queries.

    The ordinal of a row is its number in the order of the key. The saved state is the number of the next row, and the
    key of the last row.
    """

    kind: ClassVar[str] = "sql"

    _after: Key | None = None
    _keys: Log[list[Key]] = field(default_factory=Log)

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        self.counters.waits_for = "network"
        namespace = self._namespace()
        count, ended, nbytes, sent = FIRST_ROWS, False, 0, 0
        with self.context.services.workers.thread(f"asd-{self.node.label}") as thread:
            reader = SqlReader(self.node, self._after)
            try:
                while not ended:
                    room = await outlet.admit(nbytes)
                    page: SqlPage = await hop(self.counters, thread.submit(reader.page, self._limited(count)))
                    ids = RowIds.run(namespace.base, self._first + sent, len(page.rows))
                    chunk = await self.hop(collate, page.rows, ids)
                    nbytes, ended = chunk_nbytes(chunk), page.ended
                    count = min(GROWTH * count, int(CHUNK_NBYTES * len(chunk) / max(1, nbytes)))
                    room.resize(nbytes)
                    if page.keys:
                        self._keys.add(sent, page.keys)
                    sent += len(page.keys)
                    await outlet.send(chunk.with_lease(room))
                    if page.failure is not None:
                        raise as_raisable(page.failure)
                    del chunk, room, page
            finally:
                thread.submit(reader.close)  # runs after the query in progress

    def _limited(self, count: int) -> int:
        return 1 if self.context.services.workers.one_at_a_time else max(1, min(count, CHUNK_ROWS))

    def _namespace(self) -> Namespace:
        return self.context.namespace(self.node, always(str(self.node.label)))

    # -- saved position

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._keys.find(rows - 1) if rows else None
        key = self._after if found is None else found[1][rows - 1 - found[0]]
        return {"op": self.kind, "next": self._first + rows, "after": _saved(key)}

    def forget(self, rows: int) -> None:
        self._keys.forget(rows - 1)

    def resume(self, state: State) -> Sequence[State]:
        saved = taken_up(state, self.kind)
        self._first, self._after = saved["next"], _restored(saved["after"])
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "next", "after")
        count = place.counted(fields["next"], most=MAX_COUNT)
        _check_key(fields["after"], begun=count > 0)
        yield from ()

    # -- recall

    async def recall(self, lineage: Lineage) -> Chunk:
        """Read rows again by their numbers in the order of the key."""
        _, ordinals = local(lineage.ids)
        if (ordinals < 0).any() or (ordinals >= MAX_COUNT).any():
            raise _no_row(int(ordinals[np.abs(ordinals).argmax()]))
        found: dict[int, Any] = {}
        with self.context.services.workers.thread(f"asd-{self.node.label}") as thread:
            reader = SqlReader(self.node, None)
            try:
                for first, last in _runs(ordinals):
                    rows = await hop(self.counters, thread.submit(reader.part, first, last - first + 1))
                    found.update(zip(range(first, last + 1), rows, strict=False))
            finally:
                thread.submit(reader.close)
        for ordinal in ordinals.tolist():
            if ordinal not in found:
                raise _no_row(ordinal)
        rows = [found[ordinal] for ordinal in ordinals.tolist()]
        chunk: Chunk = await self.hop(collate, rows, RowIds.of_source(self._namespace().base, ordinals))
        return chunk


def _no_row(row: int) -> StateMismatchError:
    return StateMismatchError([f"the query of from_sql() has no row {row}"], OTHER_PIPELINE)


def _runs(ordinals: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the first and last numbers of rows that are read together."""
    numbers = np.unique(ordinals)
    if not len(numbers):
        return
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > GAP_ROWS) + 1):
        for first in range(int(run[0]), int(run[-1]) + 1, CHUNK_ROWS):
            yield first, min(first + CHUNK_ROWS - 1, int(run[-1]))


def _saved(key: Key | None) -> str | None:
    return None if key is None else f"{type(key).__name__}:{key}"


def _restored(saved: str | None) -> Key | None:
    if saved is None:
        return None
    kind, _, text = saved.partition(":")
    return int(text) if kind == "int" else text


def _check_key(part: Part, *, begun: bool) -> None:
    """Check the key of the last row; None before the first row.

    Raises:
        DamagedStateError: The key is invalid.
    """
    if part.value is None and not begun:
        return
    if not begun:
        raise part.refused("must be null before the first row")
    if _SAVED_KEY.fullmatch(part.text(MAX_KEY + 4)) is None:
        raise part.refused("must be the key of a row, such as 'int:7'")
