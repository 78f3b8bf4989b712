"""Which rows a shuffle held back at any moment that its consumer may still stand at.

How this works. What is held after so many pushed rows is a function of what was held earlier and of the
rows pushed since, so it suffices to note it once per *era* and to note the ids of pushed rows. Asked for a
moment, the same buffer that holds the rows runs over their ids alone. Eras are as long as the buffer, so
looking back costs no more than running through it once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aiostream_data._engine.position import Log
from aiostream_data.records import Columns, Lineage
from aiostream_data.structure import LEAF
from aiostream_data.transforms.shuffle import ShuffleBuffer, ShuffleOrder

MIN_ERA_ROWS = 1024


@dataclass
class _Era:
    drained: int
    held: Lineage
    pushed: list[Lineage] = field(default_factory=list)
    rows: int = 0


class HeldHistory:
    """Notes of one shuffle. Written by the thread that pushes, read by any."""

    def __init__(self, buffer: ShuffleBuffer) -> None:
        self._buffer = buffer
        self._eras: Log[_Era] = Log()
        self._era = _Era(0, Lineage(np.empty((0, 2), np.int64)))
        self._eras.add(0, self._era)

    def begin(self, state: dict[str, Any], held: Lineage) -> None:
        """Begin at the place of a state instead."""
        self._era = _Era(state["drained"], held)
        self._eras = Log()
        self._eras.add(state["pushed"], self._era)

    def push(self, rows: Lineage) -> None:
        """Note rows that are about to be pushed."""
        order = self._buffer.order
        if self._era.rows >= max(order.buffer_size, MIN_ERA_ROWS):
            self._era = _Era(0, self._buffer.held())
            self._eras.add(order.pushed, self._era)
        self._era.pushed.append(rows)
        self._era.rows += len(rows)

    def held(self, pushed: int, drained: int) -> Lineage:
        """Return which rows were held when so many had been pushed and drained, by ascending slot."""
        found = self._eras.find(pushed)
        if found is None:
            raise ValueError(f"what was held after {pushed} rows has been forgotten")
        start, era = found
        order = self._buffer.order
        size, key = order.buffer_size, order.key
        past = ShuffleBuffer(ShuffleOrder(size, key, order.growing))
        state = {"key": int(key), "pushed": start, "drained": era.drained}
        past.restore(state, [_ids_only(era.held)] if len(era.held) else [])
        left = pushed - start
        for rows in list(era.pushed):
            if left <= 0:
                break
            past.push(_ids_only(rows).slice(0, left))
            left -= len(rows)
        if drained > past.order.drained:
            past.drain(drained - past.order.drained)
        return past.held()

    def forget(self, pushed: int) -> None:
        """Hear that nobody will ask for a moment before so many rows had been pushed."""
        self._eras.forget(pushed)


def _ids_only(rows: Lineage) -> Columns:
    made_of = None if rows.made_of is None else list(rows.made_of)
    return Columns(LEAF, (np.zeros(len(rows), np.uint8),), rows.ids, None, made_of)
