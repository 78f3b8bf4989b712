"""Add delete files to a snapshot of an Iceberg table, which pyiceberg reads but cannot write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

__all__ = ["EQUALITY", "POSITION", "DeletesWriter", "deleting_snapshot", "numbers_in_two_files", "with_deletes"]

POSITION = DataFileContent.POSITION_DELETES
EQUALITY = DataFileContent.EQUALITY_DELETES
_ID = 77


@contextmanager
def numbers_in_two_files(folder: Path) -> Iterator[Any]:
    """Open a table of two files: numbers 0 to 4, and numbers 5 to 9."""
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
    catalog.create_namespace("db")
    table = catalog.create_table("db.numbers", Schema(NestedField(1, "id", LongType())))
    for first in (0, 5):
        rows = [{"id": row} for row in range(first, first + 5)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    yield table
    catalog.close()


class DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def deleting_snapshot(metadata: Any, number: int, listed: str) -> Any:
    """Return a snapshot after the current one, with the manifests of the list ``listed``."""
    made: Any = Snapshot  # its arguments have other names for mypy
    return made(
        snapshot_id=number,
        parent_snapshot_id=metadata.current_snapshot_id,
        sequence_number=metadata.last_sequence_number + 1,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )


def with_deletes(table: Any, path: str, content: DataFileContent, format: str = "PARQUET", **more: Any) -> StaticTable:
    """Return a table with one more snapshot, which has the delete file ``path`` for an unpartitioned table."""
    metadata, io = table.metadata, table.io
    folder = f"{metadata.location}/metadata"
    sequence = metadata.last_sequence_number + 1
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat[format],
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        **more,
    )
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=_ID, data_file=file)
    output = io.new_output(f"{folder}/deletes-m0.avro")
    with DeletesWriter(metadata.spec(), metadata.schema(), output, _ID, "null") as writer:
        writer.add_entry(entry)
    listed = f"{folder}/snap-{_ID}.avro"
    parent = metadata.current_snapshot()
    with write_manifest_list(2, io.new_output(listed), _ID, parent.snapshot_id, sequence, "null") as lists:
        lists.add_manifests([*parent.manifests(io), writer.to_manifest_file()])
    snapshot = deleting_snapshot(metadata, _ID, listed)
    main = metadata.refs["main"].model_copy(update={"snapshot_id": _ID})
    changed = metadata.model_copy(
        update={
            "snapshots": [*metadata.snapshots, snapshot],
            "current_snapshot_id": _ID,
            "last_sequence_number": sequence,
            "refs": {**metadata.refs, "main": main},
        }
    )
    location = f"{folder}/99999-deletes.metadata.json"
    ToOutputFile.table_metadata(changed, io.new_output(location), overwrite=True)
    return StaticTable.from_metadata(location, dict(io.properties))
