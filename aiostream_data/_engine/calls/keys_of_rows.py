"""Call a user function that returns the key of each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.user_code import Describe, UserFunction
from aiostream_data.plan.written import function_name
from aiostream_data.rows.records import Chunk


def noted(function: Callable[[Any], Any], key: Any) -> Any:
    """Call a user function of a key. Add a note that names the function to an error."""
    try:
        return function(key)
    except Exception as error:
        error.add_note(f"function: {function_name(function)}")
        raise


def keys_of_rows(
    function: Callable[..., Any], chunk: Chunk, number: Callable[[Any], int], describe: Describe
) -> NDArray[np.int64]:
    """Call ``function`` for each row. Return ``number(key)`` of each result, as int64 of shape (rows,).

    Args:
        number: Function that returns the number of a key.
        describe: Function that returns the name of a row's record, for error messages.

    Raises:
        BaseException: The exception of a function, with a note that names the record.
    """
    keys = UserFunction(function, describe).results(chunk)
    numbers = np.empty(len(keys), np.int64)
    for row, key in enumerate(keys):
        try:
            numbers[row] = number(key)
        except Exception as error:
            error.add_note(f"record: {describe(chunk.ids, row)}")
            raise
    return numbers
