"""Run ``rejection_resample``: drop rows at random, so that the classes of the rows have a target distribution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.user_code import UserFunction, call_rows
from aiostream_data._engine.calls.user_numbers import class_of
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import Log, State, taken_up
from aiostream_data._engine.resume.row_keys import RowNames
from aiostream_data._native.draws_py import WEYL, mixed
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.resampling import RejectionResample
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.transforms.resampling import KeepingByClass

Numbers = NDArray[np.int64]


class _Resampled(NamedTuple):
    """Log entry of one push.

    Attributes:
        first: Number of input rows before the rows of this push.
        rows: Indices of the kept rows.
        classes: Class of each row of the push; empty if the classes are not counted.
        counts: Number of rows of each class before this push; None if the classes are not counted.
    """

    first: int
    rows: Numbers
    classes: Numbers
    counts: Numbers | None


@dataclass
class RejectionResampleStep(Step):
    """Step of a ``RejectionResample`` plan node.

    The draw of a row depends only on the seed and the row's stable name. The saved position contains the number of rows
    of each class, unless the distribution of the input is known.
    """

    kind: ClassVar[str] = "rejection_resample"

    def __post_init__(self) -> None:
        node: RejectionResample = self.node
        origins = self.context.services.origins
        self._keeping = KeepingByClass(node.target, node.initial)
        self._user = UserFunction(node.class_fn, origins.describe, takes_batches=gives_batches(node.input))
        self._names = RowNames(origins)
        self._key = self.context.key(node, node.seed, "resample")
        self._begun = self._keeping.counts
        self._log: Log[_Resampled] = Log()
        self._seen = 0
        self._given = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        classes, failure = self._classes(chunk)
        made = self._resampled(chunk.slice(0, len(classes)), classes) if len(classes) else None
        if failure is not None:
            raise PartlyDone(made, failure)
        return made

    def _resampled(self, chunk: Chunk, classes: Numbers) -> Chunk | None:
        counts = self._keeping.counts
        kept = np.flatnonzero(self._draws(chunk.ids) < self._keeping.push(classes))
        if len(kept):
            counted = classes if counts is not None else np.empty(0, np.int64)
            self._log.add(self._given, _Resampled(self._seen, kept, counted, counts))
        self._seen += len(chunk)
        self._given += len(kept)
        self.dropped += len(chunk) - len(kept)
        return _with_classes(chunk.take(kept), classes[kept]) if len(kept) else None

    def _draws(self, ids: RowIds) -> NDArray[np.float64]:
        """Return a random number from 0 to 1 (exclusive) for each row, float64."""
        words = mixed(self._names.salts_of(ids) ^ self._key) + ids.ordinals.astype(np.uint64) * np.uint64(WEYL)
        return (mixed(words) >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)

    def _classes(self, chunk: Chunk) -> tuple[Numbers, BaseException | None]:
        """Return the classes of the rows before the first failing row, and the error of that row or None."""
        node: RejectionResample = self.node
        results = call_rows(self._user, chunk)
        classes = np.empty(len(results.values), np.int64)
        for row, value in enumerate(results.values):
            number = class_of(value, len(node.target), self._user, chunk, row)
            if isinstance(number, Exception):
                return classes[:row], number
            classes[row] = number
        return classes, results.failure

    # -- saved position

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._log.find(rows - 1) if rows else None
        if found is None:
            return self._state(self._begun, 0, book)
        start, entry = found
        stop = int(entry.rows[rows - 1 - start]) + 1
        counts = None if entry.counts is None else self._keeping.counts_after(entry.counts, entry.classes[:stop])
        return self._state(counts, entry.first + stop, book)

    def _state(self, counts: Numbers | None, rows: int, book: BookWriter) -> State:
        saved = None if counts is None else counts.tolist()
        return {"op": self.kind, "counts": saved, "input": self.source.at(rows, book)}

    def forget(self, rows: int) -> None:
        found = self._log.find(rows - 1) if rows else None
        if found is not None:
            start, entry = found
            self._log.forget(rows - 1)
            self.source.forget(entry.first + int(entry.rows[rows - 1 - start]) + 1)

    def resume(self, state: State) -> State:
        state = taken_up(state, self.kind)
        if self._keeping.counts is not None and state["counts"] is not None:
            self._begun = self._keeping.counts = np.array(state["counts"], np.int64)
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "counts", "input")
        counts, node = fields["counts"], place.node
        if node is not None and place.scope.exact and (counts.value is None) == (node.initial is None):
            raise counts.refused("must be a list of counts" if counts.value is None else "must be null")
        if counts.value is None:
            yield place.of_input(fields["input"], rows=place.rows.or_more)
            return
        classes = {} if node is None else {"least": len(node.target), "most": len(node.target)}
        seen = sum(count.integer(0) for count in counts.items(**classes))
        if seen < place.rows.least:
            raise counts.refused(f"must have a sum of at least {place.rows.least}")
        yield place.of_input(fields["input"], rows=Rows(seen, seen))

    async def recall(self, lineage: Lineage) -> Chunk:
        rows = await self.context.recall(self.node.input, lineage)
        classes, failure = self._classes(rows)
        if failure is not None:
            raise failure
        return _with_classes(rows, classes)


def _with_classes(chunk: Chunk, classes: Numbers) -> Chunk:
    if isinstance(chunk, Columns):
        structure = Structure("tuple", (), (LEAF, chunk.structure))
        return Columns(structure, (classes, *chunk.leaves), chunk.ids, chunk.lease, chunk.made_of)
    return Items(list(zip(classes.tolist(), chunk.values, strict=True)), chunk.ids, chunk.lease, chunk.made_of)
