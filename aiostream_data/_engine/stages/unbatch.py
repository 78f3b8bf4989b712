"""Split batches, and other elements whose arrays have a first axis, into rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State, in_order_only, taken_up
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import gives_one_order
from aiostream_data.plan.operators import Batch
from aiostream_data.rows.lineage import CutFrom, Lineage, concat_lineages
from aiostream_data.rows.records import Chunk, concat, lineage_of
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.unbatch import split_rows


class _Cut(NamedTuple):
    """Log entry of one push.

    Attributes:
        first: Number of the first element.
        stops: For each element, the number of rows of the elements before it; and the number of all rows. int64.
        rows: Lineage of the rows, if it is needed.
    """

    first: int
    stops: NDArray[np.int64]
    rows: Lineage | None


@dataclass
class UnbatchStep(Step):
    """Step of an ``Unbatch`` plan node: splits batches into rows.

    The saved position consists of an element number and the number of rows already emitted from that element. If the
    input order is not deterministic, the state instead stores the lineage of the element's remaining rows.
    """

    kind: ClassVar[str] = "unbatch"

    def __post_init__(self) -> None:
        self._log: Log[_Cut] = Log()
        self._names_rows = not gives_one_order(self.node.input)
        self._skip = self._skipped = 0
        self._rest = Lineage(RowIds.none())
        self._refilled: Chunk | None = None
        self._given = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        found = leading(len(chunk), lambda first, stop: self._split(chunk.slice(first, stop)))
        self.rows_in -= len(chunk) - found.rows
        made = self._pushed(chunk.slice(0, found.rows), found.done) if found.rows else None
        if found.error is not None:
            raise PartlyDone(made, found.error)
        return made

    def _pushed(self, chunk: Chunk, split: list[tuple[Chunk, list[int]]]) -> Chunk:
        """Log the split elements. Return the rows of these elements that the saved run had not emitted."""
        rows, sizes = concat([rows for rows, _ in split]), [size for _, sizes in split for size in sizes]
        self._given += len(self._rest) if self._refilled is not None else 0
        names = lineage_of(rows) if self._names_rows else None
        self._log.add(self._given - self._skip, _Cut(self.rows_in - len(chunk), np.cumsum([0, *sizes]), names))
        cut = min(self._skip, len(rows))
        self._skip -= cut
        rows = rows.slice(cut, len(rows)) if cut else rows
        self._given += len(rows)
        refilled, self._refilled = self._refilled, None
        return rows if refilled is None else concat([refilled, rows])

    def _split(self, chunk: Chunk) -> tuple[Chunk, list[int]]:
        return split_rows(chunk, self.context.services.origins.describe)

    def finish(self) -> Iterator[Chunk]:
        if self._skip:
            raise StateMismatchError(
                [f"the state was saved after {self._skipped} rows of an element, but no element has as many rows"],
                "Open the pipeline that the state was saved from.",
            )
        if self._refilled is not None:
            yield self._refilled

    def close(self) -> None:
        self._refilled = None

    def at(self, rows: int, book: BookWriter) -> State:
        if rows < len(self._rest):
            held = book.rows(self._rest.slice(rows, len(self._rest)))
            return {"op": "unbatch", "skip": 0, "rest": held, "input": self.source.at(0, book)}
        elements, skip, rest = self._place(rows)
        if rest is None:
            return {"op": "unbatch", "skip": skip, "rest": None, "input": self.source.at(elements, book)}
        return {"op": "unbatch", "skip": 0, "rest": book.rows(rest), "input": self.source.at(elements + 1, book)}

    def forget(self, rows: int) -> None:
        if rows >= len(self._rest):
            self._log.forget(rows)
            self.source.forget(self._place(rows)[0])

    def resume(self, state: State) -> State:
        state = taken_up(state, "unbatch")
        self._skip = self._skipped = state["skip"]
        if self._skip and self._names_rows:
            raise in_order_only("rows of an element that unbatch() had begun to split")
        self._rest = self.context.services.book.rows(state["rest"])
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "skip", "rest", "input")
        before = None if place.node is None or not place.scope.exact else place.node.input
        skip = fields["skip"].integer(most=before.batch_size - 1 if isinstance(before, Batch) else place.rows.most)
        if place.held(fields["rest"]) and skip:
            raise fields["skip"].refused("must be 0 if rows of an element are held")
        yield place.of_input(fields["input"], rows=place.rows.any)

    async def refill(self) -> None:
        if len(self._rest):
            self._refilled = await self.recall(self._rest)

    def _place(self, rows: int) -> tuple[int, int, Lineage | None]:
        """Return the position after this run has emitted ``rows`` rows.

        Returns:
            Number of completed elements, number of rows emitted from the next element, and lineage of that element's
            remaining rows or None.
        """
        found = self._log.find(rows)
        if found is None:
            return 0, self._skipped, None
        start, (first, stops, names) = found
        element = int(np.searchsorted(stops, rows - start, side="right")) - 1
        skip = rows - start - int(stops[element])
        rest = names.slice(rows - start, int(stops[element + 1])) if names is not None and skip else None
        return first + element, skip, rest

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute rows: recall the elements in the rows' lineage, and split these elements again."""
        index = lineage.ids.last_ordinals()
        elements, numbers = _elements_of(lineage)
        whole = await self.context.recall(self.node.input, elements)
        rows, sizes = self._split(whole)
        firsts = np.cumsum(np.array([0, *sizes]))
        return rows.take(firsts[numbers] + index)

    def rows_accounted(self) -> int | None:
        return None


def _elements_of(lineage: Lineage) -> tuple[Lineage, NDArray[np.int64]]:
    """Return the distinct elements from which the rows were split, and the element index of each row."""
    known: dict[Any, int] = {}
    elements: list[Lineage] = []
    numbers = np.empty(len(lineage), np.int64)
    plain = lineage.ids.without_pair()
    keys = plain.keys()
    for row in range(len(lineage)):
        entry = lineage.of(row)
        key = id(entry) if isinstance(entry, CutFrom) else keys[row]
        if key not in known:
            known[key] = len(elements)
            elements.append(
                Lineage(entry.ids, entry.made_of) if isinstance(entry, CutFrom) else Lineage(plain.row(row))
            )
        numbers[row] = known[key]
    return concat_lineages(elements), numbers
