"""Stack consecutive rows: windows, padded batches, batches of several sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data._engine.sources.listed_shards import gains_rows
from aiostream_data._engine.stages.grouping.group_step import GroupStep
from aiostream_data.plan.sources import PythonIterable
from aiostream_data.plan.windows import Rebatch, Window
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.collate import DescribeRow
from aiostream_data.transforms.grouping import as_elements, rows_of_groups, stack_rows
from aiostream_data.transforms.held_rows import HeldRows
from aiostream_data.transforms.padding import pad_rows
from aiostream_data.transforms.uneven_rows import leaves_apart
from aiostream_data.transforms.windows import CycleOrder, WindowOrder

Numbers = NDArray[np.int64]


@dataclass
class WindowStep(GroupStep):
    """Step of a ``Window`` plan node: stacks windows of rows.

    On resume, the step reads its buffered rows again. The state therefore stores no rows.
    """

    kind: ClassVar[str] = "window"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._order = self.order_of(self.node)
        self._given = 0
        self._first = 0
        self._stacked = 0
        self._lacking = 0  # row numbers skipped to complete a last, partial window before new shards

    @classmethod
    def order_of(cls, node: Any) -> WindowOrder | CycleOrder:
        """Return the window order of a plan node for the beginning of the stream."""
        return WindowOrder(node.size, node.shift, node.stride, node.drop_remainder)

    def make(self, rows: Chunk, describe: DescribeRow) -> Any:
        """Build the element from the rows of one window."""
        node: Window = self.node
        if isinstance(node, Window) and node.as_datasets:
            return leaves_apart(rows, self._dataset, describe)
        return stack_rows(rows, describe)

    def _dataset(self, values: list[Any]) -> Any:
        source = PythonIterable(iterable=values, one_shot=False, written_at=self.node.written_at)
        return self.node.dataset_class._of_rows(source, object_nbytes(values))

    def push(self, chunk: Chunk) -> Chunk | None:
        self._rows.push(chunk)
        made = self.made(self._order.push(len(chunk)))
        self.keep(np.arange(self._order.first_needed(), self._order.pushed))
        return made

    def made(self, windows: Sequence[Numbers]) -> Chunk | None:
        """Return the elements of complete windows.

        Raises:
            PartlyDone: An element cannot be built. The ``done`` attribute contains the elements before it.
        """
        try:
            return self._elements(self._rows, windows)
        except Exception:  # noqa: BLE001 - raised behind the windows before
            return self.one_by_one(lambda window: self._elements(self._rows, [window]), windows)

    def finish(self) -> Iterator[Chunk]:
        for window in self._order.finish():
            made = self._elements(self._rows, [window])
            assert made is not None
            yield made
        if self._is_disjoint():
            self.dropped = self.rows_in - self._stacked
        self.keep(np.empty(0, np.int64))

    def at(self, rows: int, book: BookWriter) -> State:
        pushed = self._pushed_for(rows)
        before = self.source.at(pushed - self._first, book)
        lacking = {"lacking": self._lacking} if self._lacking else {}
        return {"op": "window", "given": self._given + rows, "pushed": pushed, **lacking, "input": before}

    def forget(self, rows: int) -> None:
        self.source.forget(self._pushed_for(rows) - self._first)

    def resume(self, state: State) -> State:
        state = taken_up(state, "window")
        self._order.restore(state)
        if not _agree(self._order.given, self._order.pushed, self._order):
            # The window size changed since the state was saved. No row is held, so later rows can be renumbered.
            self._order.pushed = self._order.begins(self._order.given)
        self._lacking = state.get("lacking", 0)
        if gains_rows(self.context, self.node.input):
            lacking = self._order.lacking()
            self._order.pushed += lacking
            self._lacking += lacking
        self._given, self._first = self._order.given, self._order.pushed
        self._rows = HeldRows(self._first)
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "given", "pushed", "input", optional=("lacking",))
        order = None if place.node is None else cls.order_of(place.node)
        place = cls.counted_alone(place)
        given = place.counted(fields["given"], most=MAX_COUNT if order is None else MAX_COUNT // order.begins(1))
        pushed = fields["pushed"].integer()
        if order is not None and place.scope.exact and not _agree(given, pushed, order):
            least = order.begins(given - 1) + 1 if given else 0
            raise fields["pushed"].refused(f"must be an integer from {least} to {order.begins(given)}")
        taken = pushed - (fields["lacking"].integer(0, pushed) if "lacking" in fields else 0)
        yield place.of_input(fields["input"], rows=cls.rows_of_input(Rows(taken, taken)))

    @classmethod
    def counted_alone(cls, place: Place) -> Place:
        """Return the saved position, with the row counts that this step can verify."""
        return place

    @classmethod
    def rows_of_input(cls, rows: Rows) -> Rows:
        """Return the possible numbers of input rows, given the number of rows that this step has received."""
        return rows

    async def recall(self, lineage: Lineage) -> Chunk:
        rows, groups = await self.recall_groups(lineage)
        made = self._elements(rows, groups)
        assert made is not None
        return made

    def rows_accounted(self) -> int | None:
        return self._stacked if self._is_disjoint() else None

    def _is_disjoint(self) -> bool:
        node: Window = self.node
        return node.shift >= node.span

    def _pushed_for(self, windows: int) -> int:
        """Return the input row number from which the stream resumes after this run has emitted ``windows`` windows.

        This number never exceeds the number of received rows, because the upstream stage may not have logged later rows
        yet.
        """
        return min(self._order.rows_behind(self._given + windows), self._order.pushed)

    def _elements(self, rows: HeldRows, windows: Sequence[Numbers]) -> Items | None:
        self._stacked += sum(map(len, windows))
        made = [(part, self.make) for part in rows_of_groups(rows, windows)]
        return as_elements(made, self.context.services.origins.describe)


@dataclass
class BatchStepBase(WindowStep):
    """Base class of steps that put each row into one batch of ``batch_size`` rows."""

    @classmethod
    def order_of(cls, node: Any) -> WindowOrder:
        return WindowOrder(node.batch_size, node.batch_size, drop_remainder=node.drop_remainder)

    @classmethod
    def counted_alone(cls, place: Place) -> Place:
        # Batches may come from several worker processes, each with a separate count.
        return replace(place, rows=Rows(min(1, place.rows.least), place.rows.most))

    @classmethod
    def rows_of_input(cls, rows: Rows) -> Rows:
        return rows.of_all_ranks

    def _is_disjoint(self) -> bool:
        return True


@dataclass
class PaddedBatchStep(BatchStepBase):
    """Step of a ``PaddedBatch`` plan node: stacks and pads rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rule = self.padding_rule()

    def make(self, rows: Chunk, describe: DescribeRow) -> Any:
        return pad_rows(rows, self._rule, describe)


@dataclass
class RebatchStep(WindowStep):
    """Step of a ``Rebatch`` plan node: stacks rows into batches of several sizes."""

    @classmethod
    def order_of(cls, node: Any) -> CycleOrder:
        return CycleOrder(node.sizes, node.drop_remainder)

    def make(self, rows: Chunk, describe: DescribeRow) -> Any:
        node: Rebatch = self.node
        return stack_rows(rows, describe, node.strings or "objects", self.context.services.budget.limit)

    def _is_disjoint(self) -> bool:
        return True


def _agree(given: int, pushed: int, order: WindowOrder | CycleOrder) -> bool:
    """Return True if the window order can emit ``given`` windows after it received ``pushed`` rows."""
    return pushed == 0 if not given else order.begins(given - 1) < pushed <= order.begins(given)
