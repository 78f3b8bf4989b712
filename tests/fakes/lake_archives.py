"""Small Delta and Iceberg tables as plain data: the files of their metadata, to be changed and written again."""

from __future__ import annotations

import json
import random
import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import lake_files
import memory_io
import pyarrow as pa
from iceberg_deletes import POSITION, with_deletes
from puffin_files import puffin, vector
from pyarrow import parquet

__all__ = ["DATA_FILES", "archives", "unpack"]

DATA_FILES: Final[dict[str, bytes]] = {}
"""Content of the data files by name."""

_INNER: Final = ("schemaString", "stats")
"""Entries of a Delta log that contain JSON as text."""

_METADATA: Final = "memory://lake/table.metadata.json"


def archives() -> Iterator[dict[str, Any]]:
    """Yield the tables. Each has a kind and files: JSON as objects, other files as hexadecimal digits.

    They are the same in each run, but for times.
    """
    with tempfile.TemporaryDirectory() as folder:
        yield from _delta(Path(folder) / "delta")
    numbers = random.Random(7)
    with patch("uuid.uuid4", lambda: uuid.UUID(int=numbers.getrandbits(128))):
        yield from list(_iceberg())


def unpack(archive: dict[str, Any], folder: Path) -> str:
    """Write the files of a table into the folder, or into the memory of :mod:`memory_io`. Return the metadata's URL."""
    memory_io.FILES.clear()
    (folder / "_delta_log").mkdir()
    for name, content in archive["files"].items():
        data = _unpacked(content, is_log=archive.get("kind") == "delta")
        if archive.get("kind") != "delta":
            memory_io.FILES[name] = data
        elif "\0" not in name and "/" not in name:
            (folder / "_delta_log" / name).write_bytes(data)
    return _METADATA


def _delta(folder: Path) -> Iterator[dict[str, Any]]:
    import deltalake

    lake_files.write_delta(folder)
    DATA_FILES.update({path.name: path.read_bytes() for path in folder.glob("*.parquet")})
    logs = folder / "_delta_log"
    yield {"kind": "delta", "files": {path.name: _packed(path) for path in sorted(logs.iterdir())}}
    deltalake.DeltaTable(folder).create_checkpoint()
    (logs / f"{0:020}.json").unlink()
    yield {"kind": "delta", "files": {path.name: _packed(path) for path in sorted(logs.iterdir())}}


def _packed(path: Path) -> Any:
    if path.suffix == ".parquet":
        return path.read_bytes().hex()
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        for part in action.values():
            if isinstance(part, dict):
                part.update({name: json.loads(part[name]) for name in _INNER if name in part})
    return actions


def _unpacked(content: Any, *, is_log: bool) -> bytes:
    if isinstance(content, str):
        return bytes.fromhex(content) if re.fullmatch("([0-9a-f]{2})*", content) else content.encode(errors="replace")
    if is_log and isinstance(content, list):
        return b"".join(json.dumps(_with_text(line)).encode() + b"\n" for line in content)
    return json.dumps(content).encode()


def _with_text(action: Any) -> Any:
    """Return an action of a log with its inner JSON as text."""
    if not isinstance(action, dict):
        return action
    return {
        name: {
            key: json.dumps(value) if key in _INNER and not isinstance(value, str) else value
            for key, value in part.items()
        }
        if isinstance(part, dict)
        else part
        for name, part in action.items()
    }


def _iceberg() -> Iterator[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    memory_io.FILES.clear()
    properties = {"type": "sql", "uri": "sqlite://", "warehouse": "memory://lake", "py-io-impl": "memory_io.MemoryIO"}
    catalog = load_catalog("fuzz", **properties)
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "text", StringType()))
    made = catalog.create_table("db.rows", schema, properties={"write.avro.compression-codec": "null"})
    for part, rows in enumerate((7, 5)):
        location = f"memory://lake/ice{part}.parquet"
        with memory_io.MemoryIO().new_output(location).create() as file:
            parquet.write_table(lake_files.rows_of(100 * part, rows), file, row_group_size=3)
        DATA_FILES[location.rpartition("/")[2]] = memory_io.FILES[location]
        made.add_files([location])
    with made.update_schema() as update:
        update.rename_column("text", "words")
    yield _iceberg_archive(made)
    with memory_io.MemoryIO().new_output("memory://lake/deleted.parquet").create() as file:
        deletes = pa.table({"file_path": ["memory://lake/ice0.parquet"] * 2, "pos": pa.array([1, 5], pa.int64())})
        parquet.write_table(deletes, file)
    yield _iceberg_archive(with_deletes(made, "memory://lake/deleted.parquet", POSITION))
    with memory_io.MemoryIO().new_output("memory://lake/deleted.puffin").create() as file:
        file.write(puffin({"memory://lake/ice1.parquet": vector([0, 3])}))
    more = {"referenced_data_file": "memory://lake/ice1.parquet"}
    yield _iceberg_archive(with_deletes(made, "memory://lake/deleted.puffin", POSITION, "PUFFIN", **more))
    catalog.close()


def _iceberg_archive(table: Any) -> dict[str, Any]:
    """Return the files that the newest metadata name."""
    files: dict[str, Any] = {_METADATA: json.loads(memory_io.FILES[table.metadata_location])}
    for name, content in sorted(memory_io.FILES.items()):
        if not name.endswith("json") and not name.rpartition("/")[2].startswith("ice"):
            files[name] = content.hex()
    return {"kind": "iceberg", "files": files}
