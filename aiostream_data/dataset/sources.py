"""Plan nodes of in-memory sources and of Python iterables, created from validated arguments."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aiostream_data.arguments import MOST, integer, numpy_dtype, several
from aiostream_data.dataset.callables import check_takes_arguments, warn_of_hidden_state
from aiostream_data.dataset.declared_specs import check_spec
from aiostream_data.dataset.tensor_slices import read_only_column as read_only
from aiostream_data.errors import ArgumentTypeError, PlanError, StageBuildError
from aiostream_data.plan import sources as src
from aiostream_data.plan.endless import Counter
from aiostream_data.plan.written import callers_line
from aiostream_data.rows.records import Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import flatten
from aiostream_data.rows.surrogates import SURROGATE, first_surrogate
from aiostream_data.transforms.collate import collate


def generator(factory: Callable[..., Any], args: Any, signature: Any) -> src.Generator:
    """Return the plan node of ``from_generator``.

    Raises:
        PlanError: ``factory`` is not callable, or does not accept ``args``, or ``signature`` is invalid.
    """
    if not callable(factory):
        raise StageBuildError(
            f"from_generator() needs a function that returns an iterator, got a {type(factory).__name__}. "
            "Pass the function itself, without calling it."
        )
    if signature is not None:
        check_spec("signature", signature)
    given = several("args", args, "a tuple of arguments")
    check_takes_arguments("from_generator", factory, given)
    warn_of_hidden_state("from_generator", factory, args=given)
    return src.Generator(factory=factory, args=given, signature=signature)


def python_iterable(iterable: Any) -> src.PythonIterable:
    """Return the plan node of ``from_iterable``.

    Raises:
        PlanError: ``iterable`` is not iterable.
    """
    if not isinstance(iterable, (Iterable, AsyncIterable)):
        raise PlanError(
            f"from_iterable() needs an iterable or async iterable, got {type(iterable).__name__}"
            + (". Pass the function to from_generator()." if callable(iterable) else "")
        )
    return src.PythonIterable(iterable=iterable, one_shot=src.is_one_shot(iterable))


def numbers(start: Any, stop: Any, step: Any, dtype: Any) -> src.Range:
    """Return the plan node of ``range``. To be called by ``range`` itself, whose caller is user code.

    Raises:
        PlanError: ``step`` is 0, or ``dtype`` cannot represent all numbers.
    """
    first, last = (0, start) if stop is None else (start, stop)
    if dtype is np.int64 and type(step) is int and step == 1 and _is_int64(first) and _is_int64(last):
        return src.Range.of(first, last, callers_line(3))
    integer("range() start", start, -MOST - 1)
    if stop is not None:
        integer("range() stop", stop, -MOST - 1)
    integer("range() step", step, -MOST - 1)
    if step == 0:
        raise PlanError("range() step must not be 0")
    node = src.Range(start=first, stop=last, step=step, dtype=_numbers_dtype(dtype))
    _check_holds(node)
    return node


def _is_int64(value: Any) -> bool:
    return type(value) is int and -MOST - 1 <= value <= MOST


def counter(start: Any, step: Any) -> Counter:
    """Return the plan node of ``counter``.

    Raises:
        PlanError: An argument is not an int64.
    """
    first = integer("counter() start", start, -MOST - 1)
    return Counter(start=first, step=integer("counter() step", step, -MOST - 1))


def from_list(elements: Any) -> src.TensorSlices:
    """Return the plan node of ``from_list``, which holds the elements as columns.

    Raises:
        PlanError: ``elements`` is not a non-empty list or tuple, or the elements have different structures, types or
            shapes.
    """
    if not isinstance(elements, (list, tuple)):
        raise PlanError(
            f"from_list() needs a list of elements, got {type(elements).__name__}. For other iterables, use "
            "from_iterable(); for arrays, use from_tensor_slices()."
        )
    if not elements:
        raise PlanError("from_list() needs at least one element, got an empty list. Use range(0) for an empty dataset.")
    chunk = collate(list(elements), RowIds.run(0, 0, len(elements)))
    if isinstance(chunk, Items):
        _check_text(elements)
        raise PlanError(
            "from_list() needs elements with equal structures, and leaves with equal types and shapes. For other "
            "elements, use from_iterable()."
        )
    leaves = tuple(read_only(leaf) for leaf in chunk.leaves)
    return src.TensorSlices(structure=chunk.structure, leaves=leaves, rows=len(elements), name="from_list")


def _check_text(elements: Sequence[Any]) -> None:
    """Raise :class:`PlanError` if UTF-8 cannot store a text in an element."""
    for number, element in enumerate(elements):
        structure, leaves = flatten(element)
        place = first_surrogate(leaves)
        if place is not None:
            raise PlanError(
                f"from_list() cannot store leaf {structure.paths()[place]!r} of element {number}: the text {SURROGATE}"
                ". Replace the surrogate, or use from_iterable()."
            )


def _numbers_dtype(dtype: Any) -> np.dtype[Any]:
    if dtype is np.int64:
        return src.INT64
    found = numpy_dtype("range() dtype", dtype)
    if found.kind not in "iufc":
        raise ArgumentTypeError(f"range() dtype must be numeric, got {found}")
    return found


def _check_holds(node: src.Range) -> None:
    """Raise :class:`PlanError` if the dtype cannot represent all numbers of the range."""
    if node.dtype is src.INT64:  # the bounds are int64
        return
    numbers = node.numbers
    if node.dtype.kind in "iu" and len(numbers):
        limits = np.iinfo(node.dtype)
        lowest, highest = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        if lowest < limits.min or highest > limits.max:
            raise PlanError(
                f"range() dtype {node.dtype} cannot represent all numbers from {lowest} to {highest}. "
                "Pass a larger dtype=."
            )
