"""Run ``scan``: call a function with its last state and the next element.

How this works. After every few hundred rows, the step logs the state of the function in a form that a saved state can
store. The saved place is such a state, the number of outputs emitted since, and the position of the input. A resumed
run calls the function again for these outputs and discards them. If the input has no fixed order, the step logs the
state after each row. If a state cannot be stored, the place is only a number of rows. A resumed run then processes the
input again from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from typing import Any, ClassVar, Final

from aiostream_data._engine.calls.running_calls import noted_as_running
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.element_summary import note_row
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.flow.recall import recalled_by_a_run
from aiostream_data._engine.memory.kept_objects import KeptObjects
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import Log, State, in_order_only, taken_up
from aiostream_data._engine.resume.user_values import Stored, restored, sealed, stored, unsealed
from aiostream_data.errors import StateMismatchError
from aiostream_data.executors.failure import workable
from aiostream_data.plan.base import gives_one_order
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import OTHER_PIPELINE
from aiostream_data.transforms.collate import collate_results
from aiostream_data.transforms.scan import Scanning

LOGGED_ROWS: Final = 256
"""Maximum number of rows between two logged states, if the input has a fixed order."""


@dataclass
class ScanStep(Step):
    """Step of a ``Scan`` plan node."""

    kind: ClassVar[str] = "scan"

    def __post_init__(self) -> None:
        node: Scan = self.node
        self._scanning = Scanning(node.function, node.initial)
        self._has_order = gives_one_order(node.input)
        self._log: Log[tuple[Stored] | None] = Log()  # by number of input rows in this run
        self._log.add(0, stored(node.initial))
        self._given = 0  # rows emitted before this run
        self._skip = self._skipped = 0  # outputs to discard, and outputs discarded so far
        self._done = 0
        self._kept = KeptObjects(
            self.context.services.budget, node.label, "state", "Return a smaller state from the function"
        )

    def push(self, chunk: Chunk) -> Chunk | None:
        outputs: list[Any] = []
        rows = LOGGED_ROWS if self._has_order else 1
        try:
            for first in range(0, len(chunk), rows):
                self._call(chunk.slice(first, min(first + rows, len(chunk))), outputs)
        except BaseException as error:
            self.rows_in -= len(chunk) - len(outputs)
            raise PartlyDone(self._without_skipped(chunk, outputs), error) from error
        return self._without_skipped(chunk, outputs)

    def _call(self, chunk: Chunk, outputs: list[Any]) -> None:
        """Call the function for all rows of a chunk, extend ``outputs``, and log the state."""
        first = len(outputs)
        left = iter(chunk.elements())
        describe = self.context.services.origins.describe
        try:
            with noted_as_running(self.node.function, describe, chunk.ids, left):
                while length_hint(left):
                    self._kept.check(self._scanning.state)
                    rows = min(self._kept.rows_left, length_hint(left))
                    outputs.extend(self._scanning.push(islice(left, rows)))  # keeps the outputs before an error
                    self._kept.rows_left -= rows
        except BaseException as raised:  # noqa: BLE001 - the error that a loader raises
            error = workable(raised)
            name, is_batch = function_name(self.node.function), gives_batches(self.node.input)
            note_row(error, name, chunk, len(outputs) - first, describe, is_batch=is_batch)
            raise error  # noqa: B904 - it is the same, or stands for it
        self._done += len(chunk)
        self._log.add(self._done, stored(self._scanning.state))

    def _without_skipped(self, chunk: Chunk, outputs: list[Any]) -> Chunk | None:
        skipped = min(self._skip - self._skipped, len(outputs))
        self._skipped += skipped
        if skipped == len(outputs):
            return None
        rows = collate_results(outputs[skipped:], chunk.ids.slice(skipped, len(outputs)))
        return rows if chunk.made_of is None else rows.with_made_of(chunk.made_of[skipped : len(outputs)])

    def finish(self) -> Iterator[Chunk]:
        if self._skipped < self._skip:
            raise StateMismatchError(
                [f"the state was saved after {self._given} rows of scan(), and its input has fewer rows now"],
                OTHER_PIPELINE,
            )
        return iter(())

    def close(self) -> None:
        self._kept.close()

    def at(self, rows: int, book: BookWriter) -> State:
        given, reached = self._given + rows, self._skip + rows
        start, form = self._entry(reached)
        if form is None:
            return {"op": self.kind, "given": given, "skip": given, "state": None, "input": None}
        before = self.source.at(start, book)
        return {"op": self.kind, "given": given, "skip": reached - start, "state": sealed(form[0]), "input": before}

    def forget(self, rows: int) -> None:
        self._log.forget(self._skip + rows)
        self.source.forget(self._entry(self._skip + rows)[0])

    def _entry(self, row: int) -> tuple[int, tuple[Stored] | None]:
        found = self._log.find(row)
        assert found is not None  # the log begins at row 0
        return found

    def resume(self, state: State) -> State:
        state = taken_up(state, self.kind)
        self._given, self._skip = state["given"], state["skip"]
        if self._skip and not self._has_order:
            raise in_order_only("rows of scan() that its function must process again")
        if state["state"] is not None:
            form = state["state"]["value"]
            self._scanning = Scanning(self.node.function, restored(form))
            self._log.add(0, (form,))
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "given", "skip", "state", "input")
        given = place.counted(fields["given"])
        skip = fields["skip"].integer(0, given)
        if fields["state"].value is not None:
            unsealed(fields["state"])
            yield place.of_input(fields["input"], rows=Rows(given - skip, given - skip))
        elif skip != given or fields["input"].value is not None:
            raise fields["skip"].refused("must count all rows if the state is not stored")

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute rows by a run from the beginning of the input, because each row depends on all rows before it."""
        if not self._has_order:
            raise StateMismatchError(
                ["rows of scan() cannot be computed again, because its input has no fixed order"],
                "Use ordered=True and deterministic=True before scan().",
            )
        return await recalled_by_a_run(self.node, lineage, self.context)

    def rows_accounted(self) -> int | None:
        return self.rows_out + self._skipped
