"""Combine elements into columns (:func:`collate`) or into one batch element (:func:`stack`).

:func:`collate` converts results of user functions to columns, which makes later operators cheaper. Values that columns
would return with another type stay in a list. :func:`stack` makes one batch element. If two elements cannot be stacked,
:func:`stack` raises an error that names both rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import BatchShapeError
from aiostream_data.rows.array_likes import (
    NoNumpyFormError,
    are_numbers,
    array_of,
    family,
    holds_arrays,
    is_number,
    numbers_array,
    type_name,
)
from aiostream_data.rows.columns import LONG_ROW_NBYTES, Column, SeparateBytes, VarColumn, object_array
from aiostream_data.rows.lent_memory import LARGE_ARRAY_NBYTES, LendsMemory, empty_array
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import StructureError, flatten, structure_of
from aiostream_data.rows.text_arrays import Strings
from aiostream_data.rows.text_lists import is_fixed_width, python_text, variable_rows, with_equal_widths
from aiostream_data.transforms.string_leaves import are_strings, leaf_of_strings

DescribeRow = Callable[[int], str]
StackLeaf = Callable[[str, Sequence[Any], DescribeRow], Any]
"""Function ``(path, values, describe)`` that stacks the values of one leaf; ``describe(row)`` returns a row's name.
"""

_TEXT = (bytes, str)
_ARRAY_KINDS = "biufcmMV"
_PYTHON_NUMBERS = (np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_))
_READ_BACK_AS_THEY_ARE = frozenset({int, float, bool, complex, bytes, str, type(None), list})

LARGE_RESULT_NBYTES = 16 << 10
"""Minimum size in bytes of a result array for which a copy costs more time than later steps save."""


def collate_results(results: list[Any], ids: RowIds) -> Columns | Items:
    """Collate the results of a user function as :func:`collate` does, but keep large arrays by reference.

    Large results are thus copied only once, when the batch is assembled. A user function must not modify an array after
    returning it.
    """
    return read_back_items(results, ids) if results and _is_large(results[0]) else collate(results, ids)


def _is_large(element: Any) -> bool:
    leaves = flatten(element)[1]
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, np.ndarray)) >= LARGE_RESULT_NBYTES


def collate(elements: list[Any], ids: RowIds) -> Columns | Items:
    """Convert ``elements`` to Columns if each leaf has one type, shape and dtype, and otherwise to Items.

    Python int, float and bool values become int64, float64 and bool columns. bytes and str become variable-length
    columns. Arrays and NumPy scalars are copied and stacked into one array. Mixed types (1 and 2.5) and integers beyond
    64 bits become Items, because columns would change such values.

    Args:
        ids: Row ids of the elements.
    """
    if not elements:
        return Items(elements, ids)
    structure = structure_of(elements[0])
    try:
        leaves = [elements] if structure.is_leaf else structure.columns(elements)
    except StructureError:
        return read_back_items(elements, ids)
    if structure.has_classes and not all(map(structure.gives_back, elements)):
        return read_back_items(elements, ids)
    columns = []
    for values in leaves:
        column = column_of(values)
        if column is None:
            return read_back_items(elements, ids)
        columns.append(column)
    return Columns(structure, tuple(columns), ids) if columns else read_back_items(elements, ids)


def read_back_items(elements: list[Any], ids: RowIds) -> Items:
    """Return ``elements`` as Items, with values converted to the types that columns would return.

    The types of function results thus do not depend on how results are grouped into chunks.
    """
    if _are_read_back_as_they_are(elements):
        return Items(elements, ids)
    read_back = list(map(_as_read_back, elements))
    return Items(elements if _same(elements, read_back) else read_back, ids)


def _are_read_back_as_they_are(elements: list[Any]) -> bool:
    """Return True if all elements have the structure of the first one, and only leaves that columns would not change.

    The search takes a fraction of the time of a conversion. False does not show that a conversion is needed.
    """
    leaves = structure_of(elements[0]).plain_columns(elements) if elements else []
    return leaves is not None and all(_READ_BACK_AS_THEY_ARE.issuperset(map(type, values)) for values in leaves)


def _as_read_back(value: Any) -> Any:
    kind = type(value)
    if kind in _READ_BACK_AS_THEY_ARE:
        return value
    if kind is np.ndarray or issubclass(kind, np.generic):
        return array_as_read_back(value)
    if kind is not dict and issubclass(kind, Mapping):
        return {key: _as_read_back(part) for key, part in value.items()}
    structure = structure_of(value)
    if structure.is_leaf or not structure.gives_back(value):
        return value
    leaves = structure.flatten(value)
    read_back = list(map(_as_read_back, leaves))
    return value if _same(leaves, read_back) else structure.unflatten(read_back)


def _same(before: list[Any], after: list[Any]) -> bool:
    return all(one is other for one, other in zip(before, after, strict=True))


def array_as_read_back(array: Any) -> Any:
    """Return an array or NumPy scalar as a column returns it: in native byte order, int64 as int, and so on."""
    dtype = array.dtype
    if dtype.kind not in _ARRAY_KINDS or dtype.hasobject:
        return array
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
    if array.ndim:
        return array
    return array.item() if array.dtype in _PYTHON_NUMBERS else array[()]


def column_of(values: list[Any]) -> Column | None:
    """Convert the values of one leaf to a column, or return None if a column would change them.

    ``values`` is not empty.
    """
    kind = type(values[0])
    if kind is int:
        return _native.unbox_ints(values)
    if kind is float:
        return _native.unbox_floats(values)
    if not all(type(value) is kind for value in values):
        return None
    if kind is bool:
        return np.fromiter(values, np.bool_, len(values))
    if kind is bytes:
        are_long = sum(map(len, values)) >= LONG_ROW_NBYTES * len(values)
        return SeparateBytes(values) if are_long else _bytes_column(values)
    if kind is str:
        return _str_column(values)
    if kind is np.ndarray or issubclass(kind, np.generic):
        return _array_column(values)
    return None


def stack(
    elements: Sequence[Any], describe: DescribeRow, leaf: StackLeaf | None = None, strings: Strings = "objects"
) -> Any:
    """Stack elements into one batch element, as tf.data's ``batch`` does.

    The first axis of each stacked leaf is the element index.

    Arrays (of NumPy, or supported by :mod:`.array_likes`), numbers and lists of numbers become an array. Python numbers
    of several types get the dtype that ``np.asarray`` chooses. Other values, such as bytes, str and RaggedArray, become
    an object array.

    Args:
        elements: Elements to stack; at least one.
        describe: Function that returns the name of a row for error messages.
        leaf: Function that stacks one leaf; the default is :func:`stack_leaf`.
        strings: Form of leaves whose values are bytes or text. In such leaves, None is a missing value.

    Raises:
        BatchShapeError: Shapes, dtypes or structures differ, an integer exceeds 64 bits, or an array cannot be
            converted to NumPy. The error message names the leaf and the records.
    """
    leaf = leaf or stack_leaf
    structure = structure_of(elements[0])
    try:
        leaves = structure.columns(elements)
    except StructureError as error:
        first, found = f"structure {structure}", [f"structure {structure_of(element)}" for element in elements]
        raise _refusal("the elements", describe, _first_other(first, found), first, found) from error
    paths = structure.paths()
    if strings != "objects":
        leaf = _with_strings(leaf, strings)
    return structure.unflatten([leaf(path, values, describe) for path, values in zip(paths, leaves, strict=True)])


def _with_strings(leaf: StackLeaf, strings: Strings) -> StackLeaf:
    """Stack leaves of bytes or text in the form ``strings``, and all others with ``leaf``."""

    def stacked(path: str, values: Sequence[Any], describe: DescribeRow) -> Any:
        found = leaf_of_strings(path, values, describe, strings)
        return leaf(path, values, describe) if found is None else found

    return stacked


def _bytes_column(values: Sequence[bytes]) -> VarColumn:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return VarColumn(np.frombuffer(b"".join(values), np.uint8), np.cumsum(lengths) - lengths, lengths, "bytes")


def _str_column(values: Sequence[str]) -> VarColumn | None:
    try:
        column = _bytes_column([value.encode() for value in values])
    except UnicodeEncodeError:  # a lone surrogate cannot be encoded as UTF-8
        return None
    return VarColumn(column.values, column.starts, column.lengths, "str")


def _array_column(values: Sequence[Any]) -> NDArray[Any] | None:
    dtype, shape = values[0].dtype, values[0].shape
    if dtype.kind not in _ARRAY_KINDS or dtype.hasobject or any(v.dtype != dtype or v.shape != shape for v in values):
        return None
    return _stacked(values)


def _stacked(values: Sequence[Any], pool: LendsMemory | None = None) -> NDArray[Any]:
    """Stack arrays or NumPy scalars of one shape and dtype.

    This function uses np.concatenate, which is 4 times faster than np.stack.
    """
    first = values[0]
    if first.ndim == 0:
        return np.array(values, first.dtype)
    shape = len(values), *first.shape
    if len(values) * first.nbytes < LARGE_ARRAY_NBYTES:
        return np.concatenate(values).reshape(shape)
    stacked = empty_array(shape, np.result_type(first.dtype), pool)
    np.concatenate(values, out=stacked.reshape(len(values) * len(first), *first.shape[1:]))
    return stacked


def stack_leaf(
    path: str, values: Sequence[Any], describe: DescribeRow, pool: LendsMemory | None = None
) -> NDArray[Any]:
    """Stack the values of one leaf along a new first axis.

    Args:
        pool: Pool of memory for large results.

    Raises:
        BatchShapeError: The values cannot be stacked. The error message names the leaf path and both rows.
    """
    if isinstance(values[0], np.ndarray) and not values[0].ndim:
        values = python_text(values)
    kinds = set(map(type, values))
    if are_strings(kinds):
        return object_array(values)
    if are_numbers(kinds) and (numbers := numbers_array(values, kinds)) is not None:
        return numbers
    arrays = as_arrays(path, values, describe)
    typed = [array for array, value in zip(arrays, values, strict=True) if not is_empty_list(value)] or arrays
    if all(array is None for array in typed) and not any(is_number(kind) or issubclass(kind, _TEXT) for kind in kinds):
        return object_array(values)
    found = [_facts(value, array) for value, array in zip(values, arrays, strict=True)]
    row = _first_other(found[0], found)
    if row or arrays[0] is None:
        first, row = _pair_to_name(values, arrays, found, row)
        raise _refusal(f"leaf {path!r}", describe, row, found[first], found, first)
    return _stacked(arrays, pool)


def is_empty_list(value: Any) -> bool:
    """Return True for a list without items, whose type is unknown: a list of numbers or of objects."""
    return isinstance(value, list) and not value


def as_arrays(path: str, values: Sequence[Any], describe: DescribeRow) -> list[NDArray[Any] | None]:
    """Convert each value of a leaf to NumPy with :func:`array_of`, which returns None for text and objects.

    Arrays of text of different widths get the largest width.

    Raises:
        BatchShapeError: An array cannot be converted, or the leaf contains arrays of two libraries. The error message
            names the types and the rows.
    """
    families = {kind: family(kind) for kind in set(map(type, values))}
    if len(set(families.values())) > 1:
        found = [_library(value, families[type(value)]) for value in values]
        raise _refusal(f"leaf {path!r}", describe, _first_other(found[0], found), found[0], found)
    arrays: list[NDArray[Any] | None] = []
    for row, value in enumerate(values):
        try:
            arrays.append(array_of(value))
        except NoNumpyFormError as error:
            where = f"{type_name(type(value))} in {describe(row)}"
            raise BatchShapeError(
                f"cannot batch leaf {path!r}: {where} cannot become a dense numpy.ndarray: {error}"
            ) from error.__cause__
    return with_equal_widths(arrays)


def as_stackable(chunk: Chunk) -> Chunk:
    """Prepare a chunk for stacking, so that the leaves of a batch do not depend on the borders of chunks.

    Columns become Items if an object column contains arrays. Stacking then checks each array. Fixed-width columns of
    bytes or text become variable-length columns.
    """
    if not isinstance(chunk, Columns):
        return chunk
    if any(not isinstance(leaf, VarColumn) and holds_arrays(leaf) for leaf in chunk.leaves):
        return as_items(chunk)
    if not any(map(is_fixed_width, chunk.leaves)):
        return chunk
    return replace(chunk, leaves=tuple(_with_variable_rows(leaf) for leaf in chunk.leaves))


def _with_variable_rows(column: Column) -> Column:
    return variable_rows(column) if is_fixed_width(column) else column


def without_marks(chunk: Chunk) -> Chunk:
    """Convert Columns with nullable leaves to Items, for code that reads columns by name."""
    return as_items(chunk) if isinstance(chunk, Columns) and chunk.structure.has_nullable else chunk


def as_items(chunk: Columns) -> Items:
    """Return the rows of a chunk as a list of elements."""
    return Items(chunk.elements(), chunk.ids, chunk.lease, chunk.made_of)


def _facts(value: Any, array: NDArray[Any] | None) -> tuple[Any, ...]:
    """Return the properties (shape and dtype, or type) that must be equal in all values of a stack."""
    if array is not None:
        return (array.shape, array.dtype)
    return (next((text for text in _TEXT if isinstance(value, text)), type(value)),)


def _library(value: Any, name: str) -> str:
    return name or type_name(type(value))


def _first_other(first: Any, found: Sequence[Any]) -> int:
    """Return the index of the first entry of ``found`` that differs from ``first``, or 0 if none differs."""
    return next((row for row, facts in enumerate(found) if facts != first), 0)


def _pair_to_name(values: Sequence[Any], arrays: Sequence[Any], found: Sequence[Any], row: int) -> tuple[int, int]:
    """Return the numbers of two values that cannot be in one leaf. None can be in a leaf of text or of objects."""
    some = [number for number, value in enumerate(values) if value is not None]
    if not some or arrays[some[0]] is not None:
        return 0, row
    first = some[0]
    return first, next((number for number in some if found[number] != found[first]), first)


def _refusal(
    what: str, describe: DescribeRow, row: int, first: Any, found: Sequence[Any], first_row: int = 0
) -> BatchShapeError:
    where = f"{_words(first)} in {describe(first_row)}"
    if row != first_row:
        where += f" but {_words(found[row])} in {describe(row)}"
    return BatchShapeError(f"cannot batch {what}: {where}. {_cure(first, found[row])}")


def _cure(first: Any, other: Any) -> str:
    """Return the advice for the error message about values that cannot be stacked."""
    are_arrays = all(isinstance(facts, tuple) and len(facts) == 2 for facts in (first, other))
    if are_arrays and first[1] == other[1] and len(first[0]) == len(other[0]):
        return "Make the shapes equal in map(), or use padded_batch()."
    if isinstance(other, str):
        return "Return elements of one structure and one array type from map()."
    return "Convert them to one type and shape in map()."


def _words(facts: Any) -> str:
    if isinstance(facts, str):
        return facts
    if len(facts) == 2:
        return f"shape {facts[0]} of {facts[1]}"
    return "an int beyond 64 bits" if facts[0] is int else f"a {facts[0].__name__}"
