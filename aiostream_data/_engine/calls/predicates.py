"""Call predicates of users, which say for each row whether it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.argument_errors import misfit
from aiostream_data._engine.calls.running_calls import noted_as_running
from aiostream_data._engine.calls.user_code import CallResults, UserFunction, call_rows
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data.errors import PlanError
from aiostream_data.executors.failure import workable
from aiostream_data.plan.written import function_name
from aiostream_data.rows.records import Chunk

_BOOLS: Final = {bool, np.bool_}


def kept_rows(user: UserFunction, chunk: Chunk) -> tuple[NDArray[np.int64], CallResults]:
    """Return the sorted indices of the rows for which the predicate is True, and the results of all calls.

    If the predicate returns anything other than a scalar bool, an error that names the record becomes the ``failure``.
    """
    results = call_rows(user, chunk)
    rows = results.kept()
    are_bools = set(map(type, results.values)) <= _BOOLS
    for number, value in enumerate(() if are_bools else results.values):
        if not is_scalar_bool(value):
            row = number if rows is None else int(rows[number])
            results.failure = no_scalar_bool(user.function, value)
            results.failure.add_note(f"record: {user.describe(chunk.ids, row)}")
            results.values = results.values[:number]
            results.lost = [lost for lost in results.lost if lost < row]
            break
    true = np.flatnonzero(np.fromiter(results.values, bool, len(results.values)))
    return (true if rows is None else rows[true]), results


def leading_rows(user: UserFunction, chunk: Chunk) -> tuple[int, BaseException | None]:
    """Count the leading rows of the chunk for which the predicate is True.

    Return the number of leading rows, and the error of the next row, if any.

    The predicate is not called for rows after the first row that returns False or fails.
    """
    elements = user.elements(chunk)
    left = iter(elements)
    rows = 0
    with noted_as_running(user.function, user.describe, chunk.ids, left):
        try:
            for value in user.calls(user.function, left, chunk):
                if not is_scalar_bool(value):
                    raise no_scalar_bool(user.function, value, "take_while")
                if not value:
                    return rows, None
                rows += 1
            if rows < len(chunk):
                raise StopIteration("raised by the function")  # a StopIteration of the function ended the iterator
        except BaseException as error:  # noqa: BLE001 - raised behind the rows before
            failure = misfit(error, user.function, elements[rows]) or workable(error)
            user.note(failure, chunk, rows)
            return rows, failure
    return rows, None


def is_scalar_bool(value: Any) -> bool:
    """Return True if the value is a Python bool, a NumPy bool, or a zero-dimensional bool array."""
    if isinstance(value, (bool, np.bool_)):
        return True
    return getattr(value, "shape", None) == () and getattr(value, "dtype", None) == np.bool_


def no_scalar_bool(predicate: Callable[..., Any], value: Any, method: str = "filter") -> PlanError:
    """Build the error for a predicate that did not return a scalar bool."""
    cure = ""
    if getattr(value, "shape", ()) and getattr(value, "dtype", None) == np.bool_:
        before = "filter rows" if method == "filter" else f"call {method}()"
        cure = f". Return its all() or any(), or {before} before batch()."
    name = function_name(predicate)
    return PlanError(
        f"the predicate of {method}() must return a scalar bool, but {name} returned {summary(value)}{cure}"
    )
