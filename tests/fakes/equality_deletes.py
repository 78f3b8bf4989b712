"""Commit delete files to an Iceberg table, as Flink does. The library pyiceberg has no way to commit them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from iceberg_deletes import EQUALITY, DeletesWriter, deleting_snapshot
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, NestedField, StringType

__all__ = ["SCHEMA", "append", "commit_deletes", "delete_equal", "delete_file", "ints", "lake", "named_rows"]

_NUMBERS = count(1000)
SCHEMA = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()))


@contextmanager
def lake(folder: Path) -> Iterator[Any]:
    """Open a catalog in a folder."""
    uri = f"sqlite:///{folder}/catalog.db"
    opened = load_catalog("lake", type="sql", uri=uri, warehouse=f"file://{folder}/lake")
    opened.create_namespace("db")
    yield opened
    opened.close()


def named_rows(catalog: Any) -> Any:
    """Create a table of two files: ids 0 to 4 and no id, and then ids 3 to 7."""
    made = catalog.create_table("db.named", SCHEMA)
    append(made, [{"id": row, "name": f"n{row % 2}"} for row in range(5)] + [{"id": None, "name": None}])
    append(made, [{"id": row, "name": f"n{row % 2}"} for row in range(3, 8)])
    return made


def append(table: Any, rows: list[dict[str, Any]]) -> None:
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def ints(*values: int | None, kind: Any = None) -> pa.Table:
    return pa.table({"id": pa.array(values, kind or pa.int32())})


def delete_equal(table: Any, keys: pa.Table, ids: Sequence[int], **options: Any) -> int:
    """Delete the rows that equal a row of ``keys``. Return the sequence number of the deletes.

    Args:
        keys: Columns with the field ids ``ids``, in this order, and other columns.
    """
    return commit_deletes(table, delete_file(table, keys, ids), ids, **options)


def delete_file(table: Any, keys: pa.Table, ids: Sequence[int], **options: Any) -> str:
    """Write a delete file. Return its URL."""
    fields = [
        each.with_metadata({"PARQUET:field_id": str(ids[at])}) if at < len(ids) else each
        for at, each in enumerate(keys.schema)
    ]
    path = f"{table.metadata.location}/deletes-{next(_NUMBERS)}.parquet"
    keys = pa.Table.from_arrays(keys.columns, schema=pa.schema(fields))
    parquet.write_table(keys, path.removeprefix("file://"), **options)
    return path


def commit_deletes(
    table: Any,
    path: str,
    ids: Sequence[int] | None,
    *,
    spec_id: int | None = None,
    partition: Sequence[Any] = (),
    content: Any = EQUALITY,
    format: str = "PARQUET",
    **more: Any,
) -> int:
    """Commit a delete file to the table, and refresh the table. Return the sequence number of the deletes."""
    metadata, io, number = table.metadata, table.io, next(_NUMBERS)
    spec = metadata.spec() if spec_id is None else metadata.specs()[spec_id]
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat[format],
        partition=Record(*partition),
        record_count=1,
        file_size_in_bytes=1,
        equality_ids=ids,
        **more,
    )
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file)
    folder = f"{metadata.location}/metadata"
    output = io.new_output(f"{folder}/deletes-{number}.avro")
    manifest = ManifestWriterV2 if content == DataFileContent.DATA else DeletesWriter
    with manifest(spec, metadata.schema(), output, number, "null") as writer:
        writer.add_entry(entry)
    parent, sequence = metadata.current_snapshot(), metadata.last_sequence_number + 1
    listed = f"{folder}/snap-{number}.avro"
    with write_manifest_list(2, io.new_output(listed), number, parent.snapshot_id, sequence, "null") as lists:
        lists.add_manifests([*parent.manifests(io), writer.to_manifest_file()])
    snapshot = deleting_snapshot(metadata, number, listed)
    reference: Any = SetSnapshotRefUpdate
    updates = (AddSnapshotUpdate(snapshot=snapshot), reference(ref_name="main", type="branch", snapshot_id=number))
    table._do_commit(updates=updates, requirements=())
    return int(sequence)
