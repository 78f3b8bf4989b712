"""Row groups that deliver no rows, while a buffer behind them fills the memory limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data._engine.sources import table_file

GROUPS, ROWS, ROW_NBYTES = 200, 100, 1000
EMPTY = range(150, GROUPS, 2)


def keep() -> Any:
    """Return the column that a filter reads. Its statistics exclude no group."""
    column = np.ones((GROUPS, ROWS), np.int64)
    column[EMPTY] = 2
    column[:, 0], column[:, 1] = 0, 2
    return column.ravel()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("groups") / "table.parquet"
    rows = [bytes([number % 251]) * ROW_NBYTES for number in range(GROUPS * ROWS)]
    table = pa.table({"keep": keep(), "bytes": pa.array(rows, pa.binary())})
    parquet.write_table(table, path, row_group_size=ROWS, compression="none", use_dictionary=False)
    return path


@pytest.fixture(scope="module")
def damaged(whole: Path) -> Path:
    """Return the file with damage in every group of ``EMPTY``."""
    path, data = whole.with_name("damaged.parquet"), bytearray(whole.read_bytes())
    metadata = parquet.ParquetFile(whole).metadata
    for group in EMPTY:
        start = metadata.row_group(group).column(0).data_page_offset
        data[start : start + 8] = b"\xff" * 8
    path.write_bytes(data)
    return path


def rows_of(dataset: Any) -> int:
    # The shuffle buffer fills the memory limit. Sources may then read only the group that comes next.
    with dataset.shuffle(12_000, seed=1).open(memory_limit="16MB", stage_timeout=20) as loader:
        return sum(1 for _ in loader)


@pytest.mark.parametrize("ahead", [1, 16])
def test_groups_without_rows_are_passed_while_the_memory_is_full(
    ahead: int, whole: Path, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "NEAR_GROUPS", ahead)
    filtered = Dataset.from_parquet(whole, filters=[("keep", "=", 1)])
    assert rows_of(filtered) == int((keep() == 1).sum())
    skipping = Dataset.from_parquet(damaged, on_error="skip")
    assert rows_of(skipping) == (GROUPS - len(EMPTY)) * ROWS
