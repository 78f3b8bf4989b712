"""Files with row groups deliver all rows of the groups before a damaged one, however many groups are read ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data._engine.sources import table_file
from aiostream_data.errors import CorruptRecordError

GROUPS, ROWS = 12, 50


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, int]:
    """Return a file with one damaged group, and the number of rows before this group."""
    path = tmp_path / "table.parquet"
    table = pa.table({"n": np.arange(GROUPS * ROWS)})
    parquet.write_table(table, path, row_group_size=ROWS, compression="none", use_dictionary=False)
    first = 7
    column = parquet.ParquetFile(path).metadata.row_group(first).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 8] = b"\xff" * 8
    path.write_bytes(data)
    return path, first * ROWS


def rows_before_the_error(dataset: Any) -> list[int]:
    found: list[int] = []
    with dataset.open() as loader, pytest.raises(CorruptRecordError):
        found.extend(row["n"] for row in loader)
    return found


@pytest.mark.parametrize("batch", [False, True], ids=["rows", "batches"])
@pytest.mark.parametrize("ahead", [1, 16])
def test_rows_of_the_groups_before_a_damaged_one_are_delivered(
    damaged: tuple[Path, int], ahead: int, batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "NEAR_GROUPS", ahead)
    path, before = damaged
    for _ in range(5):
        dataset: Any = Dataset.from_parquet(path)
        if batch:
            dataset = dataset.batch(ROWS).unbatch()
        assert rows_before_the_error(dataset) == list(range(before))
