"""History of a shuffle buffer. The history can compute the buffer's rows at every stream position that may be saved.

How this works. The rows in the buffer at a position depend only on the buffered rows at a previous position and the
rows pushed since then. The history stores the ids of all pushed rows. Once per *era*, the history also stores the ids
of all buffered rows. In this module, an era is a sequence of pushed rows that ends when the number of rows reaches the
buffer size. To compute the buffered rows at a position, the history pushes the row ids of the era into a second shuffle
buffer. The replay starts at the last computed position instead, if that position is closer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.lineage_writer import BookWriter, Encoded
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log
from aiostream_data.rows.lineage import Lineage, concat_lineages
from aiostream_data.rows.records import Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.state_fields import Part
from aiostream_data.transforms.shuffle_buffer import ShuffleBuffer, ShuffleOrder

MIN_ERA_ROWS = 1024


SINCE_SHARE = 8
"""A saved state lists at most ``buffer_size // SINCE_SHARE`` rows as pushed since its base."""


@dataclass(frozen=True)
class _Base:
    pushed: int
    drained: int
    encoded: Encoded | None


@dataclass
class _Era:
    drained: int
    held: Lineage
    pushed: list[Lineage] = field(default_factory=list)
    rows: int = 0


class HeldHistory:
    """History of one shuffle buffer. The thread that pushes rows writes the history; any thread may read it."""

    def __init__(self, buffer: ShuffleBuffer) -> None:
        self._buffer = buffer
        self._eras: Log[_Era] = Log()
        self._era = _Era(0, Lineage(RowIds.none()))
        self._eras.add(0, self._era)
        self._cursor: ShuffleBuffer | None = None
        self._base: _Base | None = None

    def resume(self, state: dict[str, Any], book: Book) -> None:
        """Continue the history from a saved state that :meth:`written` returned."""
        pushed, drained, held = state["base"]
        since = book.rows(state["since"])
        self._era = _Era(drained, book.rows(held), [since], len(since))
        self._eras = Log()
        self._eras.add(pushed, self._era)

    def begin(self, pushed: int, held: Lineage) -> None:
        """Start the history after ``pushed`` pushed rows. ``held`` contains the buffered rows in slot order."""
        self._era = _Era(0, held)
        self._eras = Log()
        self._eras.add(pushed, self._era)
        self._cursor = None

    def push(self, rows: Lineage) -> None:
        """Record rows immediately before the caller pushes the rows into the buffer."""
        order = self._buffer.order
        if self._era.rows >= max(order.buffer_size, MIN_ERA_ROWS):
            self._era = _Era(0, self._buffer.held())
            self._eras.add(order.pushed, self._era)
        self._era.pushed.append(rows)
        self._era.rows += len(rows)

    def held(self, pushed: int, drained: int) -> Lineage:
        """Return the buffered rows, by slot number, after ``pushed`` pushed and ``drained`` drained rows."""
        return self._moment(pushed, drained).held()

    def written(self, pushed: int, drained: int, book: BookWriter) -> dict[str, Any]:
        """Return the saved state: the buffered rows at an earlier position (the base), and all rows pushed later.

        The base rows are encoded only once, and many saved states reuse this encoding.
        """
        base = self._base
        if base is None or drained or not self._eras.first <= base.pushed <= pushed <= base.pushed + self._rows_since():
            held = self.held(pushed, drained)
            base = _Base(pushed, drained, book.spaces.encode(held) if len(held) else None)
            self._base = None if drained else base
        since = self._rows_between(base.pushed, pushed)
        held_then = None if base.encoded is None else book.add(base.encoded)
        rows_since = book.rows(concat_lineages(since)) if since else None
        return {"base": [base.pushed, base.drained, held_then], "since": rows_since}

    def _rows_since(self) -> int:
        """Return the maximum number of rows that a saved state may list after its base."""
        return self._buffer.order.buffer_size // SINCE_SHARE

    def _moment(self, pushed: int, drained: int) -> ShuffleBuffer:
        """Return a shuffle buffer of row ids in its state at the given position.

        The next call of this method may push more rows into the returned buffer.
        """
        moment = self._cursor
        if moment is None or not self._eras.first <= moment.order.pushed <= pushed or moment.order.drained > drained:
            moment = self._begun(pushed)
        moment.order.buffer_size = self._buffer.order.buffer_size  # a growing buffer may have stopped growing
        for rows in self._rows_between(moment.order.pushed, pushed):
            moment.push(_ids_only(rows))
        if drained > moment.order.drained:
            moment.drain(drained - moment.order.drained)
        self._cursor = moment
        return moment

    def _begun(self, pushed: int) -> ShuffleBuffer:
        found = self._eras.find(pushed)
        if found is None:
            raise ValueError(f"the rows held after {pushed} rows were discarded")
        start, era = found
        return restored(self._buffer.order, start, era.drained, era.held)

    def _rows_between(self, start: int, stop: int) -> list[Lineage]:
        """Return the pushed rows with the numbers ``start`` to ``stop - 1``."""
        found: list[Lineage] = []
        for first, era in self._eras.since(start):
            for rows in list(era.pushed):
                if first >= stop:
                    return found
                if first + len(rows) > start:
                    found.append(rows.slice(max(0, start - first), min(len(rows), stop - first)))
                first += len(rows)
        return found

    def forget(self, pushed: int) -> None:
        """Discard the history before pushed row number ``pushed``."""
        self._eras.forget(pushed)


def restored(order: ShuffleOrder, pushed: int, drained: int, held: Lineage) -> ShuffleBuffer:
    """Create a shuffle buffer of row ids in its state after ``pushed`` pushed and ``drained`` drained rows."""
    buffer = ShuffleBuffer(ShuffleOrder(order.buffer_size, order.key, order.growing))
    state = {"key": int(order.key), "pushed": pushed, "drained": drained}
    buffer.restore(state, [_ids_only(held)] if len(held) else [])
    return buffer


def _ids_only(rows: Lineage) -> Columns:
    made_of = None if rows.made_of is None else list(rows.made_of)
    return Columns(LEAF, (np.zeros(len(rows), np.uint8),), rows.ids, None, made_of)


def check_history(place: Place, fields: Mapping[str, Part], order: ShuffleOrder, growing: bool | None) -> bool:
    """Validate a saved result of :meth:`HeldHistory.written`. Return True if the shuffle buffer was still growing.

    Args:
        order: Shuffle order that has the buffer size of the saved state.
        growing: True if the buffer was growing. If None, the function derives this value from the number of buffered
            rows.

    Raises:
        DamagedStateError: A value of the state is missing, out of range, or of the wrong type.
    """
    pushed, drained = fields["pushed"].integer(), fields["drained"].integer()
    base = fields["base"].items(3, 3)
    pushed_then = base[0].integer(0, pushed)
    drained_then = base[1].integer(0, drained if pushed_then == pushed else 0)
    if growing is None:
        held = place.held(base[2], most=pushed_then)
        growing = held + drained_then != min(pushed_then, order.buffer_size)
    order = ShuffleOrder(order.buffer_size, order.key, growing)
    held_then = pushed_then - order.given_after(pushed_then) - drained_then
    if held_then < 0:
        raise base[1].refused("must be the number of rows drained from the buffer")
    place.held(base[2], held_then, held_then)
    place.held(fields["since"], pushed - pushed_then, pushed - pushed_then)
    return growing
