"""Rows of Arrow tables as columns of this package, for formats that an Arrow library decodes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import AiostreamError, ArrowDataError, CorruptRecordError, MissingExtraError
from aiostream_data.formats.column_paths import top_of
from aiostream_data.formats.parquet_texts import REPEATED_NBYTES, repeated_nbytes
from aiostream_data.formats.row_groups import TableRows
from aiostream_data.rows.arrow.importing import ArrowChunk, read_arrow
from aiostream_data.rows.columns import Column
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure, graft

_ROW: Final = "row "
_LIST_ITEM: Final = "list item "
_ENTRY: Final = "dictionary entry "
"""Start of the reason of an error that concerns a row, an item of all lists of a column, or a value of a dictionary."""


def load_pyarrow(module: str, files: str, extra: str) -> Any:
    """Import PyArrow with one of its modules.

    Args:
        module: Name of the module, such as ``parquet``.
        files: Name of the files, for the error message.
        extra: Extra of this package that installs PyArrow.

    Raises:
        MissingExtraError: PyArrow is not installed.
    """
    try:
        import pyarrow

        importlib.import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise MissingExtraError(f"{files} files need the extra: pip install 'aiostream-data[{extra}]'") from error
    return pyarrow


def table_rows(source: Any, rows: NDArray[np.int64]) -> list[TableRows]:
    """Return the rows of a PyArrow table or record batch, one chunk after the other.

    Invalid entries of a dictionary that no row uses are ignored.

    Args:
        rows: Numbers of the rows in the file.

    Raises:
        ArrowTypeError: A column has a type that this package cannot read.
        ArrowDataError: The data is invalid.
    """
    try:
        return _rows_of(source, rows)
    except ArrowDataError as error:
        if error.reason.startswith(_LIST_ITEM):
            raise _with_row(error, source) from error
        plain = _without_dictionaries(source) if error.reason.startswith(_ENTRY) else None
        if plain is None:
            raise
    return table_rows(plain, rows)


def _rows_of(source: Any, rows: NDArray[np.int64]) -> list[TableRows]:
    found: list[TableRows] = []
    start = 0
    for chunk in read_arrow(source):
        found.append(rows_of_chunk(chunk, rows[start : start + len(chunk)]))
        start += len(chunk)
    return found


def rows_of_chunk(chunk: ArrowChunk, rows: NDArray[np.int64]) -> TableRows:
    """Return a chunk as rows of a file.

    Args:
        rows: Numbers of the rows in the file.
    """
    leaves: list[Column] = []
    kinds: list[Structure] = []
    for leaf in chunk.leaves:
        leaves += [leaf.column] if leaf.valid is None else [leaf.column, leaf.valid]
        kinds.append(LEAF if leaf.valid is None else NULLABLE)
    return TableRows(graft(chunk.structure, kinds), tuple(leaves), rows)


def _with_row(error: ArrowDataError, source: Any) -> ArrowDataError:
    """Return an error about an item of a list as an error about the row that contains the item."""
    names = source.schema.names
    column = source.select([top_of(error.column, names)])
    sound, failed = 0, len(column)  # numbers of first rows
    while failed - sound > 1:
        middle = (sound + failed) // 2
        if _is_sound(column.slice(0, middle)):
            sound = middle
        else:
            failed = middle
    reason = error.reason.partition(": ")[2]
    return ArrowDataError(error.column, f"{_ROW}{failed - 1}: {reason}", failed - 1)


def _without_dictionaries(source: Any) -> Any:
    """Return a table with the values of dictionaries that its rows use.

    Dictionaries inside of structs and lists are kept. Return None without dictionaries, for long texts, and for wrong
    offsets or indices, with which PyArrow would read outside of the buffers.
    """
    import pyarrow as pa

    table = source if isinstance(source, pa.Table) else pa.Table.from_batches([source])
    nbytes = 0
    for at, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        if pa.types.is_dictionary(field.type) and _is_text(pa.types, field.type.value_type):
            if not all(_is_in_bounds(pa, chunk) for chunk in column.chunks):
                return None
            nbytes += sum(map(repeated_nbytes, column.chunks))
            if nbytes > REPEATED_NBYTES:
                return None
            table = table.set_column(at, field.name, column.cast(field.type.value_type))
    return None if table.schema.equals(source.schema) else table


def _is_in_bounds(pyarrow: Any, array: Any) -> bool:
    """Return True if the offsets and indices of a dictionary array of texts are valid. The texts need not be UTF-8."""
    is_large = pyarrow.types.is_large_string(array.type.value_type)
    try:
        array.validate()
        values = array.dictionary.view(pyarrow.large_binary() if is_large else pyarrow.binary())
        values.validate(full=True)
        pyarrow.DictionaryArray.from_arrays(array.indices, values)  # checks the indices
    except pyarrow.ArrowException:
        return False
    return True


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_sound(source: Any) -> bool:
    try:
        return all(True for _ in read_arrow(source))
    except ArrowDataError:
        return False


@contextmanager
def explained(pyarrow: Any, url: str, offset: int, rows: NDArray[np.int64] | None = None) -> Iterator[None]:
    """Raise errors of PyArrow, and errors of its arrays, as errors that name the file.

    Args:
        rows: Numbers in the file of the rows that are converted, for error messages; None if they are unknown.
    """
    try:
        yield
    except ArrowDataError as error:
        raise CorruptRecordError(url, offset, f"{_in_file(error, rows)}") from error
    except AiostreamError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(url, offset, f"PyArrow cannot read the file: {error}") from error


def _in_file(error: ArrowDataError, rows: NDArray[np.int64] | None) -> ArrowDataError:
    """Return an error with the number of the row in the file."""
    if rows is None or error.row is None or not error.reason.startswith(_ROW):
        return error
    number = int(rows[error.row])
    return ArrowDataError(error.column, f"{_ROW}{number}: {error.reason.partition(': ')[2]}", number)
