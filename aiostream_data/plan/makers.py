"""Find the user function that created the input elements of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiostream_data.plan import operators as op
from aiostream_data.plan.aggregate import Aggregate
from aiostream_data.plan.asserted import PadToCardinality
from aiostream_data.plan.base import Node, Operator, SameElements
from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.rank_nodes import MarkPadding
from aiostream_data.plan.resampling import RejectionResample
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.sources import Generator
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.written import function_name

_KEEP_LEAVES: Final = (
    *(SameElements, op.Enumerate, op.Unbatch, InSubprocess, MarkPadding, PadToCardinality),
    *(RejectionResample, ColumnOperator),
)


def made_by(node: Node) -> str | None:
    """Return a text with the name and source line of the user function that created a node's input elements.

    Return None if no user function created the elements.
    """
    while isinstance(node, Operator):
        node = node.input
        function = _function_of(node)
        if function is not None:
            where = "" if node.written_at is None else f", written at {node.written_at}"
            return f"made by: {function_name(function)}, in {node.label}{where}"
        if not isinstance(node, _KEEP_LEAVES):
            return None
    return None


def _function_of(node: Node) -> Callable[..., Any] | None:
    if isinstance(node, (op.Map, op.Interleave, Scan)):
        return node.function
    return node.factory if isinstance(node, (Aggregate, Generator)) else None
