"""Base classes of steps that combine several rows into one element.

A step buffers rows until an element is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.context import hop
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.group_history import GroupJournal, GroupOrder
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.errors import MemoryBudgetError, StateMismatchError
from aiostream_data.rows.lineage import Beside, CutFrom, Lineage, concat_lineages
from aiostream_data.rows.records import Chunk, concat, lineage_of
from aiostream_data.rows.row_ids import OTHER_PIPELINE
from aiostream_data.state_fields import Part
from aiostream_data.transforms.held_rows import HeldRows
from aiostream_data.transforms.padding import PaddingRule

Numbers = NDArray[np.int64]


@dataclass
class GroupStep(Step):
    """Base class of grouping steps. The base class buffers rows and charges the buffered rows to the memory budget."""

    makes_own_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._rows = HeldRows()
        self._held = self.context.services.budget.charge(0, self.node.label)
        self._passes_nbytes = 0  # size of a row that may exceed the limit

    def close(self) -> None:
        self._rows = HeldRows()
        self._held.end()

    def keep(self, numbers: Numbers) -> None:
        """Release all buffered rows except the rows with the given numbers. The numbers must be ascending."""
        self._rows.keep(numbers)
        self._held.resize(self.held_nbytes)

    @property
    def held_nbytes(self) -> int:
        """Size in bytes of the buffered rows, and of all other data that grows with the stream."""
        return self._rows.nbytes

    def lend(self, chunk: Chunk) -> None:
        """Buffer the rows of a chunk until the next call of :meth:`keep`."""
        self._rows.push(chunk)
        self._passes_nbytes = max(self._passes_nbytes, self.context.services.budget.passes(chunk))

    def check_memory(self) -> None:
        """Check that the buffered rows fit into the memory limit. A single row above the limit is also allowed.

        Raises:
            MemoryBudgetError: The buffered rows need more memory than the limit allows.
        """
        limit = self.context.services.budget.limit
        if self.held_nbytes > limit + self._passes_nbytes:
            raise MemoryBudgetError(
                f"cannot hold more rows in {self.node.label}: {len(self._rows)} rows already take {self.held_nbytes} "
                f"bytes, more than the memory limit of {limit} bytes. Reduce the number of held rows, shrink the rows "
                "before this operator, or open the dataset with a larger memory_limit."
            )

    def padding_rule(self) -> PaddingRule:
        """Return the padding of a node with ``padded_shapes`` and ``padding_values``, within the memory limit."""
        node, limit = self.node, self.context.services.budget.limit
        return PaddingRule(node.padded_shapes, node.padding_values, node.parts_from is not None, limit)

    def one_by_one(self, make: Callable[[Any], Chunk | None], groups: Sequence[Any]) -> Chunk | None:
        """Build elements one at a time, after building all elements together has failed.

        Raises:
            PartlyDone: An element cannot be built. The ``done`` attribute contains the elements before the failed
                element.
        """
        made: list[Chunk] = []
        for group in groups:
            try:
                element = make(group)
            except Exception as error:
                raise PartlyDone(concat(made) if made else None, error) from error
            if element is not None:
                made.append(element)
        return concat(made) if made else None

    async def recall_rows(self, lineage: Lineage) -> Chunk:
        """Recompute input rows in the requested order. The same row may be requested several times."""
        if lineage.made_of is not None:
            return await self.context.recall(self.node.input, lineage)
        ids, places = lineage.ids.unique()
        found = await self.context.recall(self.node.input, Lineage(ids))
        return found.take(places)

    async def recall_groups(self, lineage: Lineage) -> tuple[HeldRows, list[Numbers]]:
        """Recompute the input rows of elements. Return all rows, and for each element the numbers of its rows.

        Raises:
            StateMismatchError: The lineage of an element does not list its rows.
        """
        groups = [rows_of_element(lineage.of(row)) for row in range(len(lineage))]
        rows = HeldRows()
        rows.push(await self.recall_rows(concat_lineages(groups)))
        stops = np.cumsum([len(group) for group in groups]).tolist()
        return rows, [np.arange(stop - len(group), stop) for group, stop in zip(groups, stops, strict=True)]


def rows_of_element(made_of: Any) -> Lineage:
    """Return the lineage of an element's input rows.

    Raises:
        StateMismatchError: The lineage of the element does not list its input rows.
    """
    if made_of is None or isinstance(made_of, (CutFrom, Beside)) or not len(made_of):
        raise StateMismatchError(["the row ids do not list the rows of the element"], OTHER_PIPELINE)
    return made_of if isinstance(made_of, Lineage) else Lineage(made_of)


O = TypeVar("O", bound=GroupOrder)  # noqa: E741


@dataclass
class SortingStep(GroupStep, Generic[O]):
    """Base class of steps whose groups are not consecutive rows.

    Therefore the saved state must list the buffered rows.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._order = self.order()
        self._journal = GroupJournal(self._order)
        self._state: dict[str, Any] | None = None
        self._refilled = 0
        self._accounted = 0

    def order(self) -> O:
        """Return the grouping order of this step for the beginning of the stream."""
        raise NotImplementedError

    def lengths(self, chunk: Chunk) -> Numbers:
        """Return the length of each row. The order groups rows by length."""
        raise NotImplementedError

    def elements(self, rows: HeldRows, groups: Sequence[Any]) -> Chunk:
        """Build one element per group of rows. ``groups`` must not be empty."""
        raise NotImplementedError

    def rows_done(self, group: Any) -> int:
        """Return the number of input rows that this group completes."""
        raise NotImplementedError

    def push(self, chunk: Chunk) -> Chunk | None:
        found = leading(len(chunk), lambda first, stop: self.lengths(chunk.slice(first, stop)))
        made = self._push(chunk.slice(0, found.rows), np.concatenate(found.done)) if found.rows else None
        if found.error is not None:
            raise PartlyDone(made, found.error)
        return made

    def _push(self, chunk: Chunk, lengths: Numbers) -> Chunk | None:
        self.lend(chunk)
        groups = self._journal.push(self._order, lengths, lineage_of(chunk))
        made = self._made(groups) if groups else None
        self.dropped = self._order.dropped
        try:
            self._keep_held()
        except MemoryBudgetError as error:
            raise PartlyDone(made, error) from error
        return made

    def finish(self) -> Iterator[Chunk]:
        # Build one group at a time, so that the held rows are not all in memory twice.
        while groups := self._order.finish(1):
            made = self._made(groups)
            self._keep_held()
            yield made
        self.dropped = self._order.dropped
        self._keep_held()

    def at(self, rows: int, book: BookWriter) -> State:
        if self._state is not None:  # the held rows are not recalled yet
            held = self.context.services.book.rows(self._state["held"])
            return {**self._state, "held": book.rows(held), "input": self.source.at(0, book)}
        order, lineage = self._journal.at(rows)
        before = self.source.at(order.pushed - self._refilled, book)
        return {"op": self.node.label, "order": order.state(), "held": book.rows(lineage), "input": before}

    def forget(self, rows: int) -> None:
        if self._state is None:
            self.source.forget(max(0, self._journal.forget(rows) - self._refilled))

    def resume(self, state: State) -> State:
        self._state = taken_up(state, self.node.label)
        return self._state["input"]

    kind: ClassVar[str]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "order", "held", "input")
        held = cls.order_schema(place, fields["order"])
        place.held(fields["held"], held, held)
        yield place.of_input(fields["input"], rows=place.rows.any)

    @classmethod
    def order_schema(cls, place: Place, part: Part) -> int:
        """Validate the saved state of the grouping order. Return the number of rows in its buffer."""
        raise NotImplementedError

    async def refill(self) -> None:
        if self._state is None:
            return
        lineage = self.context.services.book.rows(self._state["held"])
        if len(lineage):
            held = await self.recall_rows(lineage)
            await hop(self.counters, self.context.services.pool.submit(self._take_back, held, self._state["order"]))
        self._state = None

    def rows_accounted(self) -> int | None:
        return self._accounted

    def _take_back(self, held: Chunk, state: dict[str, Any]) -> None:
        lengths = self.lengths(held)
        try:
            self._order.restore(state, lengths)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise StateMismatchError([f"{self.node.label}: {error}"]) from error
        self.lend(held)
        self._journal.begin(self._order, lengths, lineage_of(held))
        self._refilled = self._order.pushed
        self.rows_in += self._order.rows_held()
        self._keep_held()

    def _made(self, groups: Sequence[Any]) -> Chunk:
        self._accounted += sum(map(self.rows_done, groups))
        try:
            return self.elements(self._rows, groups)
        except Exception:  # noqa: BLE001 - raised behind the elements before
            made = self.one_by_one(lambda group: self.elements(self._rows, [group]), groups)
            assert made is not None
            return made

    def _keep_held(self) -> None:
        self.keep(np.unique(self._order.held()))
        self.check_memory()
