"""Add delete files to a snapshot of an Iceberg table, which pyiceberg reads but cannot write."""

from __future__ import annotations

from typing import Any

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
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.typedef import Record

__all__ = ["EQUALITY", "POSITION", "DeletesWriter", "with_deletes"]

POSITION = DataFileContent.POSITION_DELETES
EQUALITY = DataFileContent.EQUALITY_DELETES
_ID = 77


class DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


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
    made: Any = Snapshot  # its arguments have other names for mypy
    snapshot = made(
        snapshot_id=_ID,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=sequence,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
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
