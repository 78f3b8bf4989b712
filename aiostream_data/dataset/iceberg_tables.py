"""Iceberg tables: the library pyiceberg reads the metadata of one snapshot, with its data files, deletes and schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiostream_data.arguments import shown
from aiostream_data.dataset.iceberg_equality import EqualityDeletes
from aiostream_data.dataset.iceberg_files import PartitionValues, PositionDeletes, keyed_field
from aiostream_data.dataset.table_snapshots import DataFile, Snapshot
from aiostream_data.errors import (
    AiostreamError,
    ArgumentTypeError,
    MissingExtraError,
    NoMatchError,
    PlanError,
    TableSnapshotError,
)
from aiostream_data.formats.arrow_rows import load_pyarrow
from aiostream_data.redaction import hiding
from aiostream_data.storage.urls import split_url

_EMPTY: Final = 0
"""Number of the version of a table without snapshots. No snapshot has it."""

_URLS: Final = ("uri", "warehouse")
_S3_OPTIONS: Final = {
    "s3.endpoint": "endpoint_url",
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
}


@dataclass(frozen=True, kw_only=True)
class IcebergTable:
    """Reference to an Iceberg table. Picklable.

    Attributes:
        name: Name of the table.
        catalog: Properties of the catalog, or its name in the configuration of pyiceberg; None for ``location``.
        location: URL of the metadata file of a loaded table, or None.
        properties: Properties for reading the metadata file, which may be secret.
        newest: Number of the current snapshot of a loaded table.
        newest_schema: Number of its current schema.
        storage_options: Options of the store, which may be secret; None to derive them from the properties.
    """

    name: str
    catalog: Mapping[str, str] | str | None = field(default=None, repr=False)
    location: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    newest: int | None = None
    newest_schema: int | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, table: Any, catalog: Any, storage_options: Any) -> IcebergTable:
        """Check the arguments of ``from_iceberg``.

        Raises:
            PlanError: An argument is invalid.
        """
        options = None if storage_options is None else dict(storage_options)
        if isinstance(table, str) and table:
            if not isinstance(catalog, (str, Mapping)):
                raise ArgumentTypeError(
                    f"catalog must be the properties or the name of a catalog of pyiceberg, got {shown(catalog)}"
                )
            found = catalog if isinstance(catalog, str) else dict(catalog)
            return cls(name=table, catalog=found, storage_options=options)
        if not isinstance(getattr(table, "metadata_location", None), str):
            raise ArgumentTypeError(f"table must be a Table of pyiceberg or the name of one, got {shown(table)}")
        if catalog is not None:
            raise PlanError("catalog must be None for a Table of pyiceberg, which is loaded already")
        current = table.metadata.current_snapshot()
        return cls(
            name=".".join(table.name()),
            location=table.metadata_location,
            properties=dict(table.io.properties),
            newest=_EMPTY if current is None else current.snapshot_id,
            newest_schema=table.metadata.current_schema_id,
            storage_options=options,
        )

    @property
    def method(self) -> str:
        return "from_iceberg"

    @property
    def kind(self) -> str:
        return "iceberg"

    def snapshot(self, version: int | None, schema_id: int | None) -> Snapshot:
        """See :class:`.VersionedTable`."""
        pyarrow = load_pyarrow("parquet", "Iceberg", "iceberg")
        library = _pyiceberg()
        given = dict(self.catalog) if isinstance(self.catalog, Mapping) else dict(self.properties)
        urls = [given.pop(name) for name in _URLS if name in given]
        secrets = {name: value for name, value in given.items() if name not in ("name", "type")}
        with hiding(secrets, *urls), self._explained(library), self._loaded(library) as table:
            number, schema = self._chosen(table, version, schema_id)
            metadata, io = table.metadata, table.io
            names = dict(_mapped_names(metadata.name_mapping() or ()))
            keyed = self._keyed(library, pyarrow, schema, names)
            equal = EqualityDeletes(pyarrow, self.name, metadata, io, names)
            tasks = [] if number == _EMPTY else self._tasks(library, table, number, equal)
            deletes = PositionDeletes(pyarrow, self.name, io)
            columns = {each.field_id: each.name for each in schema.fields}
            constants = PartitionValues(pyarrow, self.name, metadata, keyed, columns)
            files = [self._file(task, constants, deletes, equal) for task in tasks]
            options = _options_of(table.io.properties) if self.storage_options is None else self.storage_options
        return Snapshot(version=number, schema_id=schema.schema_id, schema=keyed, files=files, storage_options=options)

    @contextmanager
    def _loaded(self, library: Any) -> Iterator[Any]:
        if self.location is not None:
            yield library.table.StaticTable.from_metadata(self.location, dict(self.properties))
            return
        properties = {"name": self.catalog} if isinstance(self.catalog, str) else dict(self.catalog or {})
        catalog = library.catalog.load_catalog(properties.pop("name", None), **properties)
        try:
            yield catalog.load_table(self.name)
        finally:
            catalog.close()

    def _chosen(self, table: Any, version: int | None, schema_id: int | None) -> tuple[int, Any]:
        """Return the number of the snapshot and its schema.

        The newest snapshot has the current schema of the table, and an older one its own, as in pyiceberg.
        """
        metadata = table.metadata
        if version is None:
            current = metadata.current_snapshot()
            newest = _EMPTY if current is None else current.snapshot_id
            number = newest if self.newest is None else self.newest
            wanted = metadata.current_schema_id if self.newest_schema is None else self.newest_schema
        else:
            number = version
            snapshot = None if number == _EMPTY else metadata.snapshot_by_id(number)
            if number != _EMPTY and snapshot is None:
                raise self._error("", f"there is no snapshot {number}. It may have expired")
            of_snapshot = metadata.current_schema_id if snapshot is None else snapshot.schema_id
            wanted = of_snapshot if schema_id is None else schema_id
        found = [each for each in metadata.schemas if each.schema_id == wanted]
        if not found:
            raise self._error("", f"the metadata has no schema {wanted}, which snapshot {number} needs")
        return number, found[0]

    def _tasks(self, library: Any, table: Any, number: int, equal: EqualityDeletes) -> Sequence[Any]:
        """Return the data files with their position deletes, and register the equality deletes."""
        manifests = table.metadata.snapshot_by_id(number).manifests(table.io)
        planner = library.table.ManifestGroupPlanner(table.metadata, table.io)  # a scan refuses equality deletes
        return list(planner.plan_files(manifests, equal.add))

    def _file(
        self, task: Any, constants: PartitionValues, deletes: PositionDeletes, equal: EqualityDeletes
    ) -> DataFile:
        file = task.file
        if file.file_format.value != "PARQUET":
            raise self._error(f"{file.file_format.value} files", f"{file.file_path} is not a Parquet file")
        if file.key_metadata is not None:
            raise self._error("encryption", f"{file.file_path} is encrypted")
        scheme, path = split_url(file.file_path)
        return DataFile(
            url=path if scheme == "file" else f"{scheme}://{path}",
            nbytes=file.file_size_in_bytes,
            constants=constants.of(file),
            deleted=deletes.of(file, task.delete_files),
            deleted_keys=equal.of(file),
        )

    def _keyed(self, library: Any, pyarrow: Any, schema: Any, names: Mapping[int, Sequence[str]]) -> Any:
        """Return the Arrow schema with ids and defaults of the columns, and their names in files without ids."""
        try:
            found = library.io.pyarrow.schema_to_pyarrow(schema)
        except (NotImplementedError, TypeError) as error:
            raise self._error("types", f"pyiceberg cannot convert the schema to Arrow: {error}") from error
        return pyarrow.schema([keyed_field(pyarrow, self.name, schema, names, each) for each in found])

    @contextmanager
    def _explained(self, library: Any) -> Iterator[None]:
        """Raise errors of pyiceberg, and of the drivers of catalogs, as errors of this package."""
        missing = (library.exceptions.NoSuchTableError, library.exceptions.NoSuchNamespaceError)
        try:
            yield
        except AiostreamError:
            raise
        except missing as error:
            raise NoMatchError(self.name, "the catalog has no such table") from error
        except Exception as error:
            text = " ".join(str(error).split())
            raise self._error("", f"pyiceberg cannot read the metadata: {text}") from error

    def _error(self, feature: str, reason: str) -> TableSnapshotError:
        return TableSnapshotError(self.name, feature, reason)


def _mapped_names(fields: Any) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the ids and names of a name mapping."""
    for each in fields:
        if each.field_id is not None:
            yield each.field_id, each.names
        yield from _mapped_names(each.fields)


def _options_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return storage options from the properties with which pyiceberg reads the table."""
    found: dict[str, Any] = {name: properties[each] for each, name in _S3_OPTIONS.items() if properties.get(each)}
    if properties.get("s3.region"):
        found["client_kwargs"] = {"region_name": properties["s3.region"]}
    return found


def _pyiceberg() -> Any:
    try:
        import pyiceberg.catalog
        import pyiceberg.exceptions
        import pyiceberg.io.pyarrow
        import pyiceberg.table
    except ImportError as error:
        raise MissingExtraError("Iceberg tables need the extra: pip install 'aiostream-data[iceberg]'") from error
    return pyiceberg
