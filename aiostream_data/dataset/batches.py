"""Checks of the arguments of the operator ``batch``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from aiostream_data.arguments import integer, several, word
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node, at_least
from aiostream_data.rows.text_arrays import FORMS, Strings

# Imports that only batches by cost need are local, to keep importing the package fast.


def checked_rows(rows: int | None, for_costs: Iterable[Any], on_too_large: Any) -> int:
    """Return the number of rows in a batch, for ``batch`` without ``max_cost``.

    Args:
        for_costs: Arguments that are valid only with ``max_cost``. All of these arguments must be None.

    Raises:
        PlanError: ``rows`` is None, or an argument is valid only with ``max_cost``.
    """
    if rows is None:
        raise PlanError("batch() needs batch_size or max_cost")
    is_for_costs = any(given is not None for given in for_costs)
    if is_for_costs or not isinstance(on_too_large, str) or on_too_large != "raise":
        raise PlanError(
            "batch(): cost, padded_shapes, padding_values and on_too_large need max_cost. "
            "Pass max_cost=, or use padded_batch() for padding."
        )
    return rows


def check_collate(collate: Any, others: Iterable[Any]) -> None:
    """Check the argument ``collate`` of ``batch``.

    Args:
        others: Arguments that are not valid with ``collate``. All of these arguments must be None.

    Raises:
        PlanError: ``collate`` is not a plain function, or another argument is not valid with ``collate``.
        StageBuildError: ``collate`` is a generator function, or takes no positional argument.
    """
    from aiostream_data.dataset import functions
    from aiostream_data.dataset.callables import check_gives_a_value, check_takes_an_element

    functions.check_callable("batch", collate)
    functions.refuse_coroutine("batch", collate)
    check_gives_a_value("batch", collate)
    check_takes_an_element("batch", collate)
    if any(given is not None for given in others):
        raise PlanError("batch(): collate makes the whole batch, so max_cost and strings are not valid with it.")


def checked_strings(operator: str, strings: Any, max_cost: Any = None) -> Strings | None:
    """Return the form of bytes and text in batches, or None for object arrays.

    Args:
        operator: Name of the operator, for error messages.

    Raises:
        PlanError: The form does not exist, needs a later NumPy, or is not available with ``max_cost``.
    """
    if isinstance(strings, str) and strings == "objects":
        return None
    form: Strings = word("strings", strings, FORMS)
    if max_cost is not None:
        raise PlanError(f'{operator}(): strings needs batch_size without max_cost. Remove strings, or pass "objects".')
    if form == "string_dtype" and not hasattr(np.dtypes, "StringDType"):
        raise PlanError(f'{operator}(): strings="string_dtype" needs NumPy 2. Install it, or pass "columns".')
    return form


def checked_limit(max_cost: Any, on_too_large: str) -> int:
    """Return ``max_cost`` if ``max_cost`` and ``on_too_large`` are valid, else raise :class:`PlanError`."""
    from aiostream_data.plan.costs import TOO_LARGE
    from aiostream_data.transforms.costed import CostOrder

    word("on_too_large", on_too_large, TOO_LARGE)
    return CostOrder(at_least("max_cost", max_cost, 1)).max_cost


def checked_cost(node: Node, cost: Any, padded: bool, shapes: Any, values: Any) -> Callable[..., int] | str | None:
    """Validate and return ``cost``. If ``cost`` is None, return the name of the only leaf with a length, if known."""
    from aiostream_data.dataset.element_checks import check_length_of, check_padding, the_only_length

    if not padded and (shapes is not None or values is not None):
        raise PlanError("batch(): padded_shapes and padding_values need padded=True. Remove them, or pass padded=True.")
    check_padding(node, shapes, values)
    if cost is None:
        return the_only_length(node)
    check_length_of(node, "cost", cost)
    return cost  # type: ignore[no-any-return]


def checked_row_shape(row_shape: Any) -> tuple[int | None, ...]:
    """Return the axes of ``row_shape``, with None for a length that the rows of a batch determine.

    Raises:
        PlanError: The shape is invalid, or the installed SciPy has no sparse arrays with as many axes.
        MissingExtraError: SciPy is not installed.
    """
    from aiostream_data.transforms.uneven_rows import scipy_sparse

    given = several("row_shape", row_shape, "a sequence of lengths and None")
    if not given:
        raise PlanError("row_shape must have at least one axis. Use batch() for single numbers.")
    axes = tuple(None if axis is None or axis == -1 else integer("an axis of row_shape", axis, 0) for axis in given)
    sparse = scipy_sparse()
    if len(axes) > 1:
        try:
            sparse.coo_array((1,) * (len(axes) + 1))
        except ValueError as error:
            raise PlanError("sparse_batch(): rows with several axes need SciPy 1.15. Install it.") from error
    return axes
