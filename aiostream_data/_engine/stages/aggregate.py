"""Run ``aggregate``: pass elements to an object of the user, and emit its outputs.

How this works. The step logs the state of the aggregator before every few hundred rows, in a form for saved states. The
saved place is such a state, the position of the input, and the number of outputs emitted since. A resumed
run passes the rows after this position to the aggregator again, and discards these outputs. A logged state always has
a row after it, so every resumed run processes at least one row again. The last outputs have the row id of the last row.
If a state cannot be stored, a resumed run processes the input again from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from aiostream_data._engine.calls.running_calls import noted_as_running
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.element_summary import note_row
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.flow.recall import recalled_by_a_run
from aiostream_data._engine.memory.kept_objects import KeptObjects
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State, in_order_only, taken_up
from aiostream_data._engine.resume.user_values import Stored, restored, sealed, stored, unsealed
from aiostream_data.errors import StateMismatchError
from aiostream_data.executors.failure import workable
from aiostream_data.plan.aggregate import Aggregate
from aiostream_data.plan.base import gives_one_order
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import CUT, OTHER_PIPELINE
from aiostream_data.transforms.aggregation import Aggregating
from aiostream_data.transforms.collate import collate_results

LOGGED_ROWS: Final = 256
"""Maximum number of rows between two logged states, if the input has a fixed order."""

LAST_OUTPUTS_PER_CHUNK: Final = 256


class _Logged(NamedTuple):
    """State before a row.

    Attributes:
        rows: Number of input rows of this run before the row.
        form: Stored form of the aggregator's state, or None if the state cannot be stored.
    """

    rows: int
    form: tuple[Stored] | None


class _Outputs:
    """Outputs of the rows of one chunk: the values, the row of each output, and the number of the output in its row."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._rows: list[int] = []
        self._numbers: list[int] = []

    def add(self, row: int, values: list[Any], first: int = 0) -> None:
        self.values += values
        self._rows += [row] * len(values)
        self._numbers += range(first, first + len(values))

    def as_chunk(self, chunk: Chunk, first: int) -> Chunk | None:
        """Return the outputs of rows of ``chunk``, from number ``first`` on; None if there are none."""
        if first == len(self.values):
            return None
        rows = self._rows[first:]
        ids = chunk.ids.take(np.array(rows, np.int64)).with_pair(CUT, np.array(self._numbers[first:], np.int64))
        made = collate_results(self.values[first:], ids)
        return made if chunk.made_of is None else made.with_made_of([chunk.made_of[row] for row in rows])


@dataclass
class AggregateStep(Step):
    """Step of an ``Aggregate`` plan node."""

    kind: ClassVar[str] = "aggregate"

    def __post_init__(self) -> None:
        self._aggregating: Aggregating | None = None  # made before the first row
        self._has_order = gives_one_order(self.node.input)
        self._log: Log[_Logged] = Log()  # by number of outputs in this run
        self._log.add(0, _Logged(0, None))
        self._form: tuple[Stored] | None = None
        self._given = 0  # outputs emitted before this run
        self._skip = self._skipped = 0  # outputs to discard, and outputs discarded so far
        self._done = self._made = 0  # rows passed to the aggregator, and outputs that it returned
        self._last: tuple[Chunk, int] | None = None  # the last row, and the number of its outputs
        self._kept = KeptObjects(
            self.context.services.budget, self.node.label, "aggregator", "Keep fewer elements in the aggregator"
        )

    def push(self, chunk: Chunk) -> Chunk | None:
        outputs = _Outputs()
        rows = LOGGED_ROWS if self._has_order else 1
        try:
            for first in range(0, len(chunk), rows):
                self._add(chunk, first, min(first + rows, len(chunk)), outputs)
        except BaseException as error:
            raise PartlyDone(self._without_skipped(outputs, chunk), error) from error
        return self._without_skipped(outputs, chunk)

    def _add(self, chunk: Chunk, first: int, stop: int, outputs: _Outputs) -> None:
        """Log the state. Then pass the rows from ``first`` to ``stop`` to the aggregator, and collect its outputs."""
        node: Aggregate = self.node
        describe = self.context.services.origins.describe
        part = chunk.slice(first, stop)
        row, left = first, iter(part.elements())
        try:
            aggregating = self._started()
            form = stored(aggregating.state()) if aggregating.has_state else None
            self._log.add(self._made, _Logged(self._done, form))
            with noted_as_running(node.factory, describe, part.ids, left):
                for row, element in enumerate(left, first):
                    self._kept.check(aggregating.aggregator)
                    self._kept.rows_left -= 1
                    made = aggregating.add(element)
                    outputs.add(row, made)
                    self._done += 1
                    self._made += len(made)
                    self._last = chunk.slice(row, row + 1), len(made)
        except BaseException as raised:  # noqa: BLE001 - the error that a loader raises
            error = workable(raised)
            name, is_batch = function_name(node.factory), gives_batches(node.input)
            note_row(error, name, chunk, row, describe, is_batch=is_batch)
            raise error from None

    def _started(self) -> Aggregating:
        if self._aggregating is None:
            node: Aggregate = self.node
            self._aggregating = Aggregating(node.factory)
            if self._form is not None:
                if not self._aggregating.has_state:
                    raise StateMismatchError(["the aggregator of aggregate() has no restore() now"], OTHER_PIPELINE)
                self._aggregating.restore(restored(self._form[0]))
        return self._aggregating

    def _without_skipped(self, outputs: _Outputs, chunk: Chunk) -> Chunk | None:
        skipped = min(self._skip - self._skipped, len(outputs.values))
        self._skipped += skipped
        return outputs.as_chunk(chunk, skipped)

    def finish(self) -> Iterator[Chunk]:
        if self._last is not None:
            yield from self._flushed(*self._last)
        if self._skipped < self._skip:
            raise StateMismatchError(
                [f"the state was saved after {self._given} outputs of aggregate(), and it has fewer outputs now"],
                OTHER_PIPELINE,
            )

    def _flushed(self, row: Chunk, first: int) -> Iterator[Chunk]:
        """Yield the outputs at the end of the input. Their numbers continue after those of the last row."""
        left: Iterator[Any] | None = None
        while True:
            outputs = _Outputs()
            try:
                left = self._started().flush() if left is None else left
                outputs.add(0, list(islice(left, LAST_OUTPUTS_PER_CHUNK)), first)
            except BaseException as raised:  # noqa: BLE001 - the error that a loader raises
                error = workable(raised)
                error.add_note(f"function: flush() of {function_name(self.node.factory)}")
                raise error from None
            if not outputs.values:
                return
            first += len(outputs.values)
            self._made += len(outputs.values)
            chunk = self._without_skipped(outputs, row)
            if chunk is not None:
                yield chunk

    def close(self) -> None:
        self._aggregating = self._last = None
        self._kept.close()

    def at(self, rows: int, book: BookWriter) -> State:
        given, reached = self._given + rows, self._skip + rows
        start, logged = self._entry(reached)
        if logged.form is None:
            return {"op": self.kind, "given": given, "skip": given, "state": None, "input": None}
        before = self.source.at(logged.rows, book)
        return {
            "op": self.kind,
            "given": given,
            "skip": reached - start,
            "state": sealed(logged.form[0]),
            "input": before,
        }

    def forget(self, rows: int) -> None:
        self._log.forget(self._skip + rows)
        self.source.forget(self._entry(self._skip + rows)[1].rows)

    def _entry(self, output: int) -> tuple[int, _Logged]:
        found = self._log.find(output)
        assert found is not None  # the log begins at output 0
        return found

    def resume(self, state: State) -> State:
        state = taken_up(state, self.kind)
        self._given, self._skip = state["given"], state["skip"]
        if self._skip and not self._has_order:
            raise in_order_only("outputs of aggregate() that its aggregator must make again")
        if state["state"] is not None:
            self._form = (state["state"]["value"],)
            self._log.add(0, _Logged(0, self._form))
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "given", "skip", "state", "input")
        given = place.counted(fields["given"])
        skip = fields["skip"].integer(0, given)
        if fields["state"].value is not None:
            unsealed(fields["state"])
            yield place.of_input(fields["input"], rows=place.rows.any)
        elif skip != given or fields["input"].value is not None:
            raise fields["skip"].refused("must count all outputs if the state is not stored")

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute outputs by a run from the beginning of the input: an output may depend on all rows before it."""
        if not self._has_order:
            raise StateMismatchError(
                ["outputs of aggregate() cannot be computed again, because its input has no fixed order"],
                "Use ordered=True and deterministic=True before aggregate().",
            )
        return await recalled_by_a_run(self.node, lineage, self.context)

    def rows_accounted(self) -> int | None:
        return None
