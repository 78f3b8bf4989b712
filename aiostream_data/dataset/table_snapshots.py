"""Datasets of one version of a table, such as Delta and Iceberg: find its data files when a dataset is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, Protocol, cast

from aiostream_data.arguments import integer
from aiostream_data.dataset.chain import Chain
from aiostream_data.dataset.tables import checked_policy, column_names
from aiostream_data.errors import TableSnapshotError
from aiostream_data.formats.arrow_rows import load_pyarrow
from aiostream_data.formats.deleted_keys import FileKeys
from aiostream_data.formats.parquet_filters import Filters, checked_filters, open_alternatives
from aiostream_data.formats.snapshot_files import SnapshotFormat
from aiostream_data.formats.table_columns import one_row, selected
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Interleave
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.snapshots import SnapshotFiles
from aiostream_data.plan.tables import FilesToken, ReadsFile
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import ShardTable


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One data file of a version.

    Attributes:
        url: URL of the file, or path of a local file.
        nbytes: Size in bytes.
        constants: Names and values of columns that are the same in all rows.
        deleted: Deleted rows; see :class:`.SnapshotFormat`.
        deleted_keys: Keys whose rows are deleted.
    """

    url: str
    nbytes: int | None
    constants: tuple[tuple[str, Any], ...] = ()
    deleted: bytes = b""
    deleted_keys: tuple[FileKeys, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One version of a table.

    Attributes:
        version: Number of the version.
        schema_id: Number of the schema, if the version can be read with several.
        schema: Arrow schema of the table; see :mod:`.table_columns`.
        files: The data files.
        storage_options: Options for reading the files.
    """

    version: int
    schema_id: int | None = None
    schema: Any
    files: Sequence[DataFile]
    storage_options: Mapping[str, Any] = field(repr=False)


class VersionedTable(Protocol):
    """Reference to a table. Frozen and picklable."""

    @property
    def name(self) -> str:
        """URL or name of the table, without secrets."""

    @property
    def method(self) -> str:
        """Constructor of :class:`Dataset` that reads the table, such as ``from_delta``."""

    @property
    def kind(self) -> str:
        """Kind of the table: ``delta`` or ``iceberg``."""

    def snapshot(self, version: int | None, schema_id: int | None) -> Snapshot:
        """Load a version of the table. Blocks.

        Args:
            version: Number of the version; None is the newest one.
            schema_id: Number of the schema; None is the schema that the library chooses.

        Raises:
            TableSnapshotError: The version does not exist, or cannot be read exactly.
            MissingExtraError: The library is not installed.
        """


class _Files:
    """Formats of data files by URL. Many files share one format."""

    def __init__(self, common: SnapshotFormat, special: Mapping[str, SnapshotFormat]) -> None:
        self._common = common
        self._special = special

    def format_of(self, url: str) -> SnapshotFormat:
        return self._special.get(url, self._common)


@dataclass(frozen=True)
class RowsOfSnapshot(ReadsFile):
    """Function from the URL of a data file to the data set of its rows. Picklable.

    Attributes:
        columns: Names of the columns to read, in order; None for all columns.
        filters: Conditions on columns.
        files: The data files; None until ``open()`` has found them.
        storage_options: Options of the store, which may be secret.
        token: Token of the data set; see :class:`.plan.tables.TableFile`.
    """

    columns: tuple[str, ...] | None
    filters: Filters
    files: _Files | None = field(default=None, repr=False, compare=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    token: FilesToken = field(default_factory=FilesToken, repr=False, compare=False)

    def __call__(self, url: str) -> Any:
        assert self.files is not None, "SnapshotFiles emits no URL before its files are found"
        format = self.files.format_of(url)
        return Chain(self.node(url, format, self.storage_options, self.token))


def snapshot_files(table: VersionedTable, argument: Literal["version", "snapshot_id"], version: Any) -> SnapshotFiles:
    """Return the plan node that emits the data files of a table.

    Raises:
        PlanError: The version is not an integer.
    """
    number = None if version is None else integer(argument, version, 0)
    return SnapshotFiles(
        patterns=(), storage_options={}, index_url=table.name, table=table, argument=argument, version=number
    )


def rows_of_snapshot(columns: Any, filters: Any, on_error: Any = None) -> RowsOfSnapshot:
    """Return the function that reads data files, before they are found.

    Raises:
        PlanError: An argument is invalid.
    """
    named, conditions = column_names("columns", columns), checked_filters(filters)
    return RowsOfSnapshot(named, conditions, on_error=checked_policy(on_error))


def with_snapshots(plan: Node) -> Node:
    """Return the plan with the data files of each ``from_delta()`` and ``from_iceberg()``. Blocks.

    Raises:
        TableSnapshotError: The version of a table does not exist, or cannot be read exactly.
        PlanError: A table has no column of this name.
        MissingExtraError: A library is not installed.
    """
    return replaced(plan, _with_snapshot)


def _with_snapshot(node: Node) -> Node | None:
    if not isinstance(node, Interleave) or not isinstance(node.function, RowsOfSnapshot):
        return None
    found = [each for each in walk(node) if isinstance(each, SnapshotFiles) and each.files is None]
    return _known(node, found[0]) if found else None


def _known(node: Interleave, source: SnapshotFiles) -> Interleave:
    table, rows = cast(VersionedTable, source.table), cast(RowsOfSnapshot, node.function)
    snapshot = table.snapshot(source.version, source.schema_id)
    common, names = _common_format(table, snapshot, rows)
    matching = _matching(snapshot, rows.filters)
    formats = {each.url: _format(common, names, each) for each in matching}
    urls = {each.url: each.nbytes for each in matching}
    if len(urls) < len(matching):
        raise TableSnapshotError(table.name, "", f"version {snapshot.version} lists a data file twice")
    shards = ShardTable.of(ShardRef(url, urls[url]) for url in sorted(urls))
    known = replace(
        source,
        files=shards,
        version=snapshot.version,
        schema_id=snapshot.schema_id,
        is_newest=source.version is None,
    )
    special = {url: format for url, format in formats.items() if format is not common}
    files = _Files(common, special)
    return replace(
        node,
        input=replaced(node.input, lambda each: known if each is source else None),
        function=replace(rows, files=files, storage_options=snapshot.storage_options),
    )


def _matching(snapshot: Snapshot, filters: Filters) -> Sequence[DataFile]:
    """Return the data files whose constant columns do not exclude all of their rows."""
    if not filters:
        return snapshot.files
    pyarrow = load_pyarrow("parquet", "Parquet", "parquet")

    @cache
    def may_match(constants: tuple[tuple[str, Any], ...]) -> bool:
        return bool(open_alternatives(filters, one_row(pyarrow, snapshot.schema, dict(constants))))

    return [each for each in snapshot.files if may_match(each.constants)]


def _common_format(
    table: VersionedTable, snapshot: Snapshot, rows: RowsOfSnapshot
) -> tuple[SnapshotFormat, frozenset[str]]:
    """Return the format of files without values of their own, and the names of the columns that are needed."""
    pyarrow = load_pyarrow("parquet", table.kind.capitalize(), table.kind)
    version = f"version {snapshot.version} of {table.name}"
    if not snapshot.schema.names:
        raise TableSnapshotError(table.name, "", f"version {snapshot.version} has no columns")
    wanted = snapshot.schema.names if rows.columns is None else rows.columns
    filtered = [condition[0] for part in rows.filters for condition in part]
    needed = selected(pyarrow, snapshot.schema, [*wanted, *filtered], version)
    common = SnapshotFormat(
        table=table.kind,
        version=version,
        schema=needed.serialize().to_pybytes(),
        columns=tuple(wanted),
        filters=rows.filters,
    )
    return common, frozenset(needed.names)


def _format(common: SnapshotFormat, names: Iterable[str], file: DataFile) -> SnapshotFormat:
    constants = tuple((name, value) for name, value in file.constants if name in names)
    if not constants and not file.deleted and not file.deleted_keys:
        return common
    return replace(common, constants=constants, deleted=file.deleted, deleted_keys=file.deleted_keys)
