"""Polars, DuckDB, nanoarrow and PyArrow read batches, and batches are read from them: equal values, shared memory."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import nanoarrow
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from arrow_producers import use_twins
from arrow_reading import only_chunk, rows_of
from numpy.typing import NDArray

from aiostream_data import ArrowBatch, Dataset, RaggedArray
from aiostream_data.rows.arrow.importing import ArrowChunk, read_arrow

NUMBERS = np.arange(6, dtype=np.int32)


@pytest.fixture(autouse=True, params=["native", "python"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the native kernels, and with their twins."""
    if request.param == "python":
        use_twins(monkeypatch)


def batch() -> dict[str, Any]:
    return {
        "number": NUMBERS,
        "score": np.ma.masked_array(np.linspace(0, 1, 6), [False] * 5 + [True]),
        "flag": NUMBERS % 2 == 0,
        "day": np.array(["2026-01-01", "NaT", "1960-02-03", "2000-02-29", "1970-01-01", "9999-12-31"], "M8[D]"),
        "time": np.arange(6).astype("M8[us]"),
        "text": np.array(["a", None, "größe", "", "more than twelve bytes", "e"], object),
        "image": np.arange(24, dtype=np.float32).reshape(6, 2, 2),
        "ids": RaggedArray(np.arange(9), np.array([0, 2, 2, 3, 3, 9, 9])),
        "box": {"low": NUMBERS, "high": (NUMBERS + 1, NUMBERS + 2)},
    }


ROW_2 = {
    "number": 2,
    "score": 0.4,
    "flag": True,
    "day": dt.date(1960, 2, 3),
    "time": dt.datetime(1970, 1, 1, 0, 0, 0, 2),
    "text": "größe",
    "image": [[8.0, 9.0], [10.0, 11.0]],
    "ids": [2],
    "box": {"low": 2, "high": {"0": 3, "1": 4}},
}
LAST: dict[str, Any] = {"number": 5, "score": None, "ids": [], "text": "e"}


def plain(value: Any) -> Any:
    """A value as Python lists and dicts, in which all libraries agree."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, pl.Series, np.ndarray)):
        return [plain(one) for one in value]
    return value


def address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


# -- consumers -------------------------------------------------------------------------------------------------------


def test_pyarrow_reads_a_batch() -> None:
    found = pa.record_batch(ArrowBatch(batch()))
    found.validate(full=True)
    assert plain(found.to_pylist()[2]) == ROW_2
    assert {name: found.to_pylist()[5][name] for name in LAST} == LAST


def test_polars_reads_a_batch() -> None:
    frame = pl.DataFrame(ArrowBatch(batch()))
    assert plain(frame.row(2, named=True)) == ROW_2
    assert {name: plain(frame.row(5, named=True)[name]) for name in LAST} == LAST
    assert address(frame["number"].to_numpy(allow_copy=False)) == address(NUMBERS)


def test_polars_reads_a_column() -> None:
    assert pl.Series(ArrowBatch({"x": NUMBERS})).struct.field("x").to_list() == NUMBERS.tolist()


def test_nanoarrow_reads_a_batch() -> None:
    found = nanoarrow.Array(ArrowBatch(batch()))
    row = next(one for i, one in enumerate(found.iter_py()) if i == 2)
    assert plain(row) == ROW_2
    view = nanoarrow.c_array(ArrowBatch(batch())).view()
    assert address(np.asarray(view.child(0).buffer(1))) == address(NUMBERS)
    stream = nanoarrow.ArrayStream(ArrowBatch(batch()))
    assert [len(chunk) for chunk in stream.iter_chunks()] == [6]


def test_duckdb_reads_a_batch_by_its_name_and_as_an_argument() -> None:
    rows = ArrowBatch(batch())
    with duckdb.connect() as connection:
        [found] = connection.sql("select * from rows where number = 2").fetchall()
        assert plain(dict(zip(ROW_2, found, strict=True))) == {**ROW_2, "box": {"low": 2, "high": {"0": 3, "1": 4}}}
        relation = connection.from_arrow(rows)
        assert relation.aggregate("sum(number), count(score), max(text)").fetchall() == [
            (15, 5, "more than twelve bytes")
        ]
        assert relation.filter("flag").order("number desc").project("number").fetchall() == [(4,), (2,), (0,)]


def test_batches_of_a_pipeline_are_read_as_they_come() -> None:
    dataset = Dataset.range(10).map(lambda i: {"i": i, "name": f"row {i}"}).batch(4)
    frames = [pl.DataFrame(ArrowBatch(one)) for one in dataset]
    assert pl.concat(frames).rows() == [(i, f"row {i}") for i in range(10)]


def test_a_reader_of_pyarrow_reads_a_batch_from_the_loader_of_another_batch() -> None:
    tables = [pa.table(ArrowBatch(one)) for one in Dataset.range(10).batch(4)]
    assert pa.concat_tables(tables)["element"].to_pylist() == list(range(10))


# -- producers -------------------------------------------------------------------------------------------------------


def columns(chunk: ArrowChunk) -> dict[str, list[Any]]:
    return dict(zip(chunk.structure.paths(), map(rows_of, chunk.leaves), strict=True))


def test_a_frame_of_polars_is_read_without_a_copy() -> None:
    frame = pl.DataFrame({"x": NUMBERS, "t": ["a", None, "größe", "", "more than twelve bytes", "e"]})
    chunk = only_chunk(frame)
    assert columns(chunk)["t"] == frame["t"].to_list()
    found = chunk.leaves[0].column
    assert isinstance(found, np.ndarray)
    assert address(found) == address(frame["x"].to_numpy(allow_copy=False))


def test_each_type_of_polars_is_read_or_refused_with_a_remedy() -> None:
    frame = pl.DataFrame(
        {
            "c": pl.Series(["a", "b", "a", None], dtype=pl.Categorical),
            "e": pl.Series(["a", "b", "a", None], dtype=pl.Enum(["a", "b"])),
            "b": [b"x", None, b"y" * 20, b""],
            "l": [[1, 2], [], None, [3]],
            "a": pl.Series([[1.0, 2.0]] * 4, dtype=pl.Array(pl.Float64, 2)),
            "s": [{"p": 1, "q": "u"}, None, {"p": None, "q": "v"}, {"p": 2, "q": None}],
            "d": [dt.date(2020, 1, 1), None, dt.date(1960, 1, 1), dt.date(1970, 1, 1)],
            "w": [dt.timedelta(seconds=i) for i in range(4)],
            "f": [True, None, False, True],
            "n": [None] * 4,
        }
    )
    for part in (frame, frame.slice(1, 3), frame.slice(4), pl.concat([frame, frame], rechunk=False)):
        source = read_arrow(part)
        chunks = [columns(chunk) for chunk in source]
        rows = part.to_dict(as_series=False)
        found = {name: [one for chunk in chunks for one in chunk[name]] for name in ("c", "e", "b", "l", "a", "f", "n")}
        assert found == {name: plain(rows[name]) for name in found}
        texts = [one for chunk in chunks for one in chunk["s.q"]]
        assert texts == [None if row is None else row["q"] for row in rows["s"]]


def test_sorted_and_filtered_frames_of_polars_are_read() -> None:
    frame = pl.DataFrame({"x": range(1_000), "t": [f"row {i % 10} of many rows" for i in range(1_000)]})
    part = frame.filter(pl.col("x") % 3 == 0).sort("t")
    assert columns(only_chunk(part.rechunk()))["t"] == part["t"].to_list()


def test_a_query_of_duckdb_is_read_in_chunks() -> None:
    with duckdb.connect() as connection:
        relation = connection.sql(
            "select i, 'row ' || i as t, [i, i + 1] as l, {'a': i} as s, i % 2 = 0 as f, "
            "case when i % 3 > 0 then i::float end as m, date '2020-01-01' + i::int as d from range(5000) r(i)"
        )
        chunks = [columns(chunk) for chunk in read_arrow(relation)]
    rows = {name: [one for chunk in chunks for one in chunk[name]] for name in chunks[0]}
    assert len(chunks) >= 1
    assert rows["i"] == list(range(5_000))
    assert rows["t"] == [f"row {i}" for i in range(5_000)]
    assert rows["l"] == [[i, i + 1] for i in range(5_000)]
    assert rows["s.a"] == rows["i"]
    assert rows["m"] == [float(i) if i % 3 else None for i in range(5_000)]
    assert rows["f"][:2] == [True, False]
    assert rows["d"][31] == np.datetime64("2020-02-01")


def test_an_array_of_nanoarrow_is_read() -> None:
    source = nanoarrow.Array([1, None, 3], nanoarrow.int64())
    assert rows_of(only_chunk(source).leaves[0]) == [1, None, 3]
    text = nanoarrow.Array(["a", None, "größe"], nanoarrow.string())
    assert rows_of(only_chunk(text).leaves[0]) == ["a", None, "größe"]


def test_every_form_of_a_table_of_pyarrow_is_read() -> None:
    table = pa.table({"x": [1, 2, 3], "t": ["a", None, "b"]})
    for source in (table, table.to_batches()[0], table.to_reader(), table.to_struct_array()):
        assert [columns(chunk) for chunk in read_arrow(source)] == [{"x": [1, 2, 3], "t": ["a", None, "b"]}]


def test_a_batch_comes_back_from_each_library() -> None:
    given = {"x": NUMBERS, "t": np.array(["a", None, "b", "c", "größe", ""], object), "l": batch()["ids"]}
    with duckdb.connect() as connection:
        for source in (
            ArrowBatch(given),
            pa.table(ArrowBatch(given)),
            pl.DataFrame(ArrowBatch(given)),
            nanoarrow.Array(ArrowBatch(given)),
            connection.from_arrow(ArrowBatch(given)),
        ):
            found = columns(only_chunk(source))
            assert found == {"x": NUMBERS.tolist(), "t": given["t"].tolist(), "l": given["l"].to_list()}
