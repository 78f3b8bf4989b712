"""Datasets of one small file, or of rows in memory, with operators that can run for many of them at once.

Examples are ``Dataset.from_tfrecord(file).map(parse)`` and ``Dataset.range(n).map(function)``, returned by a function
of ``interleave`` or ``flat_map``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MethodType
from typing import Any, NamedTuple, TypeAlias

from aiostream_data._engine.stages.interleaving.inner_rows import Inner
from aiostream_data._engine.stages.interleaving.memory_groups import InMemory, is_small_memory
from aiostream_data.failing.policies import handling_of
from aiostream_data.plan.base import AUTO, Node
from aiostream_data.plan.operators import Call, Filter, Map, SkipFirst, Take
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.tables import TableFile

File: TypeAlias = TableFile | ReadFiles | InMemory
"""Dataset of one file, or of rows in memory."""


class FilePlan(NamedTuple):
    """Dataset of one file or of rows in memory, and operators behind it.

    Attributes:
        file: The dataset.
        operators: Nodes from the first operator to the last.
    """

    file: File
    operators: Sequence[Node]

    @property
    def last(self) -> Node:
        """Last node of the plan."""
        return self.operators[-1] if self.operators else self.file


def file_plan(inner: Inner) -> FilePlan | None:
    """Return the file and the operators of a dataset; None unless a group can have it.

    Rows in memory without operators need no group.
    """
    operators: list[Node] = []
    node: Any = inner
    while _can_run_in_group(node):
        operators.append(node)
        node = node.input
    is_possible = type(node) in (TableFile, ReadFiles) or (bool(operators) and is_small_memory(node))
    return FilePlan(node, operators[::-1]) if is_possible else None


def have_same_operators(plan: FilePlan, other: FilePlan) -> bool:
    """Return True if two plans have operators of the same kinds. Their functions may differ."""
    return [*map(type, plan.operators)] == [*map(type, other.operators)]


def have_same_functions(plan: FilePlan, other: FilePlan) -> bool:
    """Return True if two plans with operators of the same kinds give the same rows for equal rows of their files."""
    return all(map(_does_the_same, plan.operators, other.operators))


def _can_run_in_group(node: Any) -> bool:
    """Return True for operators without options for their calls, whose rows depend only on the rows of their file."""
    kind = type(node)
    if kind is Take or kind is SkipFirst:
        return bool(node.count >= 0)
    if kind is Filter or (kind is Map and not node.batched):
        return (
            node.executor == "thread"
            and node.concurrency is AUTO
            and node.ordered
            and not node.is_coroutine
            and node.init is None
            and node.timeout_s is None
            and not handling_of(node.on_error).interferes
        )
    return False


def _does_the_same(node: Any, other: Any) -> bool:
    if not isinstance(node, Call):
        return bool(node.count == other.count)
    function, others = node.function_called, other.function_called
    is_same = function is others or (isinstance(function, MethodType) and function == others)
    return is_same and not node.wants_rng  # random numbers depend on the file
