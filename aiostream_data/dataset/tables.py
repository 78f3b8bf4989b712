"""Data sets of files with a directory of row groups: one inner data set per file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiostream_data.arguments import flag, integer, numpy_dtype, shown
from aiostream_data.dataset.chain import Chain
from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import OnError, source_policy_of
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.declared_types import checked_types
from aiostream_data.formats.hdf5 import Hdf5Format
from aiostream_data.formats.npy import NpyFormat
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.parquet_filters import checked_filters
from aiostream_data.formats.tokens import TokensFormat
from aiostream_data.plan.sources import Range
from aiostream_data.plan.tables import FilesToken, ReadsFile, TableFormatLike


@dataclass(frozen=True)
class RowsOf(ReadsFile):
    """Function from the URL of a file to the data set of its rows. Picklable.

    Attributes:
        format: Format of the file.
        storage_options: Options of the store, which may be secret.
        files: Token of the data set; see :class:`.plan.tables.TableFile`.
    """

    format: TableFormatLike
    storage_options: Mapping[str, Any] = field(repr=False)
    files: FilesToken = field(default_factory=FilesToken, repr=False, compare=False)

    def __call__(self, url: str) -> Any:
        if isinstance(self.format, ParquetFormat) and self.format.excludes(url):
            return Chain(Range.of(0, 0, None))
        return Chain(self.node(url, self.format, self.storage_options, self.files))


def rows_of(format: TableFormatLike, storage_options: Mapping[str, Any] | None, on_error: Any) -> RowsOf:
    """Return the function that reads a file of the format.

    Raises:
        PlanError: The error policy is invalid.
    """
    return RowsOf(format, dict(storage_options or {}), on_error=checked_policy(on_error))


def checked_policy(on_error: Any) -> OnError:
    """Check an error policy of a source; None stays None."""
    return None if on_error is None else source_policy_of(on_error)


def parquet_format(columns: Any, filters: Any, partitions: Any, schema: Any) -> ParquetFormat:
    """Return the format of ``from_parquet``.

    Raises:
        PlanError: An argument is invalid.
    """
    return ParquetFormat(
        columns=column_names("columns", columns),
        filters=checked_filters(filters),
        partitions=flag("partitions", partitions),
        declared=checked_types(schema),
    )


def column_names(argument: str, given: Any) -> tuple[str, ...] | None:
    """Check a list of names of columns; None stands for all of them."""
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or not given:
        raise PlanError(f"{argument} must be a list of names, got {shown(given)}")
    if not all(isinstance(name, str) and name for name in given) or len(set(given)) < len(given):
        raise PlanError(f"{argument} must be different names, got {shown(list(given))}")
    return tuple(given)


def arrow_format(columns: Any, schema: Any) -> ArrowFormat:
    """Return the format of ``from_arrow``.

    Raises:
        PlanError: An argument is invalid.
    """
    return ArrowFormat(columns=column_names("columns", columns), declared=checked_types(schema))


def npy_format(fields: Any) -> NpyFormat:
    """Return the format of ``from_npy``.

    Raises:
        PlanError: An argument is invalid.
    """
    return NpyFormat(fields=column_names("fields", fields))


def hdf5_format(fields: Any) -> Hdf5Format:
    """Return the format of ``from_hdf5``.

    Raises:
        PlanError: An argument is invalid.
    """
    return Hdf5Format(fields=column_names("fields", fields))


def tokens_format(length: Any, stride: Any, dtype: Any, header_nbytes: Any) -> TokensFormat:
    """Return the format of ``from_tokens``.

    Raises:
        PlanError: An argument is invalid.
    """
    found = numpy_dtype("dtype", dtype, "a dtype of integers")
    if found.kind not in "iu":
        raise PlanError(f"dtype must be a dtype of integers, got {found}")
    tokens = integer("length", length, 1)
    step = tokens if stride is None else integer("stride", stride, 1)
    start = integer("header_nbytes", header_nbytes, 0)
    return TokensFormat(length=tokens, stride=step, dtype=found.str, header_nbytes=start)
