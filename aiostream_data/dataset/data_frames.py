"""Plan node of ``Dataset.from_dataframe``: data frames of pandas, and tables with the Arrow PyCapsule interface.

No data frame library is imported: the methods of the given object are sufficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from aiostream_data.arguments import several, shown
from aiostream_data.dataset.tensor_slices import sliced_leaf
from aiostream_data.errors import ArgumentTypeError, ColumnError, PlanError
from aiostream_data.plan.sources import TensorSlices
from aiostream_data.rows.array_likes import type_name
from aiostream_data.rows.columns import Column
from aiostream_data.rows.dict_columns import joined, picked
from aiostream_data.rows.pandas_series import leaf_of_series
from aiostream_data.rows.structure import Structure
from aiostream_data.rows.surrogates import SURROGATE, first_surrogate

NAME: Final = "from_dataframe"

_SELECT_BY_LIST: Final = ("polars", "pyarrow")
"""Libraries whose tables have a method ``select`` that takes a list of column names."""


def frame_slices(frame: Any, columns: Sequence[str] | None) -> TensorSlices:
    """Return the plan node of ``from_dataframe``.

    Raises:
        ArgumentTypeError: ``frame`` is no data frame.
        ColumnError: The data frame has no such column.
        PlanError: The columns cannot be elements of a dataset.
    """
    names = None if columns is None else _names(columns)
    structure, leaves = _of_pandas(frame, names) if _is_pandas(frame) else _of_arrow(frame, names)
    return TensorSlices(structure=structure, leaves=leaves, rows=len(leaves[0]), name=NAME)


def _names(columns: Any) -> tuple[str, ...]:
    names = several("columns", columns, "names of columns")
    if not names or len(set(names)) < len(names):
        raise PlanError(f"columns must name at least one column and each column once, got {shown(list(names))}")
    return names


def _check_names(names: Sequence[str], present: Sequence[Any]) -> None:
    for name in names:
        if name not in present:
            raise ColumnError(NAME, name, present, "the data frame has no such column.")


# -- Arrow


def _of_arrow(frame: Any, names: tuple[str, ...] | None) -> tuple[Structure, tuple[Column, ...]]:
    if not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__")):
        cure = "Call collect() first." if hasattr(frame, "collect") else "Pass arrays to from_tensor_slices()."
        raise ArgumentTypeError(
            "from_dataframe() needs a data frame of pandas or Polars, or a table with the Arrow PyCapsule interface, "
            f"got {type_name(type(frame))}. {cure}"
        )
    given = frame
    if names is not None and type(frame).__module__.partition(".")[0] in _SELECT_BY_LIST:
        _check_names(names, frame.columns if hasattr(frame, "lazy") else frame.schema.names)
        given = frame.select(list(names))  # columns that are not selected may have a type without a NumPy form
    structure, leaves = sliced_leaf(given, NAME)
    if structure.kind != "dict":
        raise PlanError("from_dataframe() needs a table with columns, got a single column. Use from_tensor_slices().")
    if not leaves:
        raise PlanError("from_dataframe() needs at least one column")
    if names is None or names == structure.names:
        return structure, tuple(leaves)
    _check_names(names, structure.names)
    return picked(structure, leaves, tuple((name, name) for name in names))


# -- pandas


def _is_pandas(frame: Any) -> bool:
    """Return True for a DataFrame of pandas, or of a subclass."""
    kinds = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(frame).__mro__)
    return ("pandas", "DataFrame") in kinds


def _of_pandas(frame: Any, names: tuple[str, ...] | None) -> tuple[Structure, tuple[Column, ...]]:
    present = list(frame.columns)
    for name in present:
        if not isinstance(name, str):
            raise PlanError(f"from_dataframe() needs columns with str names, got {shown(name)}. Rename the columns.")
    if len(set(present)) < len(present):
        twice = next(name for name in present if present.count(name) > 1)
        raise PlanError(f"from_dataframe() needs different column names, but {twice!r} occurs twice. Rename one.")
    _check_names(names or (), present)
    wanted = present if names is None else list(names)
    if not wanted:
        raise PlanError("from_dataframe() needs at least one column")
    return joined((name, *_of_series(frame[name], name)) for name in wanted)


def _of_series(series: Any, name: str) -> tuple[Structure, list[Column]]:
    leaf = leaf_of_series(series)
    values = leaf.tolist() if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject else []
    row = first_surrogate(values) if {type(value) for value in values} <= {str, type(None)} else None
    if row is None:
        return sliced_leaf(leaf, name)
    raise PlanError(
        f"from_dataframe() cannot store column {name!r}: the text of row {row} {SURROGATE}. Replace the surrogate."
    )
