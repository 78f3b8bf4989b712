"""What the metadata of an Iceberg table tells about a data file: partition values, and deleted rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.dataset.deletion_vectors import DamagedVectorError, rows_of_vector
from aiostream_data.dataset.iceberg_vectors import vectors_in
from aiostream_data.errors import TableSnapshotError
from aiostream_data.formats.arrow_rows import load_pyarrow
from aiostream_data.formats.table_columns import DEFAULT, KEY, NAMES, default, key_by_id, with_inner_fields


class PartitionValues:
    """Values of columns that are the same in all rows of a file, because the table is partitioned by them.

    Args:
        pyarrow: The module.
        table: Name of the table, for error messages.
        metadata: Metadata of the table.
        schema: Arrow schema of the columns.
        names: Names of the columns by their field ids.
    """

    def __init__(self, pyarrow: Any, table: str, metadata: Any, schema: Any, names: Mapping[int, str]) -> None:
        self._pyarrow = pyarrow
        self._table = table
        self._types = dict(zip(schema.names, schema.types, strict=True))
        self._places = {number: list(_places(spec, names)) for number, spec in metadata.specs().items()}

    def of(self, file: Any) -> tuple[tuple[str, Any], ...]:
        """Return the names and values of the columns.

        Raises:
            TableSnapshotError: A value does not have the type of its column.
        """
        return tuple((name, self._checked(name, file.partition[at])) for at, name in self._places[file.spec_id])

    def _checked(self, name: str, value: Any) -> Any:
        try:
            return None if value is None else self._pyarrow.scalar(value, self._types[name]).as_py()
        except (self._pyarrow.ArrowException, TypeError, ValueError) as error:
            reason = f"the partition value of column {name!r} is no {self._types[name]}: {error}"
            raise TableSnapshotError(self._table, "", reason) from error


def _places(spec: Any, names: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield the places of the partition values that are values of columns, with the names of the columns."""
    for at, part in enumerate(spec.fields):
        if str(part.transform) == "identity" and part.source_id in names:
            yield at, names[part.source_id]


class PositionDeletes:
    """Rows that position deletes and deletion vectors remove. Each delete file is read once.

    Args:
        pyarrow: The module.
        table: Name of the table, for error messages.
        io: Reads the delete files.
    """

    def __init__(self, pyarrow: Any, table: str, io: Any) -> None:
        self._pyarrow = pyarrow
        self._table = table
        self._io = io
        self._read: dict[str, Any] = {}

    def of(self, file: Any, delete_files: Collection[Any]) -> bytes:
        """Return the deleted rows of a data file; see :class:`.SnapshotFormat`.

        Raises:
            TableSnapshotError: A delete file is damaged, or of an unsupported kind.
        """
        if not delete_files:
            return b""
        parts = [self._positions(each, file) for each in delete_files]
        return np.unique(np.concatenate(parts)).astype(np.int64).tobytes()

    def _positions(self, delete_file: Any, file: Any) -> NDArray[np.int64]:
        if delete_file.file_format.value == "PUFFIN":
            return self._positions_of_vector(delete_file.file_path, file)
        path, url = delete_file.file_path, file.file_path
        if path not in self._read:
            self._read[path] = self._table_of(delete_file)
        deletes = self._read[path]
        mask = load_pyarrow("compute", "Iceberg", "iceberg").compute.equal(deletes.column("file_path"), url)
        found: NDArray[np.int64] = deletes.column("pos").filter(mask).to_numpy()
        return found

    def _positions_of_vector(self, path: str, file: Any) -> NDArray[np.int64]:
        try:
            if path not in self._read:
                with self._io.new_input(path).open() as opened:
                    self._read[path] = vectors_in(opened.read())
            vector = self._read[path].get(file.file_path)
            return np.empty(0, np.int64) if vector is None else rows_of_vector(vector, file.record_count)
        except DamagedVectorError as error:
            reason = f"the deletion vectors in {path} cannot be read: {error}"
            raise TableSnapshotError(self._table, "", reason) from error

    def _table_of(self, delete_file: Any) -> Any:
        path, kind, columns = delete_file.file_path, delete_file.file_format.value, ["file_path", "pos"]
        if kind not in ("PARQUET", "ORC"):
            reason = f"{path} is not supported. Compact the table"
            raise TableSnapshotError(self._table, f"position deletes in {kind} files", reason)
        try:
            with self._io.new_input(path).open() as file:
                if kind == "PARQUET":
                    return self._pyarrow.parquet.read_table(file, columns=columns)
                found = load_pyarrow("orc", "Iceberg", "iceberg").orc.ORCFile(file).read(columns)
                return found.cast(self._pyarrow.schema([("file_path", "string"), ("pos", "int64")]))
        except (self._pyarrow.ArrowException, KeyError, OSError, ValueError) as error:
            raise TableSnapshotError(self._table, "", f"the delete file {path} cannot be read: {error}") from error


def keyed_field(pyarrow: Any, table: str, schema: Any, names: Mapping[int, Sequence[str]], found: Any) -> Any:
    """Return a field of an Arrow schema with the key and the default of its column; see :mod:`.table_columns`.

    Args:
        pyarrow: The module.
        table: Name of the table, for error messages.
        schema: Schema of the table that has the column.
        names: Names of the columns in files without field ids, by their field ids.
        found: The field, as pyiceberg converts it.

    Raises:
        TableSnapshotError: The default of a column is not supported.
    """
    kind, number = found.type, int(found.metadata[b"PARQUET:field_id"])
    kind = with_inner_fields(pyarrow, kind, lambda each: keyed_field(pyarrow, table, schema, names, each))
    metadata = {KEY: key_by_id(number).encode()}
    if number in names:
        metadata[NAMES] = "\n".join(names[number]).encode()
    value = schema.find_field(number).initial_default
    if value is not None:
        storage = kind.storage_type if isinstance(kind, pyarrow.BaseExtensionType) else kind
        try:
            metadata[DEFAULT] = default(pyarrow, value, storage)
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            reason = f"the default of column {found.name!r} is no {kind}: {error}"
            raise TableSnapshotError(table, "default values", reason) from error
    return pyarrow.field(found.name, kind, found.nullable, metadata)
