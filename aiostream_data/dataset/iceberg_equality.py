"""Equality deletes of Iceberg tables: each delete file has the values of some columns, and deletes all equal rows.

A delete file concerns the data files with smaller sequence numbers, in its partition or in the whole table. Delete
files with the same columns and the same partition become one :class:`.DeletedKeys`, which their data files share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np

from aiostream_data.dataset.iceberg_files import PartitionValues, keyed_field
from aiostream_data.errors import TableSchemaError, TableSnapshotError
from aiostream_data.formats.deleted_keys import DeletedKeys, FileKeys
from aiostream_data.formats.parquet_texts import repeated_nbytes
from aiostream_data.formats.table_columns import FileColumns

MOST_KEYS: Final = 1 << 25
"""Maximum number of keys in the equality deletes of a snapshot."""

MOST_NBYTES: Final = 1 << 30
"""Maximum size of these keys in memory, in bytes."""

_BATCH_ROWS: Final = 1 << 16
_FEATURE: Final = "equality deletes"
_FIELD_ID: Final = b"PARQUET:field_id"


class _DeleteFile(NamedTuple):
    """A delete file, and its sequence number."""

    file: Any
    sequence: int


class _KeyColumns(NamedTuple):
    """Columns of keys.

    Attributes:
        ids: Field ids of the columns.
        schema: Arrow schema; see :class:`.DeletedKeys`. The names are the field ids.
        constants: Values of the columns that partitions determine.
    """

    ids: tuple[int, ...]
    schema: Any
    constants: PartitionValues


class EqualityDeletes:
    """Equality deletes of one snapshot. Each delete file is read once.

    Args:
        pyarrow: The module.
        table: Name of the table, for error messages.
        metadata: Metadata of the table.
        io: Reads the delete files.
        names: Names of the columns in files without field ids, by their field ids.
    """

    def __init__(self, pyarrow: Any, table: str, metadata: Any, io: Any, names: Mapping[int, Sequence[str]]) -> None:
        self._pyarrow = pyarrow
        self._table = table
        self._metadata = metadata
        self._io = io
        self._names = names
        self._sequences: dict[str, int] = {}
        self._files: dict[object, dict[tuple[int, ...], list[_DeleteFile]]] = {}
        self._room = _Room(table)
        self._columns = cache(self._find_columns)
        self._loaded = cache(self._load)

    def add(self, entry: Any) -> bool:
        """Record what a manifest says of one file. Return False if the file has equality deletes, else True.

        Raises:
            TableSnapshotError: The equality deletes are of an unsupported kind.
        """
        file, sequence = entry.data_file, entry.sequence_number or 0
        if file.content.name == "EQUALITY_DELETES":
            ids = tuple(sorted(set(file.equality_ids or ())))
            self._check(file, ids)
            of_scope = self._files.setdefault(self._scope(file), defaultdict(list))
            of_scope[ids].append(_DeleteFile(file, sequence))
            return False
        if file.content.name == "DATA":
            self._sequences[file.file_path] = sequence
        return True

    def of(self, file: Any) -> tuple[FileKeys, ...]:
        """Return the deleted keys that concern a data file.

        Raises:
            TableSnapshotError: A delete file is damaged, or of an unsupported kind, or there are too many keys.
        """
        sequence, found = self._sequences.get(file.file_path, 0), []
        for scope in dict.fromkeys((None, self._scope(file))):
            for ids, files in self._files.get(scope, {}).items():
                keys = self._loaded(scope, ids) if any(each.sequence > sequence for each in files) else None
                if keys is not None:
                    found.append(FileKeys(keys, sequence, self._columns(ids).constants.of(file)))
        return tuple(found)

    def _scope(self, file: Any) -> object:
        """Return the partition of a file; None for all partitions."""
        spec = self._metadata.specs()[file.spec_id]
        if all(str(each.transform) == "void" for each in spec.fields):
            return None
        return file.spec_id, *(repr(file.partition[at]) for at in range(len(spec.fields)))  # NaN equals NaN

    def _check(self, file: Any, ids: Sequence[int]) -> None:
        kind = file.file_format.value
        if kind != "PARQUET":
            raise TableSnapshotError(
                self._table, f"{_FEATURE} in {kind} files", f"{file.file_path} is not supported. Compact the table"
            )
        if file.key_metadata is not None:
            raise TableSnapshotError(self._table, "encryption", f"{file.file_path} is encrypted")
        if not ids:
            raise self._error(f"the metadata of {file.file_path} names no columns")

    def _load(self, scope: object, ids: tuple[int, ...]) -> DeletedKeys | None:
        from pyiceberg.utils.concurrent import ExecutorFactory

        columns, oldest = self._columns(ids), min(self._sequences.values())
        files = [each for each in self._files[scope][ids] if each.sequence > oldest]
        read = ExecutorFactory.get_or_create().map(lambda each: self._keys(each.file, columns), files)
        tables = list(read)
        keys = self._pyarrow.concat_tables(tables)
        sequences = np.repeat([each.sequence for each in files], [len(each) for each in tables])
        try:
            return DeletedKeys.of(self._pyarrow, keys, sequences) if len(keys) else None
        except self._pyarrow.ArrowException as error:
            raise self._error(f"columns of these types cannot be compared: {error}") from error

    def _keys(self, file: Any, columns: _KeyColumns) -> Any:
        path, parquet = file.file_path, self._pyarrow.parquet
        try:
            with self._io.new_input(path).open() as opened:
                metadata = parquet.read_metadata(opened)
                leaves = map(metadata.schema.column, range(len(metadata.schema)))
                texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
                schema = metadata.schema.to_arrow_schema()
                self._check_ids(path, columns.ids, schema)
                found = FileColumns(self._pyarrow, path, columns.schema, {}, schema)
                stored = parquet.ParquetFile(opened, metadata=metadata, read_dictionary=texts)
                batches = stored.iter_batches(_BATCH_ROWS, columns=list(found.paths))
                tables = [columns.schema.empty_table(), *(self._converted(found, each) for each in batches)]
                return self._pyarrow.concat_tables(tables)
        except TableSnapshotError:
            raise
        except (self._pyarrow.ArrowException, TableSchemaError, OSError, ValueError) as error:
            raise TableSnapshotError(self._table, "", f"the delete file {path} cannot be read: {error}") from error

    def _converted(self, columns: FileColumns, batch: Any) -> Any:
        self._room.take(len(batch), sum(map(_decoded_nbytes, batch.columns)))
        return columns.of(self._pyarrow.Table.from_batches([batch]), len(batch))

    def _check_ids(self, path: str, ids: Sequence[int], stored: Any) -> None:
        known = set(_ids_in(stored))
        lacking = [each for each in ids if each not in known]
        if lacking:
            raise self._error(f"the delete file {path} lacks the column with the field id {lacking[0]}")

    def _find_columns(self, ids: tuple[int, ...]) -> _KeyColumns:
        pyarrow, metadata = self._pyarrow, self._metadata
        schema = pyarrow.schema([self._key_column(each) for each in ids])
        names = {int(each.name): each.name for each in schema if not pyarrow.types.is_struct(each.type)}
        return _KeyColumns(ids, schema, PartitionValues(pyarrow, self._table, metadata, schema, names))

    def _key_column(self, number: int) -> Any:
        """Return the column with a field id, of the newest schema that has it: the column may have been dropped."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.schema import prune_columns

        schemas = [each for each in self._metadata.schemas if number in each.field_ids]
        if not schemas:
            raise self._error(f"they name the field id {number}, which no schema of the table has")
        schema = max(schemas, key=lambda each: each.schema_id)
        name = schema.find_column_name(number)
        if not schema.find_field(number).field_type.is_primitive:
            raise self._error(f"they compare column {name!r}, which is nested")
        (found,) = schema_to_pyarrow(prune_columns(schema, {number}, select_full_types=False))
        names = {each: self._names.get(each, ()) for each in schema.field_ids} if self._names else {}
        keyed = keyed_field(self._pyarrow, self._table, schema, names, found)
        return self._nullable(keyed, name).with_name(str(number))

    def _nullable(self, found: Any, name: str) -> Any:
        """Return a field that may be null, with a type that PyArrow can compare."""
        kind, types = found.type, self._pyarrow.types
        if types.is_struct(kind):
            kind = self._pyarrow.struct([self._nullable(each, name) for each in kind])
        elif types.is_nested(kind):
            raise self._error(f"they compare {name!r}, which is part of a list or map")
        kind = kind.storage_type if isinstance(kind, self._pyarrow.BaseExtensionType) else kind
        return found.with_type(kind).with_nullable(True)

    def _error(self, reason: str) -> TableSnapshotError:
        return TableSnapshotError(self._table, _FEATURE, reason)


class _Room:
    """Bound of the memory for keys. Thread-safe."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._lock = Lock()
        self._rows, self._nbytes = MOST_KEYS, MOST_NBYTES

    def take(self, rows: int, nbytes: int) -> None:
        with self._lock:
            self._rows, self._nbytes = self._rows - rows, self._nbytes - nbytes
            if min(self._rows, self._nbytes) < 0:
                reason = f"they have more than {MOST_KEYS} keys, or {MOST_NBYTES} bytes of keys. Compact the table"
                raise TableSnapshotError(self._table, _FEATURE, reason)


def _decoded_nbytes(array: Any) -> int:
    """Return the memory of an array in bytes, if each value is stored once per row."""
    from pyarrow import types

    if types.is_struct(array.type):
        return sum(map(_decoded_nbytes, array.flatten()))
    if not types.is_dictionary(array.type):
        return int(array.nbytes)
    return 8 * len(array) + repeated_nbytes(array)


def _ids_in(fields: Any) -> Iterator[int]:
    """Yield the field ids of an Arrow schema or struct."""
    from pyarrow import types

    for each in fields:
        if _FIELD_ID in (each.metadata or {}):
            yield int(each.metadata[_FIELD_ID])
        if types.is_struct(each.type):
            yield from _ids_in(each.type)
