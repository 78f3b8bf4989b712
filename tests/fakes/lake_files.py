"""A Delta and an Iceberg table with a few rows, several versions, and the same file names every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import delta_logs as logs
import pyarrow as pa
from pyarrow import parquet


def rows_of(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table({"n": list(numbers), "text": [None if n % 4 == 2 else f"text {n}" for n in numbers]})


def write_lake(folder: Path) -> None:
    """Write both tables into the folders ``delta`` and ``iceberg``."""
    write_delta(folder / "delta")
    write_iceberg(folder / "iceberg")


def write_delta(folder: Path) -> None:
    """Write a table that is partitioned by ``part``. Version 1 deletes rows, and has a further file."""
    folder.mkdir()
    files = [
        logs.add(folder, f"{part}.parquet", rows_of(100 * part, rows), {"part": str(part)})
        for part, rows in enumerate((7, 5, 1))
    ]
    deleted = {"add": {**files[0]["add"], "deletionVector": logs.deletion_vector([1, 5])}}
    removed = {"remove": {"path": "0.parquet", "deletionTimestamp": 1, "dataChange": True}}
    more = logs.add(folder, "3.parquet", rows_of(300, 7), {"part": None})
    schema = logs.struct_of(logs.field("n", "long"), logs.field("text", "string"), logs.field("part", "integer"))
    changes = [removed, deleted, more]
    logs.write_log(folder, schema, files, changes, partition_columns=["part"], features=["deletionVectors"])


def catalog(folder: Path | str) -> dict[str, str]:
    """Return the properties of the catalog in a folder."""
    return {"name": "lake", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def write_iceberg(folder: Path) -> None:
    """Write the table ``db.rows``. Its schema changes before the second snapshot."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    folder.mkdir()
    opened = load_catalog(**catalog(folder))
    opened.create_namespace("db")
    table = opened.create_table(
        "db.rows", Schema(NestedField(1, "n", LongType()), NestedField(2, "text", StringType()))
    )
    for part, rows in enumerate((7, 5, 1)):
        _add(folder, table, part, rows_of(100 * part, rows))
    first = table.current_snapshot()
    with table.update_schema() as update:
        update.rename_column("text", "words")
        update.add_column("more", StringType())
    _add(folder, table, 3, rows_of(300, 7).rename_columns(["n", "words"]))
    snapshots = [each.snapshot_id for each in (first, table.current_snapshot()) if each is not None]
    (folder / "snapshots.json").write_text(json.dumps(snapshots))
    opened.close()


def _add(folder: Path, table: Any, part: int, rows: pa.Table) -> None:
    parquet.write_table(rows, folder / f"{part}.parquet", row_group_size=3)
    table.add_files([f"file://{folder}/{part}.parquet"])


def snapshot(folder: Path | str, place: int) -> int:
    """Return the number of a snapshot of ``db.rows``."""
    found: list[int] = json.loads(Path(folder, "snapshots.json").read_text())
    return found[place]
