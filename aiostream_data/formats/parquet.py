"""Parquet files, decoded by PyArrow: only the footer and the wanted columns of the wanted row groups are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiostream_data.formats.column_paths import top_of
from aiostream_data.formats.declared_types import Declared
from aiostream_data.formats.hive_partitions import open_filters, partitions_of
from aiostream_data.formats.parquet_directory import ParquetDirectory, read_footer
from aiostream_data.formats.parquet_filters import Filters
from aiostream_data.formats.parquet_partitions import PartitionedDirectory
from aiostream_data.formats.row_groups import Directory, Steps


@dataclass(frozen=True, kw_only=True)
class ParquetFormat:
    """Format of Parquet files.

    Attributes:
        columns: Names of the columns to read, in the order of the elements; None for all columns. ``a.b`` selects the
            field ``b`` of the struct ``a``.
        filters: Conditions on columns, in disjunctive normal form; see :data:`.parquet_filters.Filters`.
        partitions: True to add the ``name=value`` parts of the URL as text columns: those that ``columns`` names, or
            all of them if it names none.
        declared: Types to which columns are converted, before filters are applied.
    """

    columns: tuple[str, ...] | None = None
    filters: Filters = ()
    partitions: bool = False
    declared: Declared = ()

    @property
    def name(self) -> str:
        return "parquet"

    def directory(self, url: str, nbytes: int) -> Steps[Directory]:
        stored = yield from read_footer(url, nbytes)
        values = self._values_of(url)
        if values:
            return self._partitioned(stored, values)
        return stored.selecting(self.columns, self.filters, declared=self.declared).listed()

    def excludes(self, url: str) -> bool:
        """Return True if the partitions in the URL exclude all rows, so that the file need not be read.

        Raises:
            PlanError: A partition is compared with a value that is not text.
        """
        return open_filters(self.filters, self._values_of(url)) is None

    def _values_of(self, url: str) -> dict[str, str | None]:
        return partitions_of(url) if self.partitions else {}

    def _partitioned(self, stored: ParquetDirectory, values: Mapping[str, str | None]) -> Directory:
        """Return the directory of a file with partitions, which replace columns of the same names."""
        names = stored.schema.names
        kept = [name for name in names if name not in values]
        paths = kept if self.columns is None else [name for name in self.columns if name not in values]
        is_whole = self.columns is None and len(kept) == len(names)
        filters = open_filters(self.filters, values)
        read = None if is_whole else tuple(paths)
        selected = stored.selecting(read, filters or (), tuple(values), self.declared).listed()
        named = paths if self.columns is None else self.columns
        wanted = [name for name in values if name in named] or list(values)
        order = [name if name in values else top_of(name, names) for name in (*named, *wanted)]
        found = {name: values[name] for name in wanted}
        return PartitionedDirectory(selected, found, tuple(dict.fromkeys(order)), is_excluded=filters is None)
