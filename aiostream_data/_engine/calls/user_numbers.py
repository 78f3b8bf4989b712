"""Call a user function that returns an integer for each row, such as a length or a cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.user_code import Describe, UserFunction
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data.errors import PlanError
from aiostream_data.plan.written import function_name
from aiostream_data.rows.records import Chunk

Numbers = NDArray[np.int64]


def numbers_of(
    function: Callable[..., int], chunk: Chunk, argument: str, describe: Describe, least: int | None = None
) -> Numbers:
    """Call ``function`` for each row. Return the results as int64 of shape (rows,).

    Args:
        argument: Name of the parameter to which the user passed ``function``, for error messages.
        describe: Function that returns the name of a row's record, for error messages.
        least: Smallest valid result; None accepts any 64-bit integer.

    Raises:
        PlanError: The function did not return a valid integer. A note on the error names the record.
        BaseException: The exception of the user function, with notes that name the function and the record.
    """
    user = UserFunction(function, describe)
    values = user.results(chunk)
    numbers = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        number = _integer(value)
        if number is None or (least is not None and number < least):
            rule = "an integer" if least is None else f"an integer of at least {least}"
            error = PlanError(f"{argument} must return {rule}, but {function_name(function)} returned {summary(value)}")
            error.add_note(f"record: {describe(chunk.ids, row)}")
            raise error
        numbers[row] = number
    return numbers


def class_of(value: Any, classes: int, user: UserFunction, chunk: Chunk, row: int) -> int | PlanError:
    """Return the number of a class, or the error if ``value`` is not an integer from 0 to ``classes`` (exclusive)."""
    number = _integer(value)
    if number is not None and 0 <= number < classes:
        return number
    error = PlanError(
        f"class_fn must return an integer from 0 to {classes - 1}, but {function_name(user.function)} returned "
        f"{summary(value)}"
    )
    error.add_note(f"record: {user.describe(chunk.ids, row)}")
    return error


def _integer(value: Any) -> int | None:
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None
