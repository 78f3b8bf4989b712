"""Pass bytes to a user function as memoryviews if the annotations of the function ask for them.

A memoryview refers to the memory of the chunk, so that a large record is not copied before the call. The memory is
reused only after the last view of it is deleted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from itertools import islice
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from aiostream_data.rows.columns import Column, SeparateBytes, VarColumn, column_elements
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.structure import Structure

Views: TypeAlias = frozenset[str | int]
"""Arguments to pass as memoryviews: positions of parameters, and keys of an element that is a dict."""

NO_VIEWS: Final[Views] = frozenset()

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def views_of(function: Callable[..., Any]) -> Views:
    """Return the arguments that a function annotates as ``memoryview`` or ``memoryview | None``.

    The first parameter of a function of dicts can be annotated with a ``TypedDict`` that has such fields.
    """
    bound = 0
    while isinstance(function, partial):
        bound += len(function.args)
        function = function.func
    called: Any = function if inspect.isroutine(function) else type(function).__call__
    if not getattr(called, "__annotations__", None):
        return NO_VIEWS
    try:
        hints = get_type_hints(called)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError, AttributeError):  # annotations that cannot be evaluated here
        return NO_VIEWS
    kinds = [hints.get(parameter.name) for parameter in islice(parameters, bound, None) if parameter.kind in _BY_PLACE]
    wanted: set[str | int] = {number for number, kind in enumerate(kinds) if _is_view(kind)}
    if kinds and is_typeddict(kinds[0]):
        wanted |= {key for key, kind in get_type_hints(kinds[0]).items() if _is_view(kind)}
    return frozenset(wanted)


def _is_view(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return frozenset(get_args(annotation)) == {memoryview, NoneType}
    return annotation is memoryview


def elements_with_views(chunk: Chunk, views: Views, pool: LendsMemory | None = None) -> list[Any]:
    """Return the elements of a chunk, with memoryviews in place of the bytes that ``views`` names.

    Args:
        pool: Pool of memory for large ``bytes``.
    """
    if not isinstance(chunk, Columns):
        return [_viewed(element, views) for element in chunk.values] if views else chunk.values
    if not views:
        return chunk.elements(pool)
    wanted = _wanted_leaves(chunk.structure, views)
    columns = [
        _views(leaf) if is_wanted else column_elements(leaf, pool)
        for leaf, is_wanted in zip(chunk.leaves, wanted, strict=True)
    ]
    return chunk.structure.rows(columns)


def _wanted_leaves(structure: Structure, views: Views) -> list[bool]:
    """Return for each leaf of a chunk, in leaf order, True if ``views`` names it."""
    if structure.is_leaf or structure.kind == "nullable":
        return [0 in views, *[False] * (structure.leaf_count - 1)]
    if structure.kind not in ("dict", "tuple"):
        return [False] * structure.leaf_count
    wanted: list[bool] = []
    for key, child in zip(structure.names or range(len(structure.children)), structure.children, strict=True):
        is_wanted = key in views and (child.is_leaf or child.kind == "nullable")
        wanted += [is_wanted, *[False] * (child.leaf_count - 1)] if child.leaf_count else []
    return wanted


def _views(leaf: Column) -> list[Any]:
    if isinstance(leaf, SeparateBytes):
        return [memoryview(row) for row in leaf.rows]
    if not isinstance(leaf, VarColumn) or leaf.kind != "bytes":
        return column_elements(leaf)
    whole = np.ascontiguousarray(leaf.values).data.toreadonly()
    starts = leaf.starts.tolist()
    stops = (leaf.starts + leaf.lengths).tolist()
    return [whole[start:stop] for start, stop in zip(starts, stops, strict=True)]


def _viewed(element: Any, views: Views) -> Any:
    if isinstance(element, bytes):
        return memoryview(element) if 0 in views else element
    if type(element) is tuple:
        return tuple(_view(part) if number in views else part for number, part in enumerate(element))
    if type(element) is dict:
        return {key: _view(part) if key in views else part for key, part in element.items()}
    return element


def _view(value: Any) -> Any:
    return memoryview(value) if isinstance(value, bytes) else value
