"""Data sets of files with a directory of row groups: one inner data set per file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiostream_data.arguments import flag, shown
from aiostream_data.dataset.chain import Chain
from aiostream_data.errors import PlanError
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.parquet_filters import checked_filters
from aiostream_data.plan.tables import TableFile, TableFormatLike


@dataclass(frozen=True)
class RowsOf:
    """Function from the URL of a file to the data set of its rows. Picklable.

    Attributes:
        format: Format of the file.
        storage_options: Options of the store, which may be secret.
    """

    format: TableFormatLike
    storage_options: Mapping[str, Any] = field(repr=False)

    def __call__(self, url: str) -> Chain:
        return Chain(TableFile(url=url, format=self.format, storage_options=self.storage_options))


def parquet_format(columns: Any, filters: Any, partitions: Any) -> ParquetFormat:
    """Return the format of ``from_parquet``.

    Raises:
        PlanError: An argument is invalid.
    """
    return ParquetFormat(
        columns=_columns(columns), filters=checked_filters(filters), partitions=flag("partitions", partitions)
    )


def _columns(columns: Any) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Sequence) or not columns:
        raise PlanError(f"columns must be a list of column names, got {shown(columns)}")
    if not all(isinstance(name, str) and name for name in columns) or len(set(columns)) < len(columns):
        raise PlanError(f"columns must be different names, got {shown(list(columns))}")
    return tuple(columns)


def arrow_format(columns: Any) -> ArrowFormat:
    """Return the format of ``from_arrow``.

    Raises:
        PlanError: An argument is invalid.
    """
    return ArrowFormat(columns=_columns(columns))
