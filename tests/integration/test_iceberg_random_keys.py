"""``Dataset.from_iceberg``: random tables with equality deletes, compared with a search of each row in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from aiostream_data import Dataset
from aiostream_data.testing.resume import resumes_everywhere

pytest.importorskip("pyiceberg")

from equality_deletes import append, delete_equal, lake
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    NestedField,
    StringType,
)

NAN = float("nan")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    with lake(tmp_path) as opened:
        yield opened


@dataclass
class Oracle:
    """Rows of a table, and their deletes, in plain Python."""

    rows: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    deletes: list[tuple[int, object, list[str], list[tuple[Any, ...]]]] = field(default_factory=list)

    def kept(self) -> list[dict[str, Any]]:
        return [row for sequence, part, row in self.rows if not self._is_deleted(sequence, part, row)]

    def _is_deleted(self, sequence: int, part: tuple[Any, ...], row: dict[str, Any]) -> bool:
        return any(
            newer > sequence
            and scope in ("everywhere", ("in", part))
            and any(tuple(map(repr, key)) == tuple(repr(row[name]) for name in names) for key in keys)
            for newer, scope, names, keys in self.deletes
        )


FIELDS = {"id": 1, "part": 2, "x": 3}
KINDS = {"id": pa.int32(), "part": pa.string(), "x": pa.float64()}


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_have_the_rows_of_a_search_in_python(catalog: Any, seed: int) -> None:
    random, oracle = Random(seed), Oracle()

    def value(name: str) -> Any:
        choices: dict[str, list[Any]] = {
            "id": [None, 0, 1, 2, 3],
            "part": [None, "a", "b"],
            "x": [None, NAN, 0.0, -0.0],
        }
        return random.choice(choices[name])

    schema = Schema(
        NestedField(1, "id", IntegerType()), NestedField(2, "part", StringType()), NestedField(3, "x", DoubleType())
    )
    made: Any = catalog.create_table("db.random", schema)
    by = ["id", "part"] if seed % 3 == 1 else ["part"]
    with made.update_spec() as update:
        for name in by:
            update.add_identity(name)
    partitioned = made.metadata.default_spec_id

    def add_rows() -> None:
        rows = [{name: value(name) for name in FIELDS} for _ in range(random.randint(1, 8))]
        append(made, rows)
        sequence = made.metadata.last_sequence_number
        oracle.rows.extend((sequence, tuple(row[name] for name in by), row) for row in rows)

    def add_deletes() -> None:
        names = random.sample(sorted(FIELDS), random.randint(1, 3))
        keys = [tuple(value(name) for name in names) for _ in range(random.randint(0, 4))]
        columns = [pa.array([key[at] for key in keys], KINDS[name]) for at, name in enumerate(names)]
        arrow, numbers = pa.table(columns, names=names), [FIELDS[name] for name in names]
        if random.random() < 0.5:
            sequence, scope = delete_equal(made, arrow, numbers, spec_id=0), "everywhere"
            oracle.deletes.append((sequence, scope, names, keys))
            return
        partition = random.choice(partitions(made))
        sequence = delete_equal(made, arrow, numbers, spec_id=partitioned, partition=partition)
        oracle.deletes.append((sequence, ("in", partition), names, keys))

    add_rows()
    for _ in range(8):
        random.choice([add_rows, add_deletes])()
    source = Dataset.from_iceberg(made)
    expected = oracle.kept()
    assert sorted(map(repr, map(plain, source))) == sorted(map(repr, expected))
    found = [plain(row) for row in Dataset.from_iceberg(made, columns=["part"], filters=[("id", ">", 0)])]
    wanted = [{"part": row["part"]} for row in expected if (row["id"] or 0) > 0]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    if seed == 0:
        resumes_everywhere(source)


def partitions(table: Any) -> list[tuple[Any, ...]]:
    """Return the partitions of the data files."""
    manifests = table.current_snapshot().manifests(table.io)
    files = [entry.data_file for each in manifests for entry in each.fetch_manifest_entry(table.io)]
    return sorted({tuple(each.partition[at] for at in range(len(each.partition))) for each in files} - {()}, key=repr)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if value is None or name == "part" else KINDS[name].to_pandas_dtype()(value).item()
        for name, value in row.items()
    }
