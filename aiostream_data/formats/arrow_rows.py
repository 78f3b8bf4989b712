"""Rows of Arrow tables as columns of this package, for formats that an Arrow library decodes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import AiostreamError, ArrowDataError, CorruptRecordError, MissingExtraError
from aiostream_data.formats.row_groups import TableRows
from aiostream_data.rows.arrow.importing import ArrowChunk, read_arrow
from aiostream_data.rows.columns import Column
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure, graft


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


def table_rows(source: object, rows: NDArray[np.int64]) -> Iterator[TableRows]:
    """Yield the rows of an Arrow table or record batch, one chunk after the other.

    Args:
        rows: Numbers of the rows in the file.

    Raises:
        ArrowTypeError: A column has a type that this package cannot read.
        ArrowDataError: The data is invalid.
    """
    start = 0
    for chunk in read_arrow(source):
        yield rows_of_chunk(chunk, rows[start : start + len(chunk)])
        start += len(chunk)


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


@contextmanager
def explained(pyarrow: Any, url: str, offset: int) -> Iterator[None]:
    """Raise errors of PyArrow, and errors of its arrays, as errors that name the file."""
    try:
        yield
    except ArrowDataError as error:
        raise CorruptRecordError(url, offset, f"{error}") from error
    except AiostreamError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(url, offset, f"PyArrow cannot read the file: {error}") from error
