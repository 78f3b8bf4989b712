"""Function of ``index_flat_map``: compute one row of a ``flat_map`` from its number, without the rows before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.sources import PythonIterable, Range, TensorSlices
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Columns
from aiostream_data.rows.row_ids import RowIds

E_co = TypeVar("E_co", covariant=True)


class ReturnedRows(Protocol[E_co]):
    """A list, tuple or array: rows by their index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> E_co: ...


@dataclass
class IndexedRows:
    """Callable that returns the row with a given number.

    Args:
        source: Node of a dataset in memory.
        function: User function that returns the rows of an element.
        index_map: User function that returns the element index and the row index of a row number.
    """

    source: Node
    function: Callable[..., Any]
    index_map: Callable[[int], tuple[int, int]]
    _last: tuple[int, Any] | None = field(default=None, repr=False, compare=False)  # element index, and its rows

    def __post_init__(self) -> None:
        self.__qualname__ = "index_flat_map"
        self._elements = cardinality(self.source)

    def __call__(self, number: int) -> Any:
        element, row = self._place_of(int(number))
        last = self._last  # another thread may replace it
        if last is None or last[0] != element:
            last = self._last = element, self._rows_of(element)
        rows = last[1]
        if not 0 <= row < len(rows):
            raise PlanError(
                f"index_map of index_flat_map() returned row {row} of element {element} for {number}, but the function "
                f"returned {len(rows)} rows for this element"
            )
        return rows[row]

    def _place_of(self, number: int) -> tuple[int, int]:
        found = self.index_map(number)
        pair = tuple(found) if isinstance(found, (tuple, list, np.ndarray)) else ()
        if len(pair) != 2 or not all(isinstance(part, (int, np.integer)) for part in pair):
            raise PlanError(
                f"index_map of index_flat_map() must return a pair of integers, the index of an element and of a row, "
                f"but it returned {shown(found)} for {number}"
            )
        element, row = int(pair[0]), int(pair[1])
        if not 0 <= element < self._elements:
            raise PlanError(
                f"index_map of index_flat_map() returned element {element} for {number}, but the dataset has "
                f"{self._elements} elements"
            )
        return element, row

    def _rows_of(self, element: int) -> ReturnedRows[Any]:
        value = element_in_memory(self.source, element)
        rows = self.function(*value) if type(value) is tuple else self.function(value)
        if isinstance(rows, (list, tuple)) or (isinstance(rows, np.ndarray) and rows.ndim):
            return rows
        raise PlanError(
            f"the function of index_flat_map() must return a list, tuple or array of rows, got {shown(rows)}. "
            "For datasets and generators, use flat_map()."
        )


def check_in_memory(node: Node) -> None:
    """Check that single elements of a source can be read.

    Raises:
        PlanError: The dataset is not in memory, or has operators.
    """
    is_sequence = isinstance(node, PythonIterable) and isinstance(node.iterable, (list, tuple, np.ndarray))
    is_plain = isinstance(node, (Range, TensorSlices)) and node.times == 1 and node.permuted is None
    if not (is_sequence or is_plain):
        raise PlanError(
            f"index_flat_map() needs a dataset in memory, such as from_list(), without operators, got {node.label}. "
            "Use flat_map(), or read a list of the elements first."
        )


def element_in_memory(node: Node, index: int) -> Any:
    """Return one element of a source in memory."""
    if isinstance(node, TensorSlices):
        stop = index + 1
        leaves = [
            leaf.slice(index, stop) if isinstance(leaf, VarColumn) else leaf[index:stop].copy() for leaf in node.leaves
        ]
        return Columns(node.structure, tuple(leaves), RowIds.run(0, index, 1)).element(0)
    return node.numbers[index] if isinstance(node, Range) else node.iterable[index]  # type: ignore[attr-defined]
