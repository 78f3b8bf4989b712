"""Operators on the columns of dict elements, as methods of ``Dataset``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import DTypeLike

from aiostream_data.arguments import numpy_dtype, shown, word
from aiostream_data.dataset import functions
from aiostream_data.dataset.chain import Chain
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.failing.policies import OnError
from aiostream_data.plan.base import AUTO, Auto, Concurrency, ExecutorName
from aiostream_data.plan.columns import CastColumns, Casting, Drop, Rename, Select, WithColumn
from aiostream_data.plan.spec import spec_of

_CASTINGS: Final = ("safe", "same_kind", "unsafe")


class ColumnOperators(Chain):
    """Operators that change the columns of elements that are dicts.

    They also change batches that are dicts of arrays. They do not copy the columns that they do not change.
    """

    def select(self, *columns: str) -> Self:
        """Keep the named columns of dict elements, in this order. tf.data has no such operator.

        Args:
            columns: Keys of the elements. A nested column is kept whole.

        Raises:
            ColumnError: The elements have no such column, or are not dicts. If the structure of the elements is not
                known, the error is raised at the first such element, and names its record.
            PlanError: An argument is invalid.
        """
        return self._with_columns(self._then(Select, "select", columns=_names("select", columns)))

    def drop(self, *columns: str) -> Self:
        """Leave out the named columns of dict elements. tf.data has no such operator.

        Args:
            columns: Keys of the elements.

        Raises:
            ColumnError: As for :meth:`select`. The error is also raised if no column would be left.
            PlanError: An argument is invalid.
        """
        return self._with_columns(self._then(Drop, "drop", columns=_names("drop", columns)))

    def rename(self, columns: Mapping[str, str]) -> Self:
        """Rename columns of dict elements. The columns keep their order. tf.data has no such operator.

        Args:
            columns: New name of each column, by old name. Two columns can swap their names.

        Raises:
            ColumnError: As for :meth:`select`. The error is also raised if two columns would have the same name.
            PlanError: An argument is invalid.
        """
        names = _by_name("rename", columns)
        _names("rename", tuple(names.values()))
        return self._with_columns(self._then(Rename, "rename", columns=names))

    def cast(self, columns: Mapping[str, DTypeLike], *, casting: Casting = "same_kind") -> Self:
        """Convert columns of dict elements to other dtypes. tf.data has no such operator.

        Columns can be numbers, arrays and RaggedArrays. Missing values stay None. In a nested column, all leaves get
        the dtype. A column that has the dtype already is not copied.

        Args:
            columns: New dtype of each column, by name: a bool, integer, floating-point or complex dtype.
            casting: Conversions that are allowed, as in NumPy. "same_kind" allows smaller integers and floating-point
                numbers; floating-point numbers are rounded, and a value that does not fit raises an error. "safe"
                allows only conversions that preserve every value. "unsafe" allows all conversions: a value that does
                not fit becomes what NumPy makes of it.

        Raises:
            ColumnError: As for :meth:`select`. The error is also raised if a column contains no numbers, or if
                ``casting`` does not allow the conversion.
            PlanError: An argument is invalid.

        Raises (when iterated):
            CastError: A value does not fit into the new dtype. A note on the error names the record.
        """
        dtypes = {name: _number_dtype(name, dtype) for name, dtype in _by_name("cast", columns).items()}
        return self._with_columns(
            self._then(CastColumns, "cast", columns=dtypes, casting=word("casting", casting, _CASTINGS))
        )

    def with_column(
        self,
        column: str,
        function: Callable[..., Any],
        *,
        executor: ExecutorName | Auto = "thread",
        concurrency: Concurrency = AUTO,
        ordered: bool = True,
        seed: int | None = None,
        init: Callable[[], Any] | None = None,
        timeout: float | None = None,
        on_error: OnError = None,
    ) -> Self:
        """Add a column to dict elements, or replace a column. tf.data has no such operator.

        The value of the column is ``function(element)``. The other columns are not touched. As in ``map``, a parameter
        named ``rng`` receives a random generator.

        Args:
            column: Name of the column. A new column becomes the last one; a replaced column keeps its place.
            function: Plain function that receives the element and returns the value of the column.
            executor, concurrency, ordered, seed, init, timeout, on_error: As in ``map``. With ``Replace``, the
                replacement value becomes the value of the column.

        Raises:
            StageBuildError: The function cannot be pickled for a process, or is a generator function.
            ColumnError: The elements are not dicts. If the structure of the elements is not known, the error is raised
                at the first such element, and names its record.
            PlanError: An argument is invalid, or the function is a coroutine function.
        """
        (name,) = _names("with_column", (column,))
        functions.check_callable("with_column", function)
        functions.refuse_coroutine("with_column", function)
        call = functions.map_call(
            function, executor, concurrency, ordered, False, seed, init, timeout, on_error, operator="with_column"
        )
        return self._with_columns(self._then(WithColumn, "with_column", column=name, **call))

    def _with_columns(self, made: Self) -> Self:
        """Return the new dataset, after checking its columns if they are known."""
        spec_of(made.plan)
        return made


def _names(operator: str, columns: tuple[Any, ...]) -> tuple[str, ...]:
    """Check names of columns: at least one, no name twice."""
    for name in columns:
        if not isinstance(name, str):
            cure = " Unpack the list: select(*names)." if isinstance(name, (list, tuple)) else ""
            raise ArgumentTypeError(f"{operator}() needs names of columns, got {shown(name)}.{cure}")
    if not columns or len(set(columns)) < len(columns):
        raise PlanError(f"{operator}() needs at least one column and each name once, got {shown(list(columns))}")
    return columns


def _by_name(operator: str, columns: Any) -> dict[str, Any]:
    """Check a mapping from names of columns, and return a copy."""
    if not isinstance(columns, Mapping):
        raise ArgumentTypeError(f"{operator}() needs a dict from names of columns, got {shown(columns)}")
    _names(operator, tuple(columns))
    return dict(columns)


def _number_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    found = numpy_dtype(f"the dtype of column {name!r}", dtype).newbyteorder("=")
    if dtype is None or found.kind not in "biufc":
        raise PlanError(f"cast() converts numbers: the dtype of column {name!r} must be numeric, got {shown(dtype)}")
    return found
