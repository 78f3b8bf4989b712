"""Nodes that group elements by key: ``group_by_window`` and ``group_by_reducer``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

from aiostream_data.arguments import shown
from aiostream_data.plan.base import INFINITE, UNKNOWN, Node, Operator
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.operators import Interleave
from aiostream_data.plan.sources import PythonIterable, TensorSlices
from aiostream_data.plan.written import Verbatim, call_arguments, function_name, short_name
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Chunk, Columns

WINDOW: Final = "window"
"""Name of the source of a window's rows, in row origins and saved states."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyedWindows(Operator):
    """Node that emits pairs (key, dataset of elements with this key).

    Attributes:
        key: Function that returns the key of an element.
        window_size: Number of elements in a window, or None if ``window_size_fn`` returns it for each key.
        dataset: Function that makes a dataset of a plan.
    """

    key: Callable[..., Any]
    window_size: int | None
    window_size_fn: Callable[[Any], int] | None
    dataset: Callable[[Node], Any] = field(compare=False)

    @property
    def label(self) -> str:
        return "group_by_window"

    def detail(self) -> str:
        return call_arguments(
            self.key, window_size=(self.window_size, None), window_size_fn=(self.window_size_fn, None)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitWindows(KeyedWindows):
    """Node that emits pairs (number of the branch, dataset of elements of this branch).

    Attributes:
        branches: Key of each branch, in the order of the branches.
        has_default: True if elements with other keys go to one more branch, which is the last one.
    """

    branches: tuple[Any, ...]
    has_default: bool

    @property
    def label(self) -> str:
        return "split_by"


@dataclass(frozen=True, eq=False, kw_only=True)
class ReduceWindows(Interleave):
    """Node that emits the elements of the dataset that the user's function makes of each key and window."""

    cycle_length: int = 1
    block_length: int = 1
    name: str = "group_by_window"

    def detail(self) -> str:
        if isinstance(self.function, Branches):
            return self.function.described()
        return call_arguments(reduce=(self.function, None))


@dataclass(frozen=True)
class Branches:
    """Function that applies the chain of a branch to a window of its elements.

    Attributes:
        keys: Key of each branch.
        chains: Functions from dataset to dataset, one for each key, and one for other keys if there is such a branch.
    """

    keys: tuple[Any, ...]
    chains: tuple[Callable[[Any], Any], ...]

    def __call__(self, branch: int, window: Any) -> Any:
        try:
            return self.chains[branch](window)
        except Exception as error:
            error.add_note(f"branch: {self.name(branch)}, {function_name(self.chains[branch])}")
            raise

    def name(self, branch: int) -> str:
        """Return the key of a branch as text."""
        return shown(self.keys[branch]) if branch < len(self.keys) else "default"

    def described(self) -> str:
        """Return the chains as text."""
        chains = [f"{self.name(branch)}: {short_name(chain)}" for branch, chain in enumerate(self.chains)]
        return call_arguments(Verbatim("{" + ", ".join(chains) + "}"))


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowSlices(TensorSlices):
    """Source that emits the elements of a window that form columns.

    The chunks of the input decide whether elements form columns. So this source must have the row ids, orders and
    states of :class:`WindowItems`. It cannot have a random order of its own.
    """

    name: str = WINDOW


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowItems(PythonIterable):
    """Source that emits the elements of a window that do not form columns, ``times`` times; None repeats for ever."""

    one_shot: bool = False
    times: int | None = 1

    @property
    def label(self) -> str:
        return WINDOW


def source_of_window(rows: Chunk) -> Node:
    """Return a source of the rows of one window. Arrays in its elements are read-only."""
    if isinstance(rows, Columns):
        leaves = tuple(map(_read_only, rows.leaves))
        return WindowSlices(structure=rows.structure, leaves=leaves, rows=len(rows))
    return WindowItems(iterable=rows.values)


def _read_only(column: Column) -> Column:
    if isinstance(column, VarColumn):
        if column.kind != "array":
            return column
        own = column.compact()  # the values may belong to more rows than those of the window
        return VarColumn(_read_only_array(own.values), own.starts, own.lengths, "array")
    return _read_only_array(column)


def _read_only_array(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupByReducer(Operator):
    """Node that emits one result for each key: ``finalize(reduce(... reduce(init(key), element) ...))``."""

    key: Callable[..., Any]
    init: Callable[[Any], Any]
    reduce: Callable[[Any, Any], Any]
    finalize: Callable[[Any], Any] | None = None

    @property
    def label(self) -> str:
        return "group_by_reducer"

    def detail(self) -> str:
        return call_arguments(self.key, self.init, self.reduce, finalize=(self.finalize, None))


@cardinality.register(KeyedWindows)
@cardinality.register(GroupByReducer)
def _(node: Operator) -> int:
    rows = cardinality(node.input)
    return rows if rows in (0, INFINITE) else UNKNOWN


@cardinality.register
def _(node: WindowItems) -> int:
    rows = len(node.iterable)
    return INFINITE if node.times is None and rows else rows * (node.times or 0)
