"""Run ``with_column``: add the results of a user function to the elements as one more column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aiostream_data._engine.calls.made_rows import Made
from aiostream_data._engine.calls.user_code import UserFunction
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data.plan.columns import not_dicts
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.column_changes import add_column, dicts_at_start


def with_column(user: UserFunction, column: str, chunk: Chunk, mapped: Callable[[UserFunction, Chunk], Made]) -> Made:
    """Add the results of a function to the elements, without touching the other columns.

    Args:
        mapped: Function that calls the user function for each row.
    """
    dicts = dicts_at_start(chunk)
    made = mapped(user, chunk.slice(0, dicts))
    if made.failure is None and dicts < len(chunk):
        made.kept = np.arange(dicts) if made.kept is None else made.kept
        made.failure, made.rows = not_dicts("with_column", summary(chunk.element(dicts))), dicts
        made.failure.add_note(f"record: {user.describe(chunk.ids, dicts)}")
    made.chunk = add_column(chunk if made.kept is None else chunk.take(made.kept), column, made.chunk)
    return made
