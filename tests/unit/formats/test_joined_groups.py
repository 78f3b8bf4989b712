"""Small row groups are read together, and can be separated again."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from table_bytes import directory_of, rows_of

from aiostream_data import Dataset
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.joined_groups import FIRST_NBYTES, JOINED_NBYTES, JoinedGroups
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.row_groups import JoinsGroups, RowGroup, TableFormat
from aiostream_data.rows.records import ByteRange
from aiostream_data.testing.table_reading import parts_of

SIZES = st.tuples(st.integers(0, 4), st.sampled_from([1, JOINED_NBYTES // 3, JOINED_NBYTES, 3 * JOINED_NBYTES]))


def groups_of(sizes: list[tuple[int, int]]) -> list[RowGroup]:
    found, row, place = [], 0, 0
    for rows, nbytes in sizes:
        found.append(RowGroup(row, rows, (ByteRange(place, place + nbytes // 2),), nbytes - nbytes // 2))
        row, place = row + rows, place + nbytes
    return found


@given(st.lists(SIZES, max_size=12), st.integers(0, 40), st.randoms())
def test_groups_cover_the_wanted_ones_in_order(sizes: list[tuple[int, int]], first: int, random: object) -> None:
    groups = groups_of(sizes)
    wanted = [number for number, group in enumerate(groups) if group.rows and random.random() < 0.8]  # type: ignore[attr-defined]
    joined = JoinedGroups(groups)
    found = list(joined.from_row(first, wanted))
    left = [groups[number] for number in wanted if groups[number].first_row + groups[number].rows > first]
    assert [part for group in found for part in joined.separated(group)] == left
    for group in found:
        parts = joined.separated(group)
        assert group.rows == sum(part.rows for part in parts)
        assert group.stored_nbytes == sum(part.stored_nbytes for part in parts)
        assert len(parts) == 1 or group.stored_nbytes + group.nbytes <= JOINED_NBYTES


def test_a_group_without_rows_has_no_parts() -> None:
    assert not JoinedGroups(groups_of([(0, 5), (2, 5)])).separated(RowGroup(0, 0, (), 0))


def written(format: str, rows: int, size: int) -> bytes:
    table, made = pa.table({"n": np.arange(rows), "s": [f"text {row}" for row in range(rows)]}), io.BytesIO()
    if format == "parquet":
        parquet.write_table(table, made, row_group_size=size)
    else:
        with pa.ipc.new_file(made, table.schema) as writer:
            writer.write_table(table, max_chunksize=size)
    return made.getvalue()


FORMATS: dict[str, TableFormat] = {"parquet": ParquetFormat(), "arrow": ArrowFormat()}


@pytest.mark.parametrize("name", FORMATS)
def test_groups_grow_so_that_the_first_rows_arrive_early(name: str) -> None:
    directory = directory_of(FORMATS[name], written(name, 1_000_000, 500))
    rows = [group.rows for group in directory.groups_from(0)]
    assert rows[0] == pytest.approx(rows[-2] * FIRST_NBYTES / JOINED_NBYTES, rel=0.1)
    assert rows[1] == pytest.approx(2 * rows[0], rel=0.1)
    assert next(iter(directory.groups_from(100_000))).rows == pytest.approx(rows[0], rel=0.1)


@pytest.mark.parametrize("name", FORMATS)
def test_a_thousand_small_groups_are_one(name: str) -> None:
    data = written(name, 3000, 3)
    directory = directory_of(FORMATS[name], data)
    (group,) = directory.groups_from(0)
    assert isinstance(directory, JoinsGroups)
    alone = directory.separated(group)
    assert [part.first_row for part in alone] == list(range(0, 3000, 3))
    expected = [{"n": row, "s": f"text {row}"} for row in range(3000)]
    assert list(rows_of(FORMATS[name], data)) == expected
    found = [rows for part in alone for rows in directory.decode(part, parts_of(data, part.ranges))]
    assert [number for rows in found for number in rows.rows.tolist()] == list(range(3000))
    assert list(rows_of(FORMATS[name], data, 1000)) == expected[1000:]


def test_groups_that_need_too_much_memory_together_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    text = "x" * 4000
    parquet.write_table(pa.table({"s": [text] * 40_000}), path, row_group_size=1000)  # each group has the text once
    with Dataset.from_parquet(path).open(memory_limit=64 << 20) as loader:
        assert sum(row["s"] == text for row in loader) == 40_000
