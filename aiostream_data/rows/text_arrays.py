"""Columns of bytes and text in a batch: one buffer instead of one Python object per row."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged
from aiostream_data.rows.split_rows import SplitRows, check_arrays
from aiostream_data.rows.surrogates import SURROGATE, first_surrogate

if TYPE_CHECKING:
    from aiostream_data._native.arrow_nodes import ArrowField

S = TypeVar("S", bytes, str)

Strings: TypeAlias = Literal["objects", "columns", "string_dtype", "ragged", "padded"]
"""Form of bytes and text in batches:

- objects: an object array of ``bytes`` or ``str``, with None for a missing value;
- columns: a :class:`BytesArray` or a :class:`TextArray`, which Arrow, Polars and DuckDB read without a copy;
- string_dtype: text as an array of ``numpy.dtypes.StringDType`` (NumPy 2); bytes as objects;
- ragged: a :class:`RaggedArray` of uint8, text as UTF-8;
- padded: a uint8 array of shape (rows, longest row), text as UTF-8, with 0 after the end of shorter rows.
"""

FORMS: Final = get_args(Strings)

WITH_MISSING: Final = ("objects", "columns")
"""Forms that represent missing values."""

_CONTINUES: int = 0x80
_CONTINUES_MASK: int = 0xC0
"""Bytes whose two upper bits are 10 continue a character in UTF-8."""


@dataclass(frozen=True, slots=True, eq=False)
class _Strings(SplitRows, Generic[S]):
    """Rows of bytes or text, and a mark for each row without a value.

    Attributes:
        values: The bytes of all rows, uint8 with one axis.
        row_splits: Row boundaries in ``values``: an ascending int64 array with one more entry than there are rows.
        valid: For each row, True if the row has a value; None if all rows have values.
    """

    valid: NDArray[np.bool_] | None = None

    kind: ClassVar[Literal["bytes", "str"]]

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_arrays(name, self.values, self.row_splits)
        if self.values.dtype != np.uint8 or self.values.ndim != 1:
            raise PlanError(
                f"cannot create a {name}: values must be uint8 with one axis, got {self.values.dtype} with shape "
                f"{self.values.shape}. Pass np.frombuffer(data, np.uint8)."
            )
        _check_valid(name, self.valid, len(self))

    @classmethod
    def from_list(cls, rows: Iterable[S | None]) -> Self:
        """Copy Python objects to a new array; None is a row without a value.

        Raises:
            ArgumentTypeError: A row has another type.
            PlanError: A text contains a surrogate, which UTF-8 cannot store.
        """
        given = list(rows)
        wanted = bytes if cls.kind == "bytes" else str
        for number, row in enumerate(given):
            if row is not None and not isinstance(row, wanted):
                raise ArgumentTypeError(
                    f"row {number} of a {cls.__name__} must be {wanted.__name__} or None, got {type(row).__name__}"
                )
        valid = np.fromiter((row is not None for row in given), np.bool_, len(given))
        data = _encoded(cls.__name__, given)
        splits = np.zeros(len(data) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, data), np.int64, len(data)), out=splits[1:])
        return cls.trusted(np.frombuffer(b"".join(data), np.uint8), splits, None if valid.all() else valid)

    @classmethod
    def trusted(cls, values: Any, row_splits: Any, valid: NDArray[np.bool_] | None = None) -> Self:
        """Create an array without validation; the caller guarantees valid arguments."""
        made = object.__new__(cls)
        set_once = object.__setattr__  # the class is frozen
        set_once(made, "values", values)
        set_once(made, "row_splits", row_splits)
        set_once(made, "valid", valid)
        return made

    @overload
    def __getitem__(self, row: int) -> S | None: ...

    @overload
    def __getitem__(self, row: slice | Sequence[int] | NDArray[Any]) -> Self: ...

    def __getitem__(self, row: int | slice | Sequence[int] | NDArray[Any]) -> S | Self | None:
        """Return a row as ``bytes`` or ``str``, or several rows as an array of this class.

        Args:
            row: Row number, slice, list or array of row numbers, or mask with one bool per row. A slice with step 1
                shares the memory of the values; the other selections are copies.

        Raises:
            ArgumentTypeError: ``row`` is not a valid index.
            PlanError: The step of the slice is 0.
            RowIndexError: A row does not exist, or the mask has another length.
        """
        if isinstance(row, slice) and row.step in (None, 1):
            start, stop = self._range(row)
            return self.trusted(*self._part(start, stop), None if self.valid is None else self.valid[start:stop])
        if type(row) is not int:
            numbers = self._numbers(row)
            if numbers is not None:
                return self.trusted(*self._copies(numbers), None if self.valid is None else self.valid[numbers])
        position = self._place(operator.index(row))  # type: ignore[arg-type]
        if self.valid is not None and not self.valid[position]:
            return None
        found: S = self.column().element(position)
        return found

    def __iter__(self) -> Iterator[S | None]:
        return iter(self.to_list())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return an object array with one object per row, or an array of ``numpy.dtypes.StringDType`` if requested."""
        if copy is False:
            raise PlanError(
                f"cannot convert a {type(self).__name__} without a copy. Pass copy=True or copy=None, or read values."
            )
        wanted = np.dtype(object) if dtype is None else np.dtype(dtype)
        if wanted != np.dtype(object) and (wanted.kind != "T" or self.kind != "str"):
            raise ArgumentTypeError(
                f"cannot convert a {type(self).__name__} to dtype {wanted}: its rows differ in length. Use to_padded()."
            )
        rows = self.to_list()
        return np.fromiter(rows, wanted, len(rows)) if wanted == np.dtype(object) else np.array(rows, wanted)

    @property
    def nbytes(self) -> int:
        """Total size of ``values``, ``row_splits`` and ``valid`` in bytes."""
        nbytes = int(self.values.nbytes + self.row_splits.nbytes)
        return nbytes if self.valid is None else nbytes + self.valid.nbytes

    def to_list(self) -> list[S | None]:
        """Return the rows as Python objects; None for a row without a value."""
        rows: list[S | None] = self.column().elements()
        return rows if self.valid is None else with_missing(rows, self.valid)

    def __arrow_c_schema__(self) -> Any:
        """Return the Arrow schema of this array, as a PyCapsule."""
        return _native.export_schema(self._arrow())

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Return this array for Arrow without a copy: ``large_binary`` or ``large_utf8``, as two PyCapsules."""
        field = self._arrow()
        return _native.export_schema(field), _native.export_array(field)

    def _arrow(self) -> ArrowField:
        from aiostream_data.rows.arrow.exporting import leaf_field  # needed for Arrow only

        return leaf_field("element", "", self)

    def copy(self) -> Self:
        """Return a copy that shares no memory with this array."""
        return self.trusted(
            self.values.copy(), self.row_splits.copy(), None if self.valid is None else self.valid.copy()
        )

    def as_ragged(self) -> RaggedArray:
        """Return the bytes of the rows as a :class:`RaggedArray` of uint8, without a copy.

        Rows without a value become empty rows. The rows are copied if there are bytes under a missing value.
        """
        if self.valid is None or not self.row_lengths[~self.valid].any():
            return trusted_ragged(self.values, self.row_splits)
        packed = self.column().compact()
        return trusted_ragged(packed.values, np.append(packed.starts, len(packed.values)))

    def to_padded(self, fill: Any = 0) -> NDArray[Any]:
        """Return a uint8 array of shape (rows, longest row), with shorter and missing rows padded with ``fill``."""
        return self.as_ragged().to_padded(fill)

    def column(self) -> VarColumn:
        """Return the rows as a column of a chunk, without a copy. The column has empty rows for missing values."""
        lengths = self.row_lengths if self.valid is None else np.where(self.valid, self.row_lengths, 0)
        return VarColumn(self.values, self.row_splits[:-1], lengths, self.kind)


@dataclass(frozen=True, slots=True, eq=False)
class BytesArray(_Strings[bytes]):
    """Array of ``bytes`` rows in one buffer, in the layout of Arrow's ``large_binary``.

    ``batch(..., strings="columns")`` makes these arrays. Row i is ``values[row_splits[i] : row_splits[i + 1]]``.

    Attributes:
        values: The bytes of all rows, uint8 with one axis.
        row_splits: Row boundaries in ``values``: an ascending int64 array with one more entry than there are rows.
        valid: For each row, True if the row has a value; None if all rows have values.

    Raises:
        ArgumentTypeError: An argument is not an array.
        PlanError: ``values`` are not uint8, or ``row_splits`` or ``valid`` do not fit.
    """

    kind = "bytes"


@dataclass(frozen=True, slots=True, eq=False)
class TextArray(_Strings[str]):
    """Array of ``str`` rows in one buffer of UTF-8, in the layout of Arrow's ``large_utf8``.

    ``batch(..., strings="columns")`` makes these arrays. Row i is ``values[row_splits[i] : row_splits[i + 1]]``.

    Attributes:
        values: UTF-8 of all rows, uint8 with one axis.
        row_splits: Row boundaries in ``values``: an ascending int64 array with one more entry than there are rows.
        valid: For each row, True if the row has a value; None if all rows have values.

    Raises:
        ArgumentTypeError: An argument is not an array.
        PlanError: ``values`` are not uint8, a row with a value is not valid UTF-8, or ``row_splits`` or ``valid`` do
            not fit.
    """

    kind = "str"

    def __post_init__(self) -> None:
        # dataclasses with slots replace the class, so that super() without arguments would fail
        super(TextArray, self).__post_init__()
        _check_utf8(self._values_of_rows(), self.row_splits, self.valid)


A = TypeVar("A", BytesArray, TextArray)


def cut(rows: A, bounds: Sequence[tuple[int, int]]) -> list[A]:
    """Return the slice of ``rows`` from ``start`` to ``stop`` for each pair, which must lie within the array.

    One call takes half the time of separate slices.
    """
    values, splits, valid, made = rows.values, rows.row_splits, rows.valid, rows.trusted
    edges = splits[list(chain.from_iterable(bounds))].tolist()
    return [
        made(values[begin:end], splits[start : stop + 1] - begin, None if valid is None else valid[start:stop])
        for (start, stop), begin, end in zip(bounds, edges[::2], edges[1::2], strict=True)
    ]


def with_missing(rows: Sequence[Any], valid: NDArray[np.bool_]) -> list[Any]:
    """Return the rows with None in place of each row that has no value."""
    return [row if has else None for row, has in zip(rows, valid.tolist(), strict=True)]


def _encoded(name: str, rows: Sequence[Any]) -> list[bytes]:
    try:
        return [b"" if row is None else row if isinstance(row, bytes) else row.encode() for row in rows]
    except UnicodeEncodeError:
        raise PlanError(
            f"cannot create a {name}: the text of row {first_surrogate(rows)} {SURROGATE}. Replace the surrogate, or "
            "use a BytesArray."
        ) from None


def _check_valid(name: str, valid: Any, rows: int) -> None:
    if valid is None:
        return
    if not isinstance(valid, np.ndarray) or valid.dtype != np.bool_:
        raise ArgumentTypeError(f"valid must be a NumPy array of bool, got {getattr(valid, 'dtype', type(valid))}")
    if valid.shape != (rows,):
        raise PlanError(f"cannot create a {name}: valid has shape {valid.shape}, but there are {rows} rows")


def _check_utf8(values: NDArray[np.uint8], splits: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> None:
    """Check that each row with a value is valid UTF-8: the whole is, and no row begins within a character."""
    starts = splits[:-1] - splits[0]
    begins = values[starts[starts < len(values)]]
    if not ((begins & _CONTINUES_MASK) == _CONTINUES).any() and _is_utf8(values):
        return
    for row, (start, stop) in enumerate(pairwise((splits - splits[0]).tolist())):
        if (valid is not None and not valid[row]) or _is_utf8(values[start:stop]):
            continue
        raise PlanError(f"cannot create a TextArray: row {row} is not valid UTF-8. Use a BytesArray for other bytes.")


def _is_utf8(values: NDArray[np.uint8]) -> bool:
    try:
        str(np.ascontiguousarray(values).data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
