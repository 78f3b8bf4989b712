"""Recompute and emit single rows listed in a log. Then, if the plan node requests it, emit all rows of the input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from aiostream_data._engine.flow.recall import in_epochs
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_reader import read_book
from aiostream_data._engine.resume.lineage_writer import ROWS, BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.errors import DeadLetterError
from aiostream_data.plan.replaying import Recalled
from aiostream_data.rows.lineage import Lineage, concat_lineages

ROWS_AT_ONCE = 256
"""Number of rows that the stage recomputes together."""


@dataclass
class RecalledStage(Stage):
    """Stage of a ``Recalled`` plan node: emits recomputed rows.

    On resume, the stage recomputes its rows and skips the rows already emitted.
    """

    kind: ClassVar[str] = "recalled"

    _skip: int = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Recalled = self.node
        context, left = self.context, self._skip
        for first in range(0, len(node.rows), ROWS_AT_ONCE):
            rows = concat_lineages([self._named(row) for row in node.rows[first : first + ROWS_AT_ONCE]])
            made = await in_epochs(rows, node.input, context)
            await outlet.send(made.slice(min(left, len(made)), len(made)))
            left -= min(left, len(made))
        if not node.then_input:
            return
        async with context.open(node.input) as receiver:
            given = 0
            async for chunk in receiver:
                given += len(chunk)
                await outlet.send(chunk.slice(min(left, len(chunk)), len(chunk)))
                left -= min(left, len(chunk))
            receiver.check(given)

    def _named(self, row: Mapping[str, Any]) -> Lineage:
        """Return the lineage (row ids) of the row that a log entry identifies."""
        try:
            named = read_book(dict(row), self.context.services.origins).rows({ROWS: 0})
        except ValueError as error:
            raise DeadLetterError(f"the log is damaged: {error}") from error
        if len(named.ids) != 1:
            raise DeadLetterError(f"the log is damaged: an entry names {len(named.ids)} rows instead of one")
        return named

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": "recalled", "given": self._skip + rows}

    def forget(self, rows: int) -> None:
        pass

    def resume(self, state: State) -> Sequence[State]:
        self._skip = taken_up(state, "recalled")["given"]
        return (None,)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        place.counted(place.fields(cls.kind, "given")["given"])
        yield from ()
