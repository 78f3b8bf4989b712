"""Delta logs with features that the library deltalake cannot write: column mapping, deletion vectors, and others."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyarrow import parquet

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377


def field(name: str, kind: Any, physical: str | None = None, number: int = 0) -> dict[str, Any]:
    """Return a field of a schema, with its name and id in the files if ``physical`` is given."""
    mapped = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapped if physical else {}}


def struct_of(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def deletion_vector(rows: Sequence[int]) -> dict[str, Any]:
    """Return a deletion vector that is part of the log: a Roaring bitmap in Z85."""
    data = struct.pack("<IQI", _MAGIC, 1, 0) + struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    data += struct.pack(f"<{len(rows)}H", *rows)
    return {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": len(rows)}


def stored_vectors(
    folder: Path, vectors: Sequence[tuple[bytes, int]], prefix: str = "", number: int = 1
) -> list[dict[str, Any]]:
    """Write a file with deletion vectors, each with its number of rows. Return their descriptions in the log."""
    name, content, found = UUID(int=number), b"\x01", []
    for vector, rows in vectors:
        place = {"storageType": "u", "pathOrInlineDv": prefix + z85(name.bytes), "offset": len(content)}
        found.append({**place, "sizeInBytes": len(vector) - 8, "cardinality": rows})
        content += vector
    (folder / prefix).mkdir(exist_ok=True)
    (folder / prefix / f"deletion_vector_{name}.bin").write_bytes(content)
    return found


def z85(data: bytes) -> str:
    data += bytes(-len(data) % 4)
    return "".join(_z85(int.from_bytes(data[at : at + 4], "big")) for at in range(0, len(data), 4))


def _z85(number: int) -> str:
    return "".join(_DIGITS[number // 85**place % 85] for place in range(4, -1, -1))


def add(folder: Path, name: str, table: pa.Table, partition: Mapping[str, Any] = {}, **more: Any) -> dict[str, Any]:
    """Write a data file of at most 2 rows per row group. Return the action that adds it."""
    parquet.write_table(table, folder / name, row_group_size=2)
    size = (folder / name).stat().st_size
    action = {"path": name, "partitionValues": dict(partition), "size": size, "modificationTime": 0, "dataChange": True}
    return {"add": {**action, "stats": json.dumps({"numRecords": len(table)}), **more}}


def write_log(
    folder: Path,
    schema: Mapping[str, Any],
    *versions: Sequence[Mapping[str, Any]],
    partition_columns: Sequence[str] = (),
    features: Sequence[str] = (),
    configuration: Mapping[str, str] = {},
) -> None:
    """Write the log of a table: one file for the actions of each version."""
    readers = {"readerFeatures": list(features), "writerFeatures": list(features)} if features else {}
    protocol = {"minReaderVersion": 3 if features else 1, "minWriterVersion": 7 if features else 2, **readers}
    metadata = {
        "id": "0e1cd4a4-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partition_columns),
        "createdTime": 0,
        "configuration": dict(configuration),
    }
    (folder / "_delta_log").mkdir()
    for number, actions in enumerate(versions):
        lines = [*([{"protocol": protocol}, {"metaData": metadata}] if number == 0 else []), *actions]
        (folder / "_delta_log" / f"{number:020}.json").write_text("".join(json.dumps(each) + "\n" for each in lines))
