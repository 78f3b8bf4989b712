"""Group rows by key into windows (``group_by_window``)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.keys_of_rows import keys_of_rows, noted
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.stages.grouping.group_step import SortingStep
from aiostream_data.errors import PlanError
from aiostream_data.plan.keyed import KeyedWindows, SplitWindows, source_of_window
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.state_fields import Part
from aiostream_data.transforms.grouping import made_of, rows_of_groups
from aiostream_data.transforms.held_rows import HeldRows
from aiostream_data.transforms.key_table import KeyTable, plain_key
from aiostream_data.transforms.keyed_windows import KeyedOrder, KeyedWindow

Numbers = NDArray[np.int64]

FLUSHES: Final = 16
"""Share of the remaining windows that are built together at the end of the stream."""


NO_LIMIT: Final = 1 << 62
"""Window size of a branch that gets all its elements at once."""


@dataclass
class KeyedWindowsStep(SortingStep[KeyedOrder]):
    """Step of a ``KeyedWindows`` plan node: emits a pair (key, dataset) for each window."""

    kind: ClassVar[str] = "group_by_window"

    def order(self) -> KeyedOrder:
        node: KeyedWindows = self.node
        self._table = KeyTable(node.label)
        self._sizes: list[int] = []  # of all keys, by the number of the key
        me = weakref.proxy(self)  # a cycle would keep the user's function until a garbage collection
        return KeyedOrder(lambda number: me._size_of(number), self._table.ascending)

    @classmethod
    def order_schema(cls, place: Place, part: Part) -> int:
        return part.fields("held")["held"].integer()

    @property
    def held_nbytes(self) -> int:
        return super().held_nbytes + self._table.nbytes

    def lengths(self, chunk: Chunk) -> Numbers:
        """Return the number of the key of each row."""
        node: KeyedWindows = self.node
        return keys_of_rows(node.key, chunk, self._number, self.context.services.origins.describe)

    def finish(self) -> Iterator[Chunk]:
        while groups := self._order.finish(max(1, self._order.groups_held() // FLUSHES)):
            made = self._made(groups)
            self._keep_held()
            yield made

    def elements(self, rows: HeldRows, groups: Sequence[KeyedWindow]) -> Chunk:
        node: KeyedWindows = self.node
        parts = list(rows_of_groups(rows, [group.rows for group in groups]))
        windows = [
            (self.key_of(group.key), node.dataset(source_of_window(part)))
            for group, part in zip(groups, parts, strict=True)
        ]
        sizes = np.array([part.nbytes for part in parts], np.int64)
        ids = RowIds.firsts([part.ids for part in parts])
        return Items(windows, ids, None, list(map(made_of, parts)), None, sizes)

    def rows_done(self, group: KeyedWindow) -> int:
        return len(group.rows)

    async def recall(self, lineage: Lineage) -> Chunk:
        rows, groups = await self.recall_groups(lineage)
        keys = [int(self.lengths(rows.take(group[:1]))[0]) for group in groups]  # all rows of a window have one key
        return self.elements(rows, [KeyedWindow(*pair) for pair in zip(groups, keys, strict=True)])

    def key_of(self, number: int) -> Any:
        """Return the key with this number, which the user's function receives."""
        return self._table.key(number)

    def _number(self, key: Any) -> int:
        number = self._table.number(key)
        if number == len(self._sizes):
            node: KeyedWindows = self.node
            self._sizes.append(node.window_size or self._size_for(self._table.key(number)))
        return number

    def _size_of(self, number: int) -> int:
        return self._sizes[number]

    def _size_for(self, key: Any) -> int:
        node: KeyedWindows = self.node
        assert node.window_size_fn is not None
        size = noted(node.window_size_fn, key)
        try:
            found = int(size.__index__())
        except (AttributeError, TypeError):
            found = 0
        if found < 1:
            raise PlanError(
                f"window_size_fn of {node.label}() must return an integer of at least 1, but "
                f"{function_name(node.window_size_fn)} returned {summary(size)} for key {summary(key)}"
            )
        return found


@dataclass
class SplitWindowsStep(KeyedWindowsStep):
    """Step of a ``SplitWindows`` plan node: emits a pair (number of the branch, dataset) for each window."""

    kind: ClassVar[str] = "split_by"

    def order(self) -> KeyedOrder:
        node: SplitWindows = self.node
        super().order()
        self._branches = {key: number for number, key in enumerate(node.branches)}
        me = weakref.proxy(self)  # a cycle would keep the windows until a garbage collection
        return KeyedOrder(lambda number: me._size_of(number), sorted)

    def key_of(self, number: int) -> int:
        return number

    def _number(self, key: Any) -> int:
        node: SplitWindows = self.node
        try:
            found = self._branches.get(plain_key(key))
        except TypeError:  # not hashable
            found = None
        if found is not None:
            return found
        if node.has_default:
            return len(node.branches)
        known = ", ".join(map(summary, node.branches[:20]))
        raise PlanError(
            f"{node.label}() has no branch for key {summary(key)}: the branches are {known}. Add a branch, or pass "
            "default=."
        )

    def _size_of(self, number: int) -> int:
        node: SplitWindows = self.node
        return node.window_size or NO_LIMIT
