"""Delta tables: the library deltalake reads the log of one version, with its data files and schema."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from aiostream_data.arguments import shown
from aiostream_data.dataset.delta_options import delta_options
from aiostream_data.dataset.delta_vectors import DeltaVectors
from aiostream_data.dataset.table_snapshots import DataFile, Snapshot
from aiostream_data.errors import ArgumentTypeError, MissingExtraError, NoMatchError, TableSnapshotError
from aiostream_data.formats.arrow_rows import load_pyarrow
from aiostream_data.formats.table_columns import KEY, key_by_id, key_by_name, with_inner_fields
from aiostream_data.object_names import object_name
from aiostream_data.redaction import hiding
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.urls import split_url

FEATURES: Final = frozenset(
    {"appendOnly", "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview"}
    | {"v2Checkpoint", "vacuumProtocolCheck"}
)
"""Reader features of Delta tables that are supported."""

_MOST_VERSION: Final = 3
"""Latest version of Delta's reader protocol."""

_PHYSICAL_NAME: Final = b"delta.columnMapping.physicalName"
_PHYSICAL_ID: Final = b"delta.columnMapping.id"
_PARTITION: Final = "partition."
_PANIC: Final = "PanicException"
"""Class of errors that code in Rust does not handle. It derives from BaseException, and no module contains it."""

_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class DeltaTable:
    """Reference to a Delta table. Picklable.

    Attributes:
        url: URL or path of the folder with ``_delta_log``.
        storage_options: Options of the store, which may be secret.
    """

    url: str = field(repr=False)
    storage_options: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, url: Any, storage_options: Any) -> DeltaTable:
        """Check the arguments of ``from_delta``.

        Raises:
            PlanError: An argument is invalid.
        """
        if not isinstance(url, (str, os.PathLike)) or not os.fspath(url):
            raise ArgumentTypeError(f"url must be the URL or path of the folder of one Delta table, got {shown(url)}")
        table = cls(os.fspath(url).rstrip("/") or "/", dict(storage_options or {}))
        delta_options(split_url(table.url).scheme, table.storage_options)
        return table

    @property
    def name(self) -> str:
        return object_name(self.url)

    @property
    def method(self) -> str:
        return "from_delta"

    @property
    def kind(self) -> str:
        return "delta"

    def snapshot(self, version: int | None, schema_id: int | None = None) -> Snapshot:
        """See :class:`.VersionedTable`."""
        library, pyarrow = _deltalake(), load_pyarrow("parquet", "Delta", "delta")
        scheme, path = split_url(self.url)
        options = delta_options(scheme, self.storage_options)
        root = os.path.abspath(path) if scheme == "file" else f"{scheme}://{path}"
        with hiding(options, self.url), self._explained(library):
            table = library.DeltaTable(root, version=version, storage_options=options or None)
            self._check_features(table.protocol())
            schema = pyarrow.schema(table.schema().to_arrow())
            mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
            actions = _without_statistics(pyarrow.table(table.get_add_actions(flatten=True))).to_pylist()
            deleted = self._deleted(pyarrow, table, root, actions) if _has_vectors(table) else {}
        files = [self._file(root, action, deleted.get(action["path"], b"")) for action in actions]
        for name in table.metadata().partition_columns:
            if pyarrow.types.is_binary(schema.field(name).type):
                raise self._error("", f"the partition column {name!r} is binary. deltalake cannot read its values")
        keyed = pyarrow.schema([self._keyed(pyarrow, each, mode) for each in schema])
        return Snapshot(version=table.version(), schema=keyed, files=files, storage_options=self.storage_options)

    def _check_features(self, protocol: Any) -> None:
        unknown = sorted(set(protocol.reader_features or ()) - FEATURES)
        if unknown:
            raise self._error(unknown[0], "it is not supported. Drop the feature, or write a copy of the table")
        if protocol.min_reader_version > _MOST_VERSION:
            raise self._error("", f"reader version {protocol.min_reader_version} of Delta is not supported")

    def _deleted(self, pyarrow: Any, table: Any, root: str, actions: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
        """Return the deleted rows of each data file by its path in the log, as :class:`.SnapshotFormat` stores them."""
        options = delta_options(split_url(self.url).scheme, self.storage_options)

        def files_below(folder: str) -> Any:
            from deltalake.fs import DeltaStorageHandler
            from pyarrow import fs

            return fs.PyFileSystem(DeltaStorageHandler(folder, options or None))

        def elsewhere(path: str) -> tuple[Any, str]:
            folder, _, name = self._url(root, path).rpartition("/")
            return files_below(folder), name

        vectors = DeltaVectors(pyarrow, self.url, files_below(root), elsewhere)
        rows = {action["path"]: action.get("num_records") for action in actions}
        return vectors.deleted(table.version(), rows)

    def _file(self, root: str, action: Mapping[str, Any], deleted: bytes) -> DataFile:
        constants = tuple(
            (name.removeprefix(_PARTITION), value) for name, value in action.items() if name.startswith(_PARTITION)
        )
        url = self._url(root, action["path"])
        return DataFile(url=url, nbytes=action["size_bytes"], constants=constants, deleted=deleted)

    def _url(self, root: str, encoded: str) -> str:
        """Return the URL or local path of a file that the log names."""
        path = unquote(encoded)
        if ".." in path.split("/"):
            raise self._error("", f"the log names the data file {shown(path)}, which is not below the table")
        url = path if "://" in path or path.startswith("/") else f"{root}/{path}"
        scheme, location = split_url(url)
        if scheme != split_url(root).scheme:
            raise self._error("", f"the log names the data file {shown(safe_url(url))} in another kind of store")
        return location if scheme == "file" else f"{scheme}://{location}"

    def _keyed(self, pyarrow: Any, found: Any, mode: str) -> Any:
        """Return a field of the schema with the name or id of the column in the files."""
        metadata = found.metadata or {}
        if mode == "none":
            key = key_by_name(found.name)
        elif mode == "name" and _PHYSICAL_NAME in metadata:
            key = key_by_name(metadata[_PHYSICAL_NAME].decode())
        elif mode == "id" and _PHYSICAL_ID in metadata:
            key = key_by_id(int(metadata[_PHYSICAL_ID]))
        else:
            raise self._error("columnMapping", f"column {found.name!r} has no entry for the mode {mode!r}")
        kind = self._keyed_type(pyarrow, found.type, mode)
        return pyarrow.field(found.name, kind, found.nullable, {KEY: key.encode()})

    def _keyed_type(self, pyarrow: Any, kind: Any, mode: str) -> Any:
        """Return a type with the names or ids of the fields of its structs; elements of lists and maps have none."""
        if pyarrow.types.is_struct(kind):
            return with_inner_fields(pyarrow, kind, lambda each: self._keyed(pyarrow, each, mode))
        return with_inner_fields(pyarrow, kind, lambda each: each.with_type(self._keyed_type(pyarrow, each.type, mode)))

    @contextmanager
    def _explained(self, library: Any) -> Iterator[None]:
        """Raise errors of deltalake as errors of this package."""
        errors = library.exceptions
        try:
            yield
        except errors.TableNotFoundError as error:
            raise NoMatchError(safe_url(self.url), "there is no Delta table: the folder has no _delta_log") from error
        except (errors.DeltaError, OSError, ValueError) as error:
            if isinstance(error, TableSnapshotError):
                raise
            raise self._unreadable(error) from error
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise self._unreadable(error) from error

    def _unreadable(self, error: BaseException) -> TableSnapshotError:
        text = " ".join(_COLORS.sub("", str(error)).split())
        return self._error("", f"deltalake cannot read the log: {text}")

    def _error(self, feature: str, reason: str) -> TableSnapshotError:
        return TableSnapshotError(self.url, feature, reason)


def _has_vectors(table: Any) -> bool:
    return "deletionVectors" in (table.protocol().reader_features or ())


def _without_statistics(actions: Any) -> Any:
    names = ["path", "size_bytes", "num_records"]
    return actions.select([name for name in actions.column_names if name in names or name.startswith(_PARTITION)])


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise MissingExtraError("Delta tables need the extra: pip install 'aiostream-data[delta]'") from error
    return deltalake
