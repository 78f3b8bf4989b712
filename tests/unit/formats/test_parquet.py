"""Parquet files: rows, columns, filters, resuming, and damaged files."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_bytes import directory_of, rows_of

from aiostream_data import (
    AiostreamError,
    CorruptRecordError,
    Dataset,
    MemoryBudgetError,
    PlanError,
    StateMismatchError,
    TableSchemaError,
)
from aiostream_data.formats.hive_partitions import partitions_of
from aiostream_data.formats.known_ranges import KnownRanges
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.rows.records import ByteRange
from aiostream_data.testing.resume import resumes_everywhere

TABLE = pa.table(
    {
        "n": pa.array(range(40), pa.int32()),
        "text": [None if n % 5 == 3 else f"text {n}" for n in range(40)],
        "words": pa.array([["a", "b"][n % 2] for n in range(40)]).dictionary_encode(),
        "values": [list(range(n % 4)) for n in range(40)],
        "box": [{"x": n / 2, "y": None if n % 3 else n} for n in range(40)],
        "time": [datetime(2026, 1, 1 + n % 20) for n in range(40)],
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, start in enumerate((0, 15, 30)):
        pq.write_table(TABLE.slice(start, 15), tmp_path / f"{number}.parquet", row_group_size=4, compression="zstd")
    return tmp_path


def plain(rows: Any) -> list[Any]:
    return [
        {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
        for row in rows
    ]


def expected(columns: list[str] | None = None) -> list[Any]:
    rows: list[Any] = (TABLE if columns is None else TABLE.select(columns)).to_pylist()
    return rows


def test_rows_are_those_of_pyarrow(folder: Path) -> None:
    wanted = [{**row, "time": np.datetime64(row["time"], "us")} for row in expected()]
    assert plain(Dataset.from_parquet(folder / "*.parquet")) == wanted


@pytest.mark.parametrize("columns", [["n"], ["text", "n"], ["box", "words"]])
def test_only_the_named_columns_are_given_in_their_order(folder: Path, columns: list[str]) -> None:
    rows = plain(Dataset.from_parquet(folder / "*.parquet", columns))
    assert rows == expected(columns)
    assert list(rows[0]) == columns


def test_a_field_of_a_struct_can_be_selected(folder: Path) -> None:
    rows = plain(Dataset.from_parquet(folder / "*.parquet", ["box.x"]))
    assert rows == [{"box": {"x": n / 2}} for n in range(40)]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columns_may_have_dots_in_their_names(tmp_path: Path, suffix: str) -> None:
    rows = [{"a.b": n, "c.d": {"e.f": n + 1, "g": n + 2}, "a": -n} for n in range(9)]
    path, table = tmp_path / f"x.{suffix}", pa.Table.from_pylist(rows)
    if suffix == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write(table)
    else:
        pq.write_table(table, path)
    read = Dataset.from_arrow if suffix == "arrow" else Dataset.from_parquet
    assert plain(read(str(path), columns=["a.b", "a"])) == [{"a.b": n, "a": -n} for n in range(9)]
    assert plain(read(str(path), columns=["c.d.e.f"])) == [{"c.d": {"e.f": n + 1}} for n in range(9)]
    assert plain(read(str(path), columns=["c.d", "a.b"])) == [{"c.d": row["c.d"], "a.b": row["a.b"]} for row in rows]
    if suffix == "parquet":
        found = Dataset.from_parquet(str(path), columns=["a"], filters=[("a.b", ">", 6)])
        assert plain(found) == [{"a": -7}, {"a": -8}]
    for name in ("c", "c.x", "a.c", "d.b", "a."):
        with pytest.raises(PlanError, match=f"has no (column|field) '{name}'"):
            plain(read(str(path), columns=[name]))


def test_a_column_with_a_dot_beside_a_struct_can_be_selected(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{"a.b": n, "a": {"b": -n}} for n in range(3)])
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as file:
        file.write(table)
    pq.write_table(table, tmp_path / "x.parquet")
    for found in (
        Dataset.from_arrow(str(tmp_path / "x.arrow"), columns=["a.b"]),
        Dataset.from_parquet(str(tmp_path / "x.parquet"), columns=["a.b"]),
    ):
        assert plain(found) == [{"a.b": n} for n in range(3)]


def test_a_path_below_a_list_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([{"l.m": [{"q": 1}]}]), tmp_path / "x.parquet")
    for name in ("l.m.q", "l.q", "l.m."):
        with pytest.raises(PlanError, match=f"has no (column|field) '{name}'"):
            plain(Dataset.from_parquet(str(tmp_path / "x.parquet"), columns=[name]))


@pytest.mark.parametrize(
    ("filters", "keeps"),
    [
        ([("n", ">", 30)], lambda row: row["n"] > 30),
        ([("n", "<=", 3)], lambda row: row["n"] <= 3),
        ([("n", "in", [1, 17, 99])], lambda row: row["n"] in (1, 17)),
        ([("n", "not in", [1, 17])], lambda row: row["n"] not in (1, 17)),
        ([("text", "!=", "text 0")], lambda row: row["text"] not in (None, "text 0")),
        ([("n", ">", 10), ("words", "==", "a")], lambda row: row["n"] > 10 and row["words"] == "a"),
        ([[("n", "<", 3)], [("n", "=", 39)]], lambda row: row["n"] < 3 or row["n"] == 39),
        ([("n", ">", 1000)], lambda row: False),
    ],
    ids=["more", "at most", "in", "not in", "differs", "both", "either", "none"],
)
def test_filters_keep_the_rows_that_satisfy_them_and_resume_exactly(folder: Path, filters: Any, keeps: Any) -> None:
    dataset = Dataset.from_parquet(folder / "*.parquet", ["n", "text"], filters)
    assert plain(dataset) == [{"n": row["n"], "text": row["text"]} for row in expected() if keeps(row)]
    resumes_everywhere(dataset.shuffle(5, seed=1))


def test_row_groups_that_a_filter_excludes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    table = pa.table({"n": np.arange(100_000), "noise": np.random.default_rng(1).random(100_000)})
    pq.write_table(table, path, row_group_size=1_000)

    def received(**options: Any) -> int:
        with Dataset.from_parquet(path, **options).open() as loader:
            for _ in loader:
                pass
            return int(loader.stats().as_dict()["storage"]["nbytes"])

    whole = received()
    assert whole >= path.stat().st_size // 2
    assert received(filters=[("n", "<", 1_000)]) < whole / 10
    assert received(columns=["n"]) < whole


def test_files_are_interleaved_shuffled_and_resume_after_every_row(folder: Path) -> None:
    dataset = Dataset.from_parquet(folder / "*.parquet", ["n"], cycle_length=2, block_length=3)
    assert [row["n"] for row in dataset][:9] == [0, 1, 2, 15, 16, 17, 3, 4, 5]
    resumes_everywhere(dataset.batch(4))
    shuffled = Dataset.from_parquet(folder / "*.parquet", ["n"], shuffle_shards=True, seed=3, cycle_length=3)
    assert sorted(row["n"] for row in shuffled) == list(range(40))
    resumes_everywhere(shuffled.shuffle(6, seed=2).batch(3))


def test_partitions_of_the_url_become_columns(tmp_path: Path) -> None:
    for year in (2025, 2026):
        (tmp_path / f"year={year}" / "kind=a b").mkdir(parents=True)
        pq.write_table(TABLE.select(["n"]).slice(0, 2), tmp_path / f"year={year}" / "kind=a b" / "x.parquet")
    rows = list(Dataset.from_parquet(tmp_path / "*" / "*" / "*.parquet", partitions=True))
    assert rows == [{"n": n, "year": str(year), "kind": "a b"} for year in (2025, 2026) for n in (0, 1)]
    assert partitions_of("s3://bucket/a=1/=2/c/d=e=f/file=3.parquet") == {"a": "1", "d": "e=f"}


def write_columns(folder: Path, *tables: dict[str, Any]) -> str:
    for number, columns in enumerate(tables):
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return str(folder / "*.parquet")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"a": [1]}, {"a": ["x"]}, r"column 'a' is (string|int64), but (int64|string) in"),
        ({"a": [1]}, {"a": [1.5]}, "column 'a' is (double|int64)"),
        ({"a": [1], "b": [1]}, {"a": [1]}, "the file has no column 'b', which .* has"),
        ({"a": [[1]]}, {"a": [["x"]]}, "list<(int64|string)>"),
        ({"a": [{"x": 1}]}, {"a": [{"x": 1.5}]}, "struct<x: (int64|double)>"),
    ],
)
def test_files_whose_columns_differ_are_named_with_the_column(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    pattern = write_columns(tmp_path, first, second)
    with pytest.raises(TableSchemaError, match=message) as raised:
        list(Dataset.from_parquet(pattern))
    assert raised.value.column in ("a", "b")
    assert {"0.parquet", "1.parquet"} == set(re.findall(r"\d\.parquet", str(raised.value)))


def test_columns_that_are_not_selected_and_layouts_of_the_same_values_may_differ(tmp_path: Path) -> None:
    tables: list[dict[str, Any]] = [
        {"a": pa.array(["x"]), "b": [1], "s": [{"n": 1, "m": 1}]},
        {"a": pa.array(["y"], pa.large_string()), "b": ["1"], "s": [{"n": 2, "m": "x"}]},
        {"a": pa.array(["z"]).dictionary_encode(), "c": [1.5], "s": [{"n": 3}]},
        {"a": pa.nulls(1), "b": [1], "s": [{"n": 4}]},
    ]
    pattern = write_columns(tmp_path, *tables)
    found = list(Dataset.from_parquet(pattern, columns=["a", "s.n"]))
    assert [row["a"] for row in found] == ["x", "y", "z", None]
    assert [row["s"]["n"] for row in found] == [1, 2, 3, 4]


def test_maps_are_equal_whatever_the_files_call_their_keys_and_values(tmp_path: Path) -> None:
    named = pa.map_(pa.field("k", pa.string(), False), pa.field("v", pa.int64()))
    for number, (kind, item) in enumerate([(pa.map_(pa.string(), pa.int64()), "item"), (named, "array")]):
        maps = pa.array([[[("a", number)]]], pa.list_(pa.field(item, kind)))
        table = pa.table({"one": pa.array([[("b", number)]], kind), "several": maps})
        pq.write_table(table, tmp_path / f"{number}.parquet", use_compliant_nested_type=False)
    found = list(Dataset.from_parquet(tmp_path / "*.parquet"))
    assert found == [{"one": {"b": number}, "several": [{"a": number}]} for number in (0, 1)]


def test_files_of_polars_and_files_without_rows_are_read(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2], "b": ["x", None]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"a": [], "b": []}, schema={"a": pl.Int64, "b": pl.String}).write_parquet(tmp_path / "b.parquet")
    assert list(Dataset.from_parquet(tmp_path / "*.parquet")) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize("seed", range(40))
def test_changed_bytes_give_other_rows_or_an_error_but_no_crash(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "changed.parquet"
    pq.write_table(TABLE.select(["n", "text", "values"]).slice(0, 9), path, row_group_size=4)
    data, draw = bytearray(path.read_bytes()), np.random.default_rng(seed)
    for place in draw.integers(0, len(data), 3):
        data[place] = draw.integers(256)
    path.write_bytes(data)
    with suppress(AiostreamError):
        list(Dataset.from_parquet(path))


@pytest.mark.parametrize("options", [{}, {"filters": ((("text", "==", "b"),),)}, {"columns": ("box.x", "n")}], ids=str)
@pytest.mark.parametrize("store_schema", [True, False])
def test_a_changed_byte_of_the_footer_never_ends_the_process(options: Any, store_schema: bool) -> None:
    """PyArrow's objects for metadata abort for some of these footers."""
    table = pa.table({"n": [1, 2, 3], "text": ["aé", "b", "c"], "box": [{"x": "u"}] * 3})
    made = io.BytesIO()
    pq.write_table(table, made, row_group_size=2, compression="none", store_schema=store_schema)
    data = bytearray(made.getvalue())
    for place in range(len(data) - int.from_bytes(data[-8:-4], "little") - 8, len(data)):
        for bits in (1, 2, 0x80):
            data[place] ^= bits
            with suppress(AiostreamError):
                list(rows_of(ParquetFormat(**options), bytes(data), limit=1 << 25))
            data[place] ^= bits


def test_damage_of_the_list_of_row_groups_is_skipped(tmp_path: Path) -> None:
    pq.write_table(TABLE.select(["n"]), tmp_path / "0.parquet", row_group_size=20)
    data = (tmp_path / "0.parquet").read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    for place in range(len(data) - size - 8, len(data) - 8):
        changed = data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
        with suppress(AiostreamError):
            directory_of(ParquetFormat(), changed)
            continue
        (tmp_path / "1.parquet").write_bytes(changed)
        assert len(list(Dataset.from_parquet(tmp_path / "*.parquet", on_error="skip"))) == len(TABLE)


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (b"PAR0", "does not end as a Parquet file does"),
        (b"PARE", "encrypted"),
        (b"\xff\xff\xff\x7fPAR1", "longer than the file"),
    ],
)
def test_hostile_footers_are_refused(tmp_path: Path, tail: bytes, message: str) -> None:
    path = tmp_path / "hostile.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + tail)
    with pytest.raises(CorruptRecordError, match=message):
        list(Dataset.from_parquet(path))


def test_a_row_group_beyond_the_memory_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    zeros = pa.table({"zeros": np.zeros(20_000_000)})
    pq.write_table(zeros, path, row_group_size=len(zeros))  # a few bytes when stored
    assert path.stat().st_size < 1 << 20
    with (
        pytest.raises(MemoryBudgetError, match=r"large\.parquet needs \d+ bytes"),
        Dataset.from_parquet(path).open(memory_limit="64MB") as loader,
    ):
        list(loader)


def test_unknown_columns_and_types_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"0\.parquet has no column 'colour'"):
        list(Dataset.from_parquet(folder / "*.parquet", ["colour"]))
    for name in ("box.z", "n.z"):
        with pytest.raises(PlanError, match=rf"0\.parquet has no field '{name}'"):
            list(Dataset.from_parquet(folder / "*.parquet", [name]))
    with pytest.raises(PlanError, match="the filter on column 'n' does not fit its type"):
        list(Dataset.from_parquet(folder / "*.parquet", filters=[("n", ">", "x")]))


@pytest.mark.parametrize(
    "options",
    [
        {"columns": "n"},
        {"columns": []},
        {"columns": ["n", "n"]},
        {"columns": [1]},
        {"filters": "n > 3"},
        {"filters": [("n", ">")]},
        {"filters": [("n", "~", 3)]},
        {"filters": [("n", "in", "abc")]},
        {"partitions": 1},
        {"cycle_length": 0},
        {"shuffle_shards": "yes"},
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(options: Any) -> None:
    with pytest.raises(AiostreamError):
        Dataset.from_parquet("x.parquet", **options)


def test_a_state_beyond_a_shorter_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE.select(["n"]), path, row_group_size=10)
    dataset = Dataset.from_parquet(path)
    with dataset.open() as loader:
        for _, _row in zip(range(30), loader, strict=False):
            pass
        state = loader.state_dict()
    pq.write_table(TABLE.select(["n"]).slice(0, 20), path, row_group_size=10)
    with pytest.raises(StateMismatchError, match="1 shard was changed"):
        dataset.open(state)
    with (
        pytest.raises(StateMismatchError, match="which has 20 rows"),
        dataset.open(state, allow=["content"]) as loader,
    ):
        list(loader)


def test_bytes_outside_of_the_listed_ranges_are_not_read() -> None:
    file = KnownRanges(
        100, [ByteRange(10, 20), ByteRange(50, 60)], [memoryview(bytes(range(10))), memoryview(bytes(10))]
    )
    file.seek(12)
    assert file.read(3) == b"\x02\x03\x04"
    assert file.tell() == 15
    file.seek(-45, 2)
    assert file.read(5) == bytes(5)
    for place, size in ((5, 3), (18, 4), (70, 1)):
        file.seek(place)
        with pytest.raises(OSError, match="not part of the ranges"):
            file.read(size)
